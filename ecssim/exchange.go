package ecssim

import (
	"time"

	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// exchange is one request on its way through the server, and its reply.
type exchange struct {
	actions.Request
	host     string
	agent    string
	arrived  time.Time
	answerAt time.Time // when its reply is sent
	refusal  *wire.Refusal
	settled  bool        // its reply is final
	again    bool        // a fault made it take effect once more
	stopped  bool        // the gateway refused it: no action has seen it
	stamp    string      // the time that it is signed for
	denial   wire.Object // what the reply says of a permission that is lacking
	reply    wire.Reply
}

// render makes the reply: of the action, or of its refusal.
func (x *exchange) render(body wire.Object) wire.Reply {
	switch {
	case x.refusal != nil:
		return x.renderRefusal(x.refusal)
	case x.Plain:
		return wire.TextReply(200, x.Text)
	}
	return x.envelope().Success(body)
}

// renderRefusal makes the reply of a refusal.
func (x *exchange) renderRefusal(no *wire.Refusal) wire.Reply {
	if x.Plain {
		return wire.TextReply(no.Status, no.Message)
	}
	return x.envelope().Refused(no, x.denial)
}

func (x *exchange) envelope() wire.Envelope {
	return wire.Envelope{RequestID: x.RequestID, Host: x.host, Product: x.Product(), Action: x.Action.Name, Format: x.Format}
}
