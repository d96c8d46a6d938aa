package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"syscall"
	"time"
)

// Object is a JSON object of a reply.
type Object map[string]any

// Emptied returns the body of a read with its lists empty.
func (body Object) Emptied() Object {
	for name, value := range body {
		switch v := value.(type) {
		case Object: // a list in its wrapping
			for inner, list := range v {
				if _, ok := list.([]Object); ok {
					v[inner] = []Object{}
				}
			}
		case int:
			if name == "TotalCount" {
				body[name] = 0
			}
		case string:
			if name == "NextToken" {
				body[name] = ""
			}
		}
	}
	return body
}

// Reply is what goes back to the caller, unless Lost is set: then the
// connection is closed without a word.
type Reply struct {
	Status      int
	RequestID   string
	ContentType string
	Body        []byte
	Content     Object // of the body that Encoded writes; nil if body is there already
	root        string // the element that an XML body is; empty for a body in JSON
	Half        bool   // only half of the body is sent
	Lost        bool
	Errno       syscall.Errno // what the caller's side of a lost connection says, if not just its end
	Over        time.Duration // how long the body takes to come
	Skew        time.Duration // by which its Date is off
	Flood       int64         // blanks that follow the body
}

// Refusal is an error as ECS reports it.
type Refusal struct {
	Status  int
	Code    string
	Message string
}

// Refuse returns a refusal.
func Refuse(status int, code, format string, args ...any) *Refusal {
	return &Refusal{status, code, fmt.Sprintf(format, args...)}
}

// Missing is the refusal of a request without a mandatory parameter.
func Missing(name string) *Refusal {
	return Refuse(400, "MissingParameter", "The input parameter %q that is mandatory for processing this request is not supplied.", name)
}

// Format is what replies are written in.
type Format int

const (
	formatJSON Format = iota
	formatXML
)

const jsonType = "application/json;charset=utf-8"

// Envelope is what the replies to a request say besides their bodies.
type Envelope struct {
	RequestID string
	Host      string
	Product   string // as Recommend spells it
	Action    string
	Format    Format
}

// Success makes the reply of a request that was granted.
func (e Envelope) Success(body Object) Reply {
	if body == nil {
		body = Object{}
	}
	return e.reply(200, e.Action+"Response", body)
}

// Refused makes the reply of a request that was refused, in the form of the ECS
// API's error bodies. detail is of a permission that is lacking, else nil.
func (e Envelope) Refused(no *Refusal, detail Object) Reply {
	body := Object{
		"HostId": e.Host, "Code": no.Code, "Message": no.Message,
		"Recommend": "https://api.aliyun.com/troubleshoot?q=" + url.QueryEscape(no.Code) + "&product=" + e.Product + "&requestId=" + e.RequestID,
	}
	if detail != nil {
		body["AccessDeniedDetail"] = detail
	}
	return e.reply(no.Status, "Error", body)
}

// reply makes a reply; root is the element that it is in XML.
func (e Envelope) reply(status int, root string, body Object) Reply {
	body["RequestId"] = e.RequestID
	r := Reply{Status: status, RequestID: e.RequestID, ContentType: jsonType, Content: body}
	if e.Format == formatXML {
		r.ContentType, r.root = xmlType, root
	}
	return r
}

// TextReply makes a reply of plain text, as the metadata service's are.
func TextReply(status int, text string) Reply {
	return Reply{Status: status, ContentType: "text/plain", Body: []byte(text)}
}

// Encoded returns the reply with its body. That takes longer than all else for
// a page of many disks, so it is done when the state is not locked: what is in
// Content belongs to the reply alone.
func (r Reply) Encoded() Reply {
	if r.Content != nil {
		r.Body = EncodeJSON(r.Content)
		if r.root != "" {
			r.Body = encodeXML(r.root, r.Body)
		}
	}
	if r.Half {
		r.Body = r.Body[:len(r.Body)/2]
	}
	return r
}

// Blanks is what follows the body.
func (r Reply) Blanks() io.Reader { return io.LimitReader(blank{}, r.Flood) }

type blank struct{}

func (blank) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// EncodeJSON writes a body.
func EncodeJSON(body Object) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		panic("wire: a reply that is no JSON: " + err.Error()) // bodies hold strings, numbers and truth values only
	}
	return bytes.TrimSpace(text.Bytes())
}

// Wrapped is a list as the RPC style wraps it: {"Disk": [...]}.
func Wrapped[T any](name string, list []T) Object {
	if list == nil {
		list = []T{}
	}
	return Object{name: list}
}

// Each returns f of every row, never nil.
func Each[T, U any](rows []T, f func(T) U) []U {
	list := make([]U, 0, len(rows))
	for _, r := range rows {
		list = append(list, f(r))
	}
	return list
}
