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

// An attempt that is made while the driver, its plugin on the selected node or the
// leader is being replaced fails, and the next one succeeds. The event of such a
// failure is written only if the failure persists.

const (
	// transientPeriod is how long a failure persists before its event is written: the
	// driver is back sooner from a restart or an upgrade.
	transientPeriod = 15 * time.Second
	// maxTransientFailures bounds the claims whose last transient failure is remembered.
	maxTransientFailures = 4096
)

// transientFailures remembers which claims fail for a reason that ends by itself.
type transientFailures struct {
	mu       sync.Mutex
	failures *lru.Cache // claim UID -> transientFailure
	now      func() time.Time
}

// transientFailure is the last transient failure of a claim.
type transientFailure struct {
	since   time.Time
	message string // with which its event ends
	over    bool
}

func newTransientFailures(now func() time.Time) *transientFailures {
	return &transientFailures{failures: lru.New(maxTransientFailures), now: now}
}

// record notes how an attempt for the claim has ended, before its event is made.
func (t *transientFailures) record(claim types.UID, outcome Outcome, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	failure, ok := t.find(claim)
	switch {
	case outcome != Reschedule && isTransient(err):
		if !ok || failure.over {
			failure.since = t.now()
		}
		t.failures.Add(claim, transientFailure{since: failure.since, message: err.Error()})
	case ok:
		failure.over = true
		t.failures.Add(claim, failure)
	}
}

// find returns the last transient failure of a claim. t.mu is held.
func (t *transientFailures) find(claim types.UID) (transientFailure, bool) {
	known, _ := t.failures.Get(claim)
	failure, ok := known.(transientFailure)
	return failure, ok
}

// failureOf returns the transient failure that an event is about.
func (t *transientFailures) failureOf(event *v1.Event) (transientFailure, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	failure, ok := t.find(event.InvolvedObject.UID)
	return failure, ok && strings.HasSuffix(event.Message, failure.message)
}

// persists says whether the claim has failed without a break since then.
func (t *transientFailures) persists(claim types.UID, since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	failure, ok := t.find(claim)
	return ok && !failure.over && failure.since.Equal(since)
}

// isDeferred says whether the event is about a failure that may be transient, and writes
// it later if the failure persists, with no further attempt.
func (f *eventFold) isDeferred(event *v1.Event) bool {
	failure, ok := f.transient.failureOf(event)
	left := transientPeriod - event.LastTimestamp.Sub(failure.since)
	if !ok || left <= 0 {
		return false
	}
	event = event.DeepCopy()
	event.ResourceVersion = ""
	time.AfterFunc(left, func() {
		if !f.transient.persists(event.InvolvedObject.UID, failure.since) || !f.memory.isDue(event) {
			return
		}
		if _, err := f.CreateWithEventNamespaceWithContext(context.Background(), event); err != nil {
			f.memory.wasNotWritten(event)
			klog.ErrorS(err, "A deferred event can't be written", "namespace", event.Namespace, "claim", event.InvolvedObject.Name, "event", event.Message)
		}
	})
	return true
}
