// Package wire speaks the protocol of the ECS API, whatever is behind it: it
// reads requests and checks who signed them, and writes replies, pages and
// refusals.
package wire

import (
	"io"
	"mime"
	"net/http"
	"strings"
)

// maxBody is how much of a request's body is read. ECS's own limit for
// parameters is far below.
const maxBody = 1 << 20

// instanceHeader says whose metadata are wanted where one listener serves all.
const instanceHeader = "x-sim-instance"

// Message is a request as it came off the wire.
type Message struct {
	Method string
	Host   string
	query  string // raw
	Path   string
	body   string
	Form   string // the body if it is a form, else empty
	cut    bool   // the body was longer than maxBody, and is not here
	Agent  string
	Header map[string]string // by lower-case name, host among them
	// Instance is the one whose metadata service the request came to: that of
	// the listener, or the one that instanceHeader names.
	Instance string
}

// ReadMessage takes a request off the wire and closes its body.
func ReadMessage(req *http.Request, instance string) (Message, error) {
	m := Message{
		Method: req.Method, Host: req.Host, Path: req.URL.Path, query: req.URL.RawQuery, Agent: req.UserAgent(),
		Header: map[string]string{}, Instance: instance,
	}
	if m.Host == "" {
		m.Host = req.URL.Host
	}
	for name, values := range req.Header {
		m.Header[strings.ToLower(name)] = strings.Join(values, ",")
	}
	m.Header["host"] = m.Host
	if m.Instance == "" {
		m.Instance = m.Header[instanceHeader]
	}
	if req.Body == nil {
		return m, nil
	}
	defer func() { _ = req.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err != nil {
		return Message{}, err
	}
	if m.cut = len(body) > maxBody; m.cut {
		return m, nil
	}
	m.body = string(body)
	kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if kind == "application/x-www-form-urlencoded" {
		m.Form = m.body
	}
	return m, nil
}
