package provisioner

import (
	"context"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
)

// A claim that comes while the driver, its plugin on the claim's node or the leader
// is being replaced is served a moment later. Its owner is told of the wait only if
// that lasts.

const (
	// tellAfter is how long it lasts then: the driver is back sooner from a restart
	// or an upgrade.
	tellAfter = 15 * time.Second
	// rememberedWaits bounds the claims that are known to wait.
	rememberedWaits = 4096
)

// patience knows which claims wait for what comes by itself.
type patience struct {
	mu    sync.Mutex
	waits *lru.Cache // claim UID -> claimWait
	now   func() time.Time
}

// claimWait is the last wait of a claim.
type claimWait struct {
	since time.Time
	what  string // as it is told
	over  bool
}

func newPatience(now func() time.Time) *patience {
	return &patience{waits: lru.New(rememberedWaits), now: now}
}

// heard notes how an attempt for the claim has ended, before that is told.
func (p *patience) heard(claim types.UID, outcome Outcome, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait, ok := p.waitOf(claim)
	switch {
	case outcome != Reschedule && endsByItself(err):
		if !ok || wait.over {
			wait.since = p.now()
		}
		p.waits.Add(claim, claimWait{since: wait.since, what: err.Error()})
	case ok:
		wait.over = true
		p.waits.Add(claim, wait)
	}
}

// waitOf returns the last wait of a claim. p.mu is held.
func (p *patience) waitOf(claim types.UID) (claimWait, bool) {
	known, _ := p.waits.Get(claim)
	wait, ok := known.(claimWait)
	return wait, ok
}

// toldOf returns the wait that the event tells of.
func (p *patience) toldOf(event *v1.Event) (claimWait, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait, ok := p.waitOf(event.InvolvedObject.UID)
	return wait, ok && strings.HasSuffix(event.Message, wait.what)
}

// isLasting says whether the claim has waited ever since.
func (p *patience) isLasting(claim types.UID, since time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait, ok := p.waitOf(claim)
	return ok && !wait.over && wait.since.Equal(since)
}

// isLeftForLater says whether the event tells of a wait that had not lasted when it
// was made, and writes it once that has, with no further attempt.
func (f *eventFold) isLeftForLater(event *v1.Event) bool {
	wait, ok := f.patience.toldOf(event)
	yet := tellAfter - event.LastTimestamp.Sub(wait.since)
	if !ok || yet <= 0 {
		return false
	}
	event = event.DeepCopy()
	event.ResourceVersion = ""
	time.AfterFunc(yet, func() {
		if !f.patience.isLasting(event.InvolvedObject.UID, wait.since) || !f.memory.isDue(event) {
			return
		}
		if _, err := f.CreateWithEventNamespaceWithContext(context.Background(), event); err != nil {
			f.memory.wasNotWritten(event)
			klog.ErrorS(err, "The event of a wait can't be written", "namespace", event.Namespace, "claim", event.InvolvedObject.Name, "event", event.Message)
		}
	})
	return true
}
