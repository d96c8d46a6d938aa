package ecssim

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// message is a request as it came off the wire.
type message struct {
	method string
	host   string
	query  string // raw
	path   string
	body   string
	form   string // the body if it is a form, else empty
	cut    bool   // the body was longer than maxBody, and is not here
	agent  string
	header map[string]string // by lower-case name, host among them
	// instance is the one whose metadata service the request came to.
	instance string
}

// exchange is one request on its way through the server, and its reply.
type exchange struct {
	requestID string
	host      string
	agent     string
	arrived   time.Time
	at        time.Time // when it takes effect
	answerAt  time.Time // when its reply is sent
	now       time.Time // the time as the action sees it

	header  map[string]string
	all     parameters // as sent
	sent    parameters // without those of the protocol
	params  parameters // without those that an empty value makes absent
	format  format     // of the reply
	action  action
	fault   Fault
	refusal *refusal
	settled bool          // its reply is final
	again   bool          // a fault made it take effect once more
	stopped bool          // the gateway refused it: no action has seen it
	disk    string        // the request's DiskId, or the one disk that its list names
	stamp   string        // the time that it is signed for
	caller  *accessKey    // who signed it; nil if the action takes no signature
	denial  object        // what the reply says of a permission that is lacking
	blind   bool          // the caller sees nothing of what a read finds
	stale   bool          // a read shows what was at now, which is past
	plain   bool          // the reply is text, not JSON
	text    string        // of a plain reply
	silent  bool          // there is no reply
	token   *tokenKey     // that the request bound
	takes   time.Duration // from the effect to the reply
	extra   time.Duration // what the action adds to that
	ends    time.Time     // when the change that it began is over; zero if it began none
	reply   reply
}

// protocol names the parameters that belong to the protocol and not to an
// action. They carry what authenticates the caller, so none of them is kept.
var protocol = map[string]bool{
	"Action": true, "Version": true, "Format": true, "Timestamp": true, "SignatureMethod": true,
	"SignatureVersion": true, "SignatureType": true, "SignatureNonce": true, "Signature": true,
	"AccessKeyId": true, "SecurityToken": true, "BearerToken": true,
}

// read merges the parameters of query and form; the query wins.
func (x *exchange) read(m message) *refusal {
	x.all, x.sent, x.params = parameters{}, parameters{}, parameters{}
	var wrong *refusal
	for _, raw := range []string{m.form, m.query} {
		if no := x.all.merge(raw); no != nil {
			wrong = no
		}
	}
	for name, value := range x.all {
		if protocol[name] {
			continue
		}
		x.sent[name] = value
		if value != "" || emptyCounts(name) {
			x.params[name] = value
		}
	}
	no := x.readFormat(m)
	switch {
	case m.method != "GET" && m.method != "POST":
		return refuse(403, "UnsupportedHTTPMethod", "This http method %q is not supported: GET or POST.", m.method)
	case m.cut:
		return refuse(400, "InvalidParameter", "The body is too large: at most %d bytes.", maxBody)
	case wrong != nil:
		return wrong
	}
	return no
}

// readFormat reads what the reply is to be written in: what Format says, or
// XML without one. A request signed in headers, or that names its action there,
// gets JSON.
func (x *exchange) readFormat(m message) *refusal {
	wanted, is := x.all["Format"]
	switch {
	case isACS3(m), x.all["Action"] == "" && m.header["x-acs-action"] != "", strings.EqualFold(wanted, "JSON"):
		x.format = formatJSON
	case !is || strings.EqualFold(wanted, "XML"):
		x.format = formatXML
	default:
		x.format = formatXML
		return refuse(400, "InvalidParameter", "The specified parameter Format %q is not valid: JSON or XML.", wanted)
	}
	return nil
}

// findAction looks the action up. Its name and version are in the parameters,
// or in headers if the request is signed there.
func (x *exchange) findAction(m message) *refusal {
	name, version := x.all["Action"], x.all["Version"]
	if name == "" {
		name, version = m.header["x-acs-action"], m.header["x-acs-version"]
	}
	if name == "" {
		return missing("Action")
	}
	a, ok := actions[name]
	if !ok || a.version != version || version == versionMetadata {
		return refuse(404, "InvalidAction.NotFound", "Specified api is not found: Action %q of Version %q.", name, version)
	}
	x.action = a
	return nil
}

// checkRequired refuses a request that lacks a mandatory parameter.
func (x *exchange) checkRequired() *refusal {
	for _, name := range x.action.required {
		prefix, isList := strings.CutSuffix(name, ".N")
		if x.params[name] != "" || isList && x.params.hasList(prefix) {
			continue
		}
		no := missing(name)
		if own, ok := x.action.absent[name]; ok {
			no.status, no.code = own.status, own.code
		}
		return no
	}
	return nil
}

// checkEmpty refuses an empty value that the action does not take.
func (x *exchange) checkEmpty() *refusal {
	for _, name := range slices.Sorted(maps.Keys(x.action.notEmpty)) {
		if value, is := x.sent[name]; is && value == "" {
			no := x.action.notEmpty[name]
			return &no
		}
	}
	return nil
}

// ignored is the reply to a change that is said to be made and is not.
func (x *exchange) ignored() object {
	if x.action.name == resizeDisk.name {
		return object{"OrderId": "20" + strings.ToLower(x.requestID[:8])}
	}
	return nil
}

// canonical returns the action's parameters but the named ones in one string,
// equal for equal parameters alone.
func (x *exchange) canonical(except string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(x.params)) {
		if name == except {
			continue
		}
		b.WriteString(percentEncode(name) + "=" + percentEncode(x.params[name]) + "&")
	}
	return b.String()
}

// unknown returns the parameters that the action does not take, with N for
// the numbers in their names.
func (x *exchange) unknown() []string {
	var names []string
	for name := range x.sent {
		name = numbered(name)
		if !x.action.takes(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
