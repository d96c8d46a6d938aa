package collect

import (
	"net/http"
	"sync"
	"time"
)

// clock learns from the API server's answers how far its clock is ahead of the reader's.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// leastOffset is how much the clocks must differ to be told apart: an answer tells the second, and travels for a while.
const leastOffset = 5 * time.Second

// wrap returns a transport from whose answers the clock learns.
func (c *clock) wrap(next http.RoundTripper) http.RoundTripper { return dated{c, next} }

// offset returns how far the API server's clock is ahead, and 0 if that isn't known.
func (c *clock) offset() time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead.Abs() < leastOffset {
		return 0
	}
	return c.ahead
}

type dated struct {
	clock *clock
	next  http.RoundTripper
}

func (d dated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := d.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		ahead := time.Until(at)
		d.clock.mu.Lock()
		d.clock.ahead = ahead
		d.clock.mu.Unlock()
	}
	return response, nil
}
