package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Await polls until check reports true. check's error is no end but the reason that is shown when the limit is reached.
// A program of the lab that ends by itself ends the wait at once, with the end of its log.
func (l *Lab) Await(ctx context.Context, what string, limit time.Duration, check func(context.Context) (bool, error)) error {
	return l.processes.await(ctx, what, limit, check)
}

func (p *Processes) await(ctx context.Context, what string, limit time.Duration, check func(context.Context) (bool, error)) error {
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	const poll = 50 * time.Millisecond
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var last error
	for {
		ok, err := check(limited)
		switch {
		case ok && err == nil:
			return nil
		case err != nil && limited.Err() == nil:
			last = err
		}
		if err := p.ended(); err != nil {
			return fmt.Errorf("await %s: %w", what, err)
		}
		select {
		case <-tick.C:
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("await %s: %w", what, errors.Join(context.Cause(ctx), last))
			}
			if last == nil {
				return fmt.Errorf("not so after %s: %s", time.Since(begin).Round(time.Second), what)
			}
			return fmt.Errorf("not so after %s: %s: %w", time.Since(begin).Round(time.Second), what, last)
		}
	}
}
