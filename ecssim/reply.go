package ecssim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"syscall"
	"time"
)

// object is a JSON object of a reply.
type object map[string]any

// reply is what goes back to the caller, unless lost is set: then the
// connection is closed without a word.
type reply struct {
	status      int
	requestID   string
	contentType string
	body        []byte
	content     object // of the body that encoded writes; nil if body is there already
	root        string // the element that an XML body is; empty for a body in JSON
	half        bool   // only half of the body is sent
	lost        bool
	how         syscall.Errno // what the caller's side of a lost connection says, if not just its end
	over        time.Duration // how long the body takes to come
	skew        time.Duration // by which its Date is off
	flood       int64         // blanks that follow the body
}

// refusal is an error as ECS reports it.
type refusal struct {
	status  int
	code    string
	message string
}

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

// missing is the refusal of a request without a mandatory parameter.
func missing(name string) *refusal {
	return refuse(400, "MissingParameter", "The input parameter %q that is mandatory for processing this request is not supplied.", name)
}

// format is what replies are written in.
type format int

const (
	formatJSON format = iota
	formatXML
)

const jsonType = "application/json;charset=utf-8"

// render makes the reply of an exchange: its body, or its refusal in the
// form of the ECS API's error bodies.
func (x *exchange) render(body object) reply {
	if x.plain {
		return x.renderText()
	}
	status := 200
	if no := x.refusal; no != nil {
		status = no.status
		body = object{
			"HostId": x.host, "Code": no.code, "Message": no.message,
			"Recommend": "https://api.aliyun.com/troubleshoot?q=" + url.QueryEscape(no.code) + "&product=" + x.product() + "&requestId=" + x.requestID,
		}
		if x.denial != nil {
			body["AccessDeniedDetail"] = x.denial
		}
	} else if body == nil {
		body = object{}
	}
	body["RequestId"] = x.requestID
	r := reply{status: status, requestID: x.requestID, contentType: jsonType, content: body}
	if x.format == formatXML {
		r.contentType, r.root = xmlType, x.root()
	}
	return r
}

// encoded returns the reply with its body. That takes longer than all else for
// a page of many disks, so it is done when the state is not locked: what is in
// content belongs to the reply alone.
func (r reply) encoded() reply {
	if r.content != nil {
		r.body = encodeJSON(r.content)
		if r.root != "" {
			r.body = encodeXML(r.root, r.body)
		}
	}
	if r.half {
		r.body = r.body[:len(r.body)/2]
	}
	return r
}

// blanks is what follows the body.
func (r reply) blanks() io.Reader { return io.LimitReader(blank{}, r.flood) }

type blank struct{}

func (blank) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// root names the element that an XML reply is.
func (x *exchange) root() string {
	if x.refusal != nil {
		return "Error"
	}
	return x.action.name + "Response"
}

func encodeJSON(body object) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		panic("ecssim: a reply that is no JSON: " + err.Error()) // bodies hold strings, numbers and truth values only
	}
	return bytes.TrimSpace(text.Bytes())
}

// renderText makes a reply of plain text, as the metadata service's are.
func (x *exchange) renderText() reply {
	if no := x.refusal; no != nil {
		return reply{status: no.status, contentType: "text/plain", body: []byte(no.message)}
	}
	return reply{status: 200, contentType: "text/plain", body: []byte(x.text)}
}

// product returns the product of the action as Recommend spells it.
func (x *exchange) product() string {
	if x.action.version == versionSTS {
		return "Sts"
	}
	return "Ecs"
}

// wrapped is a list as the RPC style wraps it: {"Disk": [...]}.
func wrapped[T any](name string, list []T) object {
	if list == nil {
		list = []T{}
	}
	return object{name: list}
}

// each returns f of every row, never nil.
func each[T, U any](rows []T, f func(T) U) []U {
	list := make([]U, 0, len(rows))
	for _, r := range rows {
		list = append(list, f(r))
	}
	return list
}
