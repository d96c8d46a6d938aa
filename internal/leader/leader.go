// Package leader elects the one replica that works, with a Lease: the next one takes
// over as soon as the Lease is released or has expired.
package leader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// ErrLost says that another replica may be at work: this one must end at once.
var ErrLost = errors.New("the lease is lost")

// Lease is one Lease by which replicas agree on who works.
type Lease struct {
	Namespace, Name                           string
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	Labels                                    map[string]string // of the Lease object

	health  *leaderelection.HealthzAdaptor
	renewed atomic.Pointer[time.Time]                // when the last renewal that succeeded was sent; nil while the Lease isn't held
	refused atomic.Pointer[error]                    // why the last renewal failed; nil if it didn't
	expired atomic.Pointer[coordinationv1.LeaseSpec] // what nobody has renewed for its duration, as watched; nil for none
}

// Reference names the Lease, for events.
func (l *Lease) Reference() *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: l.Namespace, Name: l.Name}
}

// Check is the health check of /healthz/leader-election: a leader that cannot
// renew its Lease is unhealthy.
func (l *Lease) Check(r *http.Request) error {
	if l.health == nil {
		return nil
	}
	return l.health.Check(r)
}

// WatchHealth makes Check work. It is called before the check is served.
func (l *Lease) WatchHealth() { l.health = leaderelection.NewLeaderHealthzAdaptor(20 * time.Second) }

// Held returns ErrLost if the Lease was not renewed within RenewDeadline:
// by then another replica may be about to take it. It asks nobody.
func (l *Lease) Held() error {
	renewed := l.renewed.Load()
	if renewed == nil {
		return l.withReason(fmt.Errorf("%w: it is not held", ErrLost))
	}
	if ago := time.Since(*renewed); ago > l.RenewDeadline {
		return l.withReason(fmt.Errorf("%w: it was renewed %s ago, and nothing is begun after %s", ErrLost, ago.Round(time.Second), l.RenewDeadline))
	}
	return nil
}

// renewalPoll is the time between two looks whether the Lease was renewed.
const renewalPoll = 100 * time.Millisecond

// AwaitRenewal returns nil once a renewal has succeeded that was sent after the call: no other replica has held the Lease in between.
// It returns ErrLost if one may hold it.
func (l *Lease) AwaitRenewal(ctx context.Context) error {
	called := time.Now()
	for {
		if err := l.Held(); err != nil {
			return err
		}
		if renewed := l.renewed.Load(); renewed != nil && renewed.After(called) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the lease was not renewed meanwhile: %w", context.Cause(ctx))
		case <-time.After(renewalPoll):
		}
	}
}

// withReason returns an error with the reason why the last renewal failed, if it did.
func (l *Lease) withReason(err error) error {
	if refused := l.refused.Load(); refused != nil {
		return fmt.Errorf("%w; the last renewal failed: %w", err, *refused)
	}
	return err
}

// IsReplica says whether a Lease's holder is a process that has it by RunWhileHeld: HOST_UUID. The holder by csi-lib-utils, which
// Kubernetes' sidecars use, is the host's name, and that has no underscore.
func IsReplica(holder string) bool { return strings.Contains(holder, "_") }

// RunWhileHeld waits for the Lease, runs work until ctx ends and work has
// returned, gives the Lease back, and returns work's error. As soon as the Lease
// is lost it ends work's context and returns ErrLost, without waiting for work.
func (l *Lease) RunWhileHeld(ctx context.Context, client kubernetes.Interface, work func(context.Context) error) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	inner, err := resourcelock.NewWithLabels(resourcelock.LeasesResourceLock, l.Namespace, l.Name, client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: hostname + "_" + uuid.NewString()}, l.Labels)
	if err != nil {
		return err
	}
	lock := &timedLock{Interface: inner, lease: l}
	waitCtx, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	free := l.watchEnd(waitCtx, client)
	for {
		led, err := l.stand(ctx, lock, free, work)
		if led || err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// stand waits for the Lease by asking for it every RetryPeriod, and runs work
// once it is held. It returns false if the Lease was given back or has expired
// meanwhile, for who stands anew asks at once.
func (l *Lease) stand(ctx context.Context, lock *timedLock, free <-chan struct{}, work func(context.Context) error) (led bool, err error) {
	electionCtx, release := context.WithCancel(context.WithoutCancel(ctx)) // held until work has returned
	defer release()
	workCtx, end := context.WithCancelCause(ctx)
	defer end(ErrLost)
	var turn turn
	done := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: l.LeaseDuration, RenewDeadline: l.RenewDeadline, RetryPeriod: l.RetryPeriod,
		WatchDog: l.health, Name: l.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				if !turn.begin() {
					return
				}
				klog.InfoS("Leading", "lease", l.Namespace+"/"+l.Name, "identity", lock.Identity())
				done <- work(workCtx)
				release()
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { klog.InfoS("Leader", "identity", identity) },
		},
	})
	if err != nil {
		return false, err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		case <-free:
		}
		if turn.forgo() {
			release()
		}
	}()
	elector.Run(electionCtx)
	if electionCtx.Err() != nil && elector.IsLeader() {
		lock.giveBack(context.WithoutCancel(ctx))
	}
	if turn.forgo() {
		return false, nil // never led
	}
	select {
	case err := <-done:
		return true, err
	default:
		l.renewed.Store(nil)
		return true, l.withReason(ErrLost)
	}
}

