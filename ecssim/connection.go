package ecssim

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

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
