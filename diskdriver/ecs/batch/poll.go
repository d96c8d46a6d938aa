package batch

import (
	"context"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/deadline"
)

// Poll reads a thing again and again until seen is done with it or has an error,
// and returns it as it was seen last. The pauses are those between two reads; the
// last one is repeated. NotFound: as many reads in a row as there are pauses
// didn't show it. When ctx leaves no more time than to answer, the error is that
// of late. A read that ECS throttles or doesn't answer ends nothing.
func Poll[T any](
	ctx context.Context, pauses []time.Duration, read func(context.Context) (T, error), seen func(T) (done bool, err error), late func(last T) error,
) (T, error) {
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	var last T
	for reads, absent := 0, 0; ; reads++ {
		got, err := read(limited)
		switch {
		case err == nil:
			absent, last = 0, got
			if done, err := seen(got); done || err != nil {
				return got, err
			}
		case disk.KindOf(err) == disk.NotFound:
			if absent++; absent >= len(pauses) {
				return last, err
			}
		case !IsTransient(err):
			return last, err
		}
		select {
		case <-time.After(pauses[min(reads, len(pauses)-1)]):
		case <-limited.Done():
			return last, late(last)
		}
	}
}

// IsTransient says whether an error is one that a later read may not have.
func IsTransient(err error) bool {
	switch disk.KindOf(err) {
	case disk.Throttled, disk.Unreachable, disk.Pending:
		return true
	}
	return false
}
