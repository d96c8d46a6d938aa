package main

import (
	"context"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// idleTime is how long no request has come before memory is given back.
const idleTime = 2 * time.Second

// memory gives memory back to the operating system after a load. The runtime
// keeps it for the next one for minutes.
type memory struct{ requests atomic.Int64 }

// count counts the requests that a handler gets.
func (m *memory) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.requests.Add(1)
		next.ServeHTTP(w, r)
	})
}

// giveBack gives memory back, once after each load, until ctx is done.
func (m *memory) giveBack(ctx context.Context) {
	tick := time.NewTicker(idleTime)
	defer tick.Stop()
	var seen, freed int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := m.requests.Load()
		if now == seen && now != freed {
			runtime.GC() // so that the next collection empties the pools
			debug.FreeOSMemory()
			freed = now
		}
		seen = now
	}
}
