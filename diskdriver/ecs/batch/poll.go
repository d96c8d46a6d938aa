package batch

import (
	"context"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
)

// Poll reads a thing again and again until seen is done with it or has an error,
// and returns it as it was seen last; all who wait share calls. The pauses are
// those between two reads; the last one is repeated. NotFound: as many reads in a
// row as there are pauses didn't show it. Pending: ctx leaves no more time than to
// answer; late says what is waited for. A read that ECS throttles or doesn't answer
// ends nothing, nor do fewer than mostRefusals in a row that it refuses.
func (r *Reader[K, V]) Poll(ctx context.Context, id K, pauses []time.Duration, seen func(V) (done bool, err error), late func(last V) string) (V, error) {
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	var last V
	for reads, absent, refused := 0, 0, 0; ; reads++ {
		got, err := r.Once(limited, id)
		if err == nil && !got.Found {
			err = r.NotFound(id)
		}
		switch {
		case err == nil:
			absent, refused, last = 0, 0, got.Value
			if done, err := seen(last); done || err != nil {
				return last, err
			}
		case disk.KindOf(err) == disk.NotFound:
			refused = 0
			if absent++; absent >= len(pauses) {
				return last, err
			}
		case !isTransient(err):
			if refused++; refused >= mostRefusals {
				return last, err
			}
		}
		select {
		case <-time.After(pauses[min(reads, len(pauses)-1)]):
		case <-limited.Done():
			return last, r.failed(disk.Pending, "%s", late(last))
		}
	}
}

// isTransient says whether an error is one that a later read may not have.
func isTransient(err error) bool {
	switch disk.KindOf(err) {
	case disk.Throttled, disk.Unreachable, disk.Pending:
		return true
	}
	return false
}
