package ecssim

import (
	"net/http"
	"strings"

	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// Accounts is several accounts of one ECS, each a Server of its own with its own
// keys: what is in one no other sees. Whoever signs a request with the key of an
// account is answered by that one; the first account has all that names no key
// of another: the metadata service, the admin API, and keys that nobody has.
type Accounts []*Server

// ServeHTTP is Server.ServeHTTP for several accounts.
func (a Accounts) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/" {
		a[0].ServeHTTP(w, req)
		return
	}
	m, err := wire.ReadMessage(req, "")
	if err != nil {
		http.Error(w, "The body can't be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	a.of(m).answerMessage(w, req, m)
}

// RoundTrip is Server.RoundTrip for several accounts.
func (a Accounts) RoundTrip(req *http.Request) (*http.Response, error) {
	m, err := wire.ReadMessage(req, "")
	if err != nil {
		return nil, err
	}
	return a.of(m).roundTripMessage(req, m)
}

// of returns the account whose key a request names.
func (a Accounts) of(m wire.Message) *Server {
	in, no := wire.ReadInput(m)
	if strings.HasPrefix(m.Path, actions.MetadataRoot) || no != nil {
		return a[0]
	}
	for _, s := range a {
		if s.owns(wire.ClaimedKey(m, in.All)) {
			return s
		}
	}
	return a[0]
}

// owns says whether a key is the account's, or a temporary one of its roles.
func (s *Server) owns(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys.Owns(key)
}
