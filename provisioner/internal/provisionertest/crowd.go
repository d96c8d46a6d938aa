package provisionertest

import "sync/atomic"

// Crowd counts what is under way at the same time.
type Crowd struct{ Now, Most, All atomic.Int32 }

// Enter counts one more, until leave is called.
func (c *Crowd) Enter() (leave func()) {
	now := c.Now.Add(1)
	for most := c.Most.Load(); now > most && !c.Most.CompareAndSwap(most, now); most = c.Most.Load() {
	}
	return func() { c.Now.Add(-1); c.All.Add(1) }
}
