package provisioner

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/provisioner/journal"
)

// progress notices when nobody takes claims out of the library's queue any
// more, which does not show its length.
type progress struct {
	now func() time.Time

	mu      sync.Mutex
	running bool
	queued  map[types.UID]struct{} // claims by UID, volumes by name, and not looked at since
	moved   time.Time              // when a worker last began or ended something, or the first was queued
}

func newProgress(now func() time.Time) *progress {
	return &progress{now: now, queued: map[types.UID]struct{}{}}
}

// begin says that from now on somebody works.
func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.moved = true, p.now()
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
}

func (p *progress) enqueue(key types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queued) == 0 {
		p.moved = p.now()
	}
	p.queued[key] = struct{}{}
}

// work says that a worker has begun with the key, or ended.
func (p *progress) work(key types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.queued, key)
	p.moved = p.now()
}

// check returns an error if something has been queued for longer than patience
// and no worker has begun or ended anything meanwhile.
func (p *progress) check(patience time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	still := p.now().Sub(p.moved)
	if !p.running || len(p.queued) == 0 || still <= patience {
		return nil
	}
	return fmt.Errorf("%d objects are queued, and for %s no worker has begun or ended one", len(p.queued), still.Round(time.Second))
}

// Healthy returns an error if this process leads and can't begin, or its queues are
// not served.
func (c *Controller) Healthy() error {
	if err := c.recovery.checkLeader(); err != nil {
		return err
	}
	patience := c.p.config.Timeout + saveTimeout + journal.CommitTimeout + time.Minute // longer than any attempt
	if err := c.lib.progress.check(patience); err != nil {
		return err
	}
	return c.reclaimer.progress.check(patience)
}
