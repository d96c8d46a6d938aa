package ecssim

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
)

// maxBody is how much of a request's body is read. ECS's own limit for
// parameters is far below.
const maxBody = 1 << 20

// ServeHTTP answers the API at / and the metadata service of the instance that
// the header X-Sim-Instance names at /latest/. admin.Handler adds the admin API.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/" && !strings.HasPrefix(req.URL.Path, metadataRoot) {
		http.Error(w, "The API is at /, the metadata service at "+metadataRoot+" and the simulator's own, if it has one, at /_sim/.", http.StatusNotFound)
		return
	}
	s.answer(w, req, "")
}

// answer answers a request that came over a connection; instance is the one
// whose metadata service it came to, if that has a listener of its own.
func (s *Server) answer(w http.ResponseWriter, req *http.Request, instance string) {
	s.countConnection(req.Context())
	m, err := readMessage(req, instance)
	if err != nil {
		http.Error(w, "The body can't be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	s.answerMessage(w, req, m)
}

func (s *Server) answerMessage(w http.ResponseWriter, req *http.Request, m message) {
	r, err := s.serve(req.Context(), m)
	if err != nil || r.lost {
		hangUp(w, r)
		return
	}
	header := w.Header()
	for name, values := range s.header(r) {
		header[name] = values
	}
	w.WriteHeader(r.status)
	if r.over > 0 {
		_ = http.NewResponseController(w).Flush() // a caller that has gone is told nothing
		_, _ = io.Copy(flushing{w}, s.trickle(req.Context(), r))
		return
	}
	_, _ = w.Write(r.body)
	_, _ = io.Copy(w, r.blanks())
}

// hangUp ends a connection without a word: a reset if the fault says so,
// otherwise its end.
func hangUp(w http.ResponseWriter, r reply) {
	if r.how != 0 {
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
	m, err := readMessage(req, instance)
	if err != nil {
		return nil, err
	}
	return s.roundTripMessage(req, m)
}

func (s *Server) roundTripMessage(req *http.Request, m message) (*http.Response, error) {
	r, err := s.serve(req.Context(), m)
	if err != nil {
		return nil, err
	}
	switch {
	case r.how == syscall.ECONNREFUSED:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: r.how}
	case r.how != 0:
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: r.how}
	case r.lost:
		return nil, io.EOF
	}
	body := io.NopCloser(bytes.NewReader(r.body))
	if r.over > 0 {
		body = s.trickle(req.Context(), r)
	}
	if r.flood > 0 {
		body = io.NopCloser(io.MultiReader(body, r.blanks()))
	}
	return &http.Response{
		Status: strconv.Itoa(r.status) + " " + http.StatusText(r.status), StatusCode: r.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: s.header(r), Body: body, ContentLength: int64(len(r.body)) + r.flood, Request: req,
	}, nil
}

func (s *Server) header(r reply) http.Header {
	h := http.Header{}
	h.Set("Date", s.clock.now().Add(r.skew).UTC().Format(http.TimeFormat))
	h.Set("Content-Type", r.contentType)
	h.Set("Content-Length", strconv.FormatInt(int64(len(r.body))+r.flood, 10))
	if r.requestID == "" {
		return h // it is not the API's
	}
	h.Set("X-Acs-Request-Id", r.requestID)
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	return h
}

// readMessage takes a request off the wire and closes its body.
func readMessage(req *http.Request, instance string) (message, error) {
	m := message{
		method: req.Method, host: req.Host, path: req.URL.Path, query: req.URL.RawQuery, agent: req.UserAgent(),
		header: map[string]string{}, instance: instance,
	}
	if m.host == "" {
		m.host = req.URL.Host
	}
	for name, values := range req.Header {
		m.header[strings.ToLower(name)] = strings.Join(values, ",")
	}
	m.header["host"] = m.host
	if m.instance == "" {
		m.instance = m.header[instanceHeader]
	}
	if req.Body == nil {
		return m, nil
	}
	defer func() { _ = req.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err != nil {
		return message{}, err
	}
	if m.cut = len(body) > maxBody; m.cut {
		return m, nil
	}
	m.body = string(body)
	kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if kind == "application/x-www-form-urlencoded" {
		m.form = m.body
	}
	return m, nil
}
