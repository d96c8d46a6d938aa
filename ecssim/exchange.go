package ecssim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// exchange is one request on its way through the server, and its reply.
type exchange struct {
	requestID string
	host      string
	agent     string
	arrived   time.Time
	at        time.Time // when it takes effect
	answerAt  time.Time // when its reply is sent
	now       time.Time // the time as the action sees it

	wire.Input
	header  map[string]string
	action  action
	fault   faults.Fault
	refusal *wire.Refusal
	settled bool            // its reply is final
	again   bool            // a fault made it take effect once more
	stopped bool            // the gateway refused it: no action has seen it
	disk    string          // the request's DiskId, or the one disk that its list names
	stamp   string          // the time that it is signed for
	caller  *wire.AccessKey // who signed it; nil if the action takes no signature
	denial  wire.Object     // what the reply says of a permission that is lacking
	blind   bool            // the caller sees nothing of what a read finds
	stale   bool            // a read shows what was at now, which is past
	plain   bool            // the reply is text, not JSON
	text    string          // of a plain reply
	silent  bool            // there is no reply
	token   *tokenKey       // that the request bound
	takes   time.Duration   // from the effect to the reply
	extra   time.Duration   // what the action adds to that
	ends    time.Time       // when the change that it began is over; zero if it began none
	reply   wire.Reply
}

// findAction looks the action up.
func (x *exchange) findAction(m wire.Message) *wire.Refusal {
	name, version := x.ActionName(m)
	if name == "" {
		return wire.Missing("Action")
	}
	a, ok := actions[name]
	if !ok || a.version != version || version == versionMetadata {
		return wire.Refuse(404, "InvalidAction.NotFound", "Specified api is not found: Action %q of Version %q.", name, version)
	}
	x.action = a
	return nil
}

// checkRequired refuses a request that lacks a mandatory parameter.
func (x *exchange) checkRequired() *wire.Refusal {
	for _, name := range x.action.required {
		prefix, isList := strings.CutSuffix(name, ".N")
		if x.Params[name] != "" || isList && x.Params.HasList(prefix) {
			continue
		}
		no := wire.Missing(name)
		if own, ok := x.action.absent[name]; ok {
			no.Status, no.Code = own.Status, own.Code
		}
		return no
	}
	return nil
}

// checkEmpty refuses an empty value that the action does not take.
func (x *exchange) checkEmpty() *wire.Refusal {
	for _, name := range slices.Sorted(maps.Keys(x.action.notEmpty)) {
		if value, is := x.Sent[name]; is && value == "" {
			no := x.action.notEmpty[name]
			return &no
		}
	}
	return nil
}

// ignored is the reply to a change that is said to be made and is not.
func (x *exchange) ignored() wire.Object {
	if x.action.name == resizeDisk.name {
		return wire.Object{"OrderId": "20" + strings.ToLower(x.requestID[:8])}
	}
	return nil
}

// unknown returns the parameters that the action does not take, with N for
// the numbers in their names.
func (x *exchange) unknown() []string {
	var names []string
	for name := range x.Sent {
		name = wire.Numbered(name)
		if !x.action.takes(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// product returns the product of the action as Recommend spells it.
func (x *exchange) product() string {
	if x.action.version == versionSTS {
		return "Sts"
	}
	return "Ecs"
}

// render makes the reply: of the action, or of its refusal.
func (x *exchange) render(body wire.Object) wire.Reply {
	switch {
	case x.refusal != nil:
		return x.renderRefusal(x.refusal)
	case x.plain:
		return wire.TextReply(200, x.text)
	}
	return x.envelope().Success(body)
}

// renderRefusal makes the reply of a refusal.
func (x *exchange) renderRefusal(no *wire.Refusal) wire.Reply {
	if x.plain {
		return wire.TextReply(no.Status, no.Message)
	}
	return x.envelope().Refused(no, x.denial)
}

func (x *exchange) envelope() wire.Envelope {
	return wire.Envelope{RequestID: x.requestID, Host: x.host, Product: x.product(), Action: x.action.name, Format: x.Format}
}
