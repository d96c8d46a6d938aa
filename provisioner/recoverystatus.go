package provisioner

import (
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// A leader begins with a recovery: it waits for caches that are as new as the API
// server's state, and reads the journal. While that fails, nothing is provisioned or
// deleted; so it is reported, and in the end another replica leads.

// recoveryLimit is how long a recovery may fail before a leader releases the Lease. While
// the API server is unavailable for so long, the Lease expires anyway.
const recoveryLimit = 30 * time.Second

// reportInterval is the time between two reports of caches that are not full yet.
const reportInterval = 10 * time.Second

// ErrCannotRecover says that a recovery has failed for recoveryLimit.
var ErrCannotRecover = errors.New("caches or journal can't be read, which must precede provisioning")

// The steps of a recovery.
const (
	stepCaches  = "caches"
	stepJournal = "journal"
)

// recoveryStatus is the state of a process' recovery.
type recoveryStatus struct {
	mu    sync.Mutex
	err   error     // of the last attempt of a step
	since time.Time // of the first error in a row
	leads bool
}

// lead says that the process holds the Lease from now on.
func (r *recoveryStatus) lead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads, r.err = true, nil
}

// noteRecovery records an attempt of a step: its error, or nil after progress. It reports an error by an event on the process itself and by a
// metric, and returns one once the step has failed for recoveryLimit.
func (c *Controller) noteRecovery(step string, err error) error {
	failed := c.recovery.set(err)
	if err == nil {
		return nil
	}
	klog.ErrorS(err, "Nothing is provisioned or deleted yet", "step", step, "for", failed.Round(time.Second))
	c.metrics.recoveryFailures.WithLabelValues(step).Inc()
	if self := c.config.Self; self != nil {
		c.events.Eventf(self, v1.EventTypeWarning, reasonRecovery, "nothing is provisioned or deleted yet: %v", err)
	}
	if failed >= recoveryLimit {
		return fmt.Errorf("%w, for %s: %w", ErrCannotRecover, failed.Round(time.Second), err)
	}
	return nil
}

// set records the error, and returns for how long there has been one.
func (r *recoveryStatus) set(err error) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.since = time.Now()
	}
	r.err = err
	return time.Since(r.since)
}

// check returns whether the process leads, and the error of a recovery that fails.
func (r *recoveryStatus) check() (leads bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		err = fmt.Errorf("nothing is provisioned or deleted yet: %w", r.err)
	}
	return r.leads, err
}

// Recovered returns an error while the recovery of this process fails, whether it leads or
// stands by: it is not ready then.
func (c *Controller) Recovered() error {
	_, err := c.recovery.check()
	return err
}

// Healthy returns an error if this process leads and either can't recover or does not
// work off its queues.
func (c *Controller) Healthy() error {
	if leads, err := c.recovery.check(); leads && err != nil {
		return err
	}
	limit := c.config.ActionTimeout() + time.Minute
	if err := c.claims.CheckLiveness(limit); err != nil {
		return err
	}
	return c.deletion.CheckLiveness(limit)
}
