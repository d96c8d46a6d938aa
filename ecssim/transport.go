package ecssim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// ServeHTTP answers the API at / and the metadata service of the instance that
// the header X-Sim-Instance names at /latest/. admin.Handler adds the admin API.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/" && !strings.HasPrefix(req.URL.Path, actions.MetadataRoot) {
		http.Error(w, "The API is at /, the metadata service at "+actions.MetadataRoot+" and the simulator's own, if it has one, at /_sim/.", http.StatusNotFound)
		return
	}
	s.answer(w, req, "")
}

// answer answers a request that came over a connection; instance is the one
// whose metadata service it came to, if that has a listener of its own.
func (s *Server) answer(w http.ResponseWriter, req *http.Request, instance string) {
	s.countConnection(req.Context())
	m, err := wire.ReadMessage(req, instance)
	if err != nil {
		http.Error(w, "The body can't be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	s.answerMessage(w, req, m)
}

func (s *Server) answerMessage(w http.ResponseWriter, req *http.Request, m wire.Message) {
	r, err := s.serve(req.Context(), m)
	if err != nil || r.Lost {
		hangUp(w, r)
		return
	}
	header := w.Header()
	for name, values := range s.header(r) {
		header[name] = values
	}
	w.WriteHeader(r.Status)
	if r.Over > 0 {
		_ = http.NewResponseController(w).Flush() // a caller that has gone is told nothing
		_, _ = io.Copy(flushing{w}, s.trickle(req.Context(), r))
		return
	}
	_, _ = w.Write(r.Body)
	_, _ = io.Copy(w, r.Blanks())
}

// hangUp ends a connection without a word: a reset if the fault says so,
// otherwise its end.
func hangUp(w http.ResponseWriter, r wire.Reply) {
	if r.Errno != 0 {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // closing sends a reset then
			}
			_ = conn.Close()
			return
		}
	}
	panic(http.ErrAbortHandler) // net/http closes the connection
}

// flushing sends every piece as soon as it is written.
type flushing struct{ w http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	return n, errors.Join(err, http.NewResponseController(f.w).Flush())
}

// RoundTrip answers a request in this process, whatever host it is for. A
// lost reply is io.EOF, as from a connection that was closed; if the
// request's context ends first, RoundTrip returns its error, and the request
// takes effect all the same.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	return s.roundTrip(req, "")
}

func (s *Server) roundTrip(req *http.Request, instance string) (*http.Response, error) {
	m, err := wire.ReadMessage(req, instance)
	if err != nil {
		return nil, err
	}
	return s.roundTripMessage(req, m)
}

func (s *Server) roundTripMessage(req *http.Request, m wire.Message) (*http.Response, error) {
	r, err := s.serve(req.Context(), m)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Errno == syscall.ECONNREFUSED:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: r.Errno}
	case r.Errno != 0:
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: r.Errno}
	case r.Lost:
		return nil, io.EOF
	}
	body := io.NopCloser(bytes.NewReader(r.Body))
	if r.Over > 0 {
		body = s.trickle(req.Context(), r)
	}
	if r.Flood > 0 {
		body = io.NopCloser(io.MultiReader(body, r.Blanks()))
	}
	return &http.Response{
		Status: strconv.Itoa(r.Status) + " " + http.StatusText(r.Status), StatusCode: r.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: s.header(r), Body: body, ContentLength: int64(len(r.Body)) + r.Flood, Request: req,
	}, nil
}

func (s *Server) header(r wire.Reply) http.Header {
	h := http.Header{}
	h.Set("Date", s.clock.Now().Add(r.Skew).UTC().Format(http.TimeFormat))
	h.Set("Content-Type", r.ContentType)
	h.Set("Content-Length", strconv.FormatInt(int64(len(r.Body))+r.Flood, 10))
	if r.RequestID == "" {
		return h // it is not the API's
	}
	h.Set("X-Acs-Request-Id", r.RequestID)
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	return h
}

// connectionKey is where a request's context has the mark of its connection.
type connectionKey struct{}

// Connected marks a new connection, so that Stats can count it. It is meant
// for http.Server.ConnContext. Only connections that requests of the API or of
// the metadata service come over are counted, each once.
func (s *Server) Connected(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, new(atomic.Bool))
}

// countConnection counts the connection of a request, if it is the first.
func (s *Server) countConnection(ctx context.Context) {
	if used, ok := ctx.Value(connectionKey{}).(*atomic.Bool); ok && used.CompareAndSwap(false, true) {
		s.look(func(time.Time) { s.ledger.stats.connections++ })
	}
}

// trickle returns a body that comes bit by bit.
func (s *Server) trickle(ctx context.Context, r wire.Reply) *trickle {
	return &trickle{ctx: ctx, clock: s.clock, body: r.Body, start: s.clock.Now(), over: r.Over}
}

// trickle is a body that comes in equal pieces, the last of them at the end
// of its time.
type trickle struct {
	ctx   context.Context
	clock *state.Clock
	body  []byte
	sent  int
	start time.Time
	over  time.Duration
}

// pieces is how many pieces a body comes in, if it has so many bytes.
const pieces = 16

// Read waits for the next piece. It returns the error of the request's
// context if that ends first.
func (t *trickle) Read(p []byte) (int, error) {
	if t.sent == len(t.body) || len(p) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), max(len(t.body)/pieces, 1), len(t.body)-t.sent)
	due := t.start.Add(t.over * time.Duration(t.sent+n) / time.Duration(len(t.body)))
	if err := t.clock.WaitUntil(t.ctx, due); err != nil {
		return 0, err
	}
	t.sent += copy(p[:n], t.body[t.sent:])
	return n, nil
}

// Close ends nothing: the pieces that are left are not sent.
func (t *trickle) Close() error { return nil }

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