// turn is taken or forgone, once.
type turn struct {
	mu            sync.Mutex
	begun, forgon bool
}

// begin takes the turn unless it was forgone.
func (t *turn) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = !t.forgon
	return t.begun
}

// forgo gives the turn up unless it was taken.
func (t *turn) forgo() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgon = !t.begun
	return t.forgon
}

// timedLock notes when the Lease was last renewed, by the time of the request
// and not of its answer: the API server may have had it long before.
type timedLock struct {
	resourcelock.Interface
	lease *Lease
}

// Get shows a Lease that has expired as one that was given back: this process has
// watched it for long enough, and whoever takes it does so only in the version
// that it has got here. The elector itself looks at it too seldom to know.
func (t *timedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := t.Interface.Get(ctx)
	if err != nil {
		t.noteRefusal(err)
		return record, raw, err
	}
	old := t.lease.expired.Load()
	if old != nil && old.RenewTime.Equal(&metav1.MicroTime{Time: record.RenewTime.Time}) && ptr.Deref(old.HolderIdentity, "") == record.HolderIdentity {
		record.HolderIdentity = ""
	}
	return record, raw, nil
}

// Create takes a Lease that does not exist yet.
func (t *timedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.note(record, func() error { return t.Interface.Create(ctx, record) })
}

// Update takes or renews the Lease.
func (t *timedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.note(record, func() error { return t.Interface.Update(ctx, record) })
}

// giveBack gives the Lease back, as client-go's elector would with ReleaseOnCancel: but that one goes by whom it saw hold
// the Lease last, and so clears one that another replica has taken meanwhile, and it does so of a lost Lease, too, before
// it says that it is lost.
func (t *timedLock) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.lease.RenewDeadline)
	defer cancel()
	t.lease.renewed.Store(nil)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // a renewal that was cancelled may arrive
		record, _, err := t.Interface.Get(ctx)
		if err != nil || record.HolderIdentity != t.Identity() {
			return err
		}
		now := metav1.Now()
		return t.Interface.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	})
	if err != nil {
		klog.ErrorS(err, "The Lease was not given back; another replica leads once it has expired", "lease", t.lease.Namespace+"/"+t.lease.Name)
	}
}

func (t *timedLock) note(record resourcelock.LeaderElectionRecord, write func() error) error {
	sent := time.Now()
	err := write()
	switch {
	case err != nil:
		t.noteRefusal(err)
	case record.HolderIdentity == t.Identity():
		t.lease.renewed.Store(&sent)
		t.lease.refused.Store(nil)
	}
	return err
}

// noteRefusal keeps why a renewal failed. That the time for it was up says less than the answer of a try before.
func (t *timedLock) noteRefusal(err error) {
	if t.lease.refused.Load() == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.lease.refused.Store(&err)
	}
}

// watchEnd tells when the Lease is given back or expires, so that nobody waits for
// the next time it is asked for. While it can't be watched that is all there is.
func (l *Lease) watchEnd(ctx context.Context, client kubernetes.Interface) <-chan struct{} {
	free := make(chan struct{}, 1)
	go func() {
		options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, l.Name).String()}
		for ctx.Err() == nil {
			if events, err := client.CoordinationV1().Leases(l.Namespace).Watch(ctx, options); err != nil {
				klog.V(2).ErrorS(err, "The Lease can't be watched; it is asked for", "every", l.RetryPeriod)
			} else {
				l.tellEnds(ctx, events, free)
			}
			select {
			case <-ctx.Done():
			case <-time.After(l.RetryPeriod):
			}
		}
	}()
	return free
}

// tellEnds takes a Lease for expired that has not changed, as seen from here, for
// the duration that its holder has set.
func (l *Lease) tellEnds(ctx context.Context, events watch.Interface, free chan<- struct{}) {
	defer events.Stop()
	var watched *coordinationv1.LeaseSpec
	expiry := time.NewTimer(time.Hour)
	expiry.Stop()
	tell := func() {
		select {
		case free <- struct{}{}:
		default:
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-expiry.C:
			l.expired.Store(watched)
			tell()
		case event, open := <-events.ResultChan():
			lease, ok := event.Object.(*coordinationv1.Lease)
			switch {
			case !open:
				return
			case !ok:
			case event.Type == watch.Deleted || ptr.Deref(lease.Spec.HolderIdentity, "") == "":
				expiry.Stop()
				tell()
			case ptr.Deref(lease.Spec.LeaseDurationSeconds, 0) > 0:
				watched = &lease.Spec
				expiry.Reset(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
			}
		}
	}
}
