package ecssim

import (
	"context"
	"io"
	"time"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

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
