package provisioner

import (
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// Before a leader begins it reads what it must know: caches that are as new as the
// API server's state, and the journal. While that fails nothing is provisioned or
// deleted, so it is said aloud, and another replica gets its turn.

// recoveryLimit is for how long that may fail before a leader gives the Lease up. An
// API server that is away for so long costs it the Lease anyway.
const recoveryLimit = 30 * time.Second

// recoveryTell is how often it is told that caches which were never full still aren't.
const recoveryTell = 10 * time.Second

// ErrCannotRecover says that a leader could not read what it must know to begin.
var ErrCannotRecover = errors.New("what must be known before anything is provisioned can't be read")

// The steps of a recovery.
const (
	stepCaches  = "caches"
	stepJournal = "journal"
)

// recovery knows what keeps a process from its work.
type recovery struct {
	now  func() time.Time
	tell func(step string, err error)

	mu    sync.Mutex
	err   error     // nil while nothing fails
	since time.Time // when err was first met
	leads bool
}

// lead says that the process holds the Lease by now.
func (r *recovery) lead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads, r.err = true, nil
}

// note hears of every attempt of a step: of its error, or of progress. It returns an
// error once the step has failed for too long.
func (r *recovery) note(step string, err error) error {
	since := r.set(err)
	if err == nil {
		return nil
	}
	klog.ErrorS(err, "Nothing is provisioned or deleted yet", "step", step, "for", r.now().Sub(since).Round(time.Second))
	r.tell(step, err)
	if failed := r.now().Sub(since); failed >= recoveryLimit {
		return fmt.Errorf("%w, for %s: %w", ErrCannotRecover, failed.Round(time.Second), err)
	}
	return nil
}

// set notes the state, and returns since when it has been a failure.
func (r *recovery) set(err error) (since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.since = r.now()
	}
	r.err = err
	return r.since
}

// check returns what keeps the process from its work, nil for nothing.
func (r *recovery) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("nothing is provisioned or deleted yet: %w", r.err)
}

// checkLeader returns what keeps a leader from its work, nil for nothing and while
// the process stands by.
func (r *recovery) checkLeader() error {
	r.mu.Lock()
	leads := r.leads
	r.mu.Unlock()
	if !leads {
		return nil
	}
	return r.check()
}

// reasonRecovery is the reason of the event that a process can't begin.
const reasonRecovery = "RecoveryFailed"

// newRecovery tells by an event on the process itself, and by a metric.
func newRecovery(p *Provisioner) *recovery {
	return &recovery{now: p.now, tell: func(step string, err error) {
		p.metrics.recoveryFailures.WithLabelValues(step).Inc()
		if self := p.config.Self; self != nil {
			p.events.Eventf(self, v1.EventTypeWarning, reasonRecovery, "nothing is provisioned or deleted yet: %v", err)
		}
	}}
}

// Recovered returns an error while this process can't read what it must know to
// begin, whether it leads or stands by: it is not ready then.
func (c *Controller) Recovered() error { return c.recovery.check() }
