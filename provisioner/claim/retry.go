package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
)

// failure says how an attempt ended without a PersistentVolume, and so when the next one begins.
type failure struct {
	kind failureKind
	err  error
	node string // unplaced: which one
	// quiet says that it ends by itself within seconds as a rule, as a restart or an upgrade of the driver does: the claim's owner is told
	// only if it lasts.
	quiet bool
	most  time.Duration // longest pause before the next attempt; 0 for RetryMax
	wait  time.Duration // the pause before the next attempt; 0 for the back-off
}

// failureKind is what is the matter.
type failureKind int

const (
	// failed: another attempt may succeed. It is the kind of what sync does not know.
	failed failureKind = iota
	// invalid: no volume is possible until the claim or its class changes.
	invalid
	// unplaced: the selected node has no zone for the claim.
	unplaced
	// unsent: the driver was not called: it is being replaced, or another process is about to lead.
	unsent
	// unknown: the request may have made a volume, so it is repeated.
	unknown
	// unsaved: the volume is made; its PersistentVolume could not be saved.
	unsaved
	// undeleted: the volume is not needed, and may be deleted or not.
	undeleted
	// siblingFirst: another claim of the Pod is to have its volume before the driver is called.
	siblingFirst
	// held: the volume is made, and is saved once the other claims of the Pod have theirs.
	held
	// reschedules: the claim returns to the scheduler, which selects another node.
	reschedules
	// nodeNotRemoved: it was to return to the scheduler, and the selected node could not be removed yet.
	nodeNotRemoved
)

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// isLike says whether another failure is of the same kind.
func (f *failure) isLike(other *failure) bool {
	return other != nil && f.kind == other.kind && f.node == other.node
}

// awaitsSibling says whether another claim of the Pod is waited for.
func (f *failure) awaitsSibling() bool { return f != nil && (f.kind == siblingFirst || f.kind == held) }

const (
	// notifyAfter is how long quiet failures last before the claim's owner is told.
	notifyAfter = 15 * time.Second
	// longestWait bounds the back-off while the driver is at work on the volume, or while something is waited for that no watch shows.
	longestWait = 20 * time.Second
)

// fail ends an attempt, and returns after what time the next one begins.
func (t *task) fail(err error) time.Duration {
	f, ok := errors.AsType[*failure](err)
	switch {
	case errors.Is(err, errChanged), t.saved() != nil:
		return t.soon()
	case errors.Is(err, errBehind):
		return t.awaitCache()
	case errors.Is(err, errNotOurs):
		return t.awaitChange()
	case !ok:
		f = failureOf(err)
	}
	switch f.kind {
	case siblingFirst, held:
		return t.awaitSibling(f)
	case reschedules:
		return t.reschedule(f)
	}
	return t.retry(f)
}

// awaitCache waits for a watch, and then does without it: a restored API server may have older versions than what it showed before.
func (t *task) awaitCache() time.Duration {
	klog.V(2).InfoS("The cache is behind the API server", "claim", klog.KObj(t.claim), "version", t.version)
	t.version, t.notBefore = "", t.Now().Add(cacheLag)
	return cacheLag
}

// awaitChange waits for a change of the claim or its class.
func (t *task) awaitChange() time.Duration {
	t.failure, t.notBefore = nil, time.Time{}
	t.Objects.Unsubscribe(string(t.uid))
	if t.woken { // the claim has changed since its request was made
		return t.soon()
	}
	return 0
}

// failureOf returns what an error means that sync knows nothing of.
func failureOf(err error) *failure {
	_, full := errors.AsType[*journal.FullError](err)
	switch {
	case full:
		return &failure{kind: failed, err: err, most: longestWait}
	case csiconn.IsNotAsked(err), IsSuperseded(err):
		return &failure{kind: unsent, err: err, quiet: true}
	}
	return &failure{kind: failed, err: err}
}

// IsSuperseded says whether an error says that another process may lead, which goes on with what this one leaves.
func IsSuperseded(err error) bool {
	return errors.Is(err, leader.ErrLost) || errors.Is(err, journal.ErrTakenOver)
}

