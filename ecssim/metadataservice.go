package ecssim

import (
	"net/http"
	"strings"

	"github.com/topodisk/topodisk/ecssim/actions"
)

// Metadata is the metadata service as one instance reaches it: an
// http.Handler and an http.RoundTripper. The Server itself is the service of
// the instance that the header X-Sim-Instance names.
type Metadata struct {
	server   *Server
	instance string
}

// Metadata returns the metadata service of an instance.
func (s *Server) Metadata(instance string) *Metadata { return &Metadata{s, instance} }

// ServeHTTP answers GET and PUT below /latest/.
func (m *Metadata) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !strings.HasPrefix(req.URL.Path, actions.MetadataRoot) {
		http.NotFound(w, req)
		return
	}
	m.server.answer(w, req, m.instance)
}

// RoundTrip answers a request in this process, whatever host it is for.
func (m *Metadata) RoundTrip(req *http.Request) (*http.Response, error) {
	return m.server.roundTrip(req, m.instance)
}