// retry has the next attempt made after the back-off, or when something changes that the claim waits for.
func (t *task) retry(f *failure) time.Duration {
	t.note(f)
	t.count(f.err)
	if t.isOwnersBusiness(f) {
		t.notify(f)
	}
	t.siblings.wakeSiblings(t.claim)
	t.failures++
	t.notBefore = t.Now().Add(t.pause(f))
	t.Objects.SubscribeError(string(t.uid), t.namespace, f.err, func() { go t.Wake(t.uid) }) // it may be called at once, and the lock is held
	switch {
	case t.request == nil && !t.isWanted():
		return t.forget()
	case t.woken:
		return t.soon()
	}
	return t.restOf(false)
}

// isOwnersBusiness says whether the claim's owner is told of a failure now. A process that ends leaves calls that were cut off to the next one,
// which repeats them, and all that it can't do without the Lease.
func (t *task) isOwnersBusiness(f *failure) bool {
	if f.kind == unknown && t.queue.ShuttingDown() || IsSuperseded(f.err) {
		return false
	}
	return !f.quiet || !t.Now().Before(t.since.Add(notifyAfter))
}

// soon has the claim looked at again at once, after those that wait already.
func (t *task) soon() time.Duration {
	t.woken = true
	t.enqueue(t.uid)
	return 0
}

// note remembers the failure, and since when its kind lasts.
func (t *task) note(f *failure) {
	if !f.isLike(t.failure) {
		t.since = t.Now()
	}
	t.failure = f
}

// count counts an attempt that has ended without a volume.
func (t *task) count(err error) {
	klog.InfoS("Provisioning failed, will retry", "claim", klog.KObj(t.claim), "err", err)
	t.metrics.failed(t.className(), err)
}

// notify tells the claim's owner why there is no volume. Nobody reads events of a claim that is gone, but for those of a volume that may
// exist.
func (t *task) notify(f *failure) {
	if t.isWanted() || t.request != nil {
		t.Events.AnnotatedEventf(t.claim, infoOf(f).Annotations(), v1.EventTypeWarning, ReasonFailed,
			"failed to provision volume with StorageClass %q: %v", t.className(), f.err)
	}
}

func (t *task) className() string {
	if t.request != nil {
		return t.request.Class.Name
	}
	return request.ClassName(t.claim)
}

// pause returns the time until the next attempt.
func (t *task) pause(f *failure) time.Duration {
	if f.wait > 0 {
		return f.wait
	}
	most := t.RetryMax
	if f.most > 0 {
		most = min(most, f.most)
	}
	pause := t.RetryStart
	for range t.failures - 1 {
		if pause *= 2; pause >= most {
			break
		}
	}
	return min(pause, most)
}

// isDue says whether an attempt is to be made now.
func (t *task) isDue() bool { return t.woken || !t.Now().Before(t.notBefore) }

// rest returns the time until the next attempt. The owner of a claim is told of quiet failures in the midst of a long pause, too.
func (t *task) rest() time.Duration { return t.restOf(true) }

func (t *task) restOf(notify bool) time.Duration {
	now := t.Now()
	left := max(t.notBefore.Sub(now), time.Millisecond) // time has passed since it was looked at
	if f := t.failure; f != nil && f.quiet {
		due := t.since.Add(notifyAfter)
		switch {
		case now.Before(due):
			return min(left, due.Sub(now))
		case notify:
			t.notify(f)
		}
	}
	return left
}

// reschedule returns the claim to the scheduler if a node is selected.
func (t *task) reschedule(f *failure) time.Duration {
	node := t.claim.Annotations[request.AnnSelectedNode]
	if node == "" || !t.isWanted() {
		return t.retry(&failure{kind: failed, err: f.err})
	}
	var version string
	err := t.unlocked(func(ctx context.Context) (err error) {
		version, err = t.api.removeSelectedNode(ctx, t.claim, node)
		return err
	})
	switch {
	case !t.isWanted():
		t.siblings.wakeSiblings(t.claim)
		return t.forget()
	case err != nil: // and so the siblings are told
		return t.retry(&failure{kind: nodeNotRemoved, err: fmt.Errorf("%w; the claim can't return to the scheduler yet: %w", f.err, err)})
	}
	t.metrics.rescheduled(f.err)
	t.count(f.err)
	t.notify(f)
	t.siblings.wakeSiblings(t.claim)
	t.version, t.failures = version, 0
	if version == "" { // the claim is gone, which the cache is about to show
		t.failure, t.woken = nil, false
		return t.awaitCache()
	}
	return t.awaitChange()
}
