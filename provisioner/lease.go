package provisioner

import (
	"context"
	"errors"
	"net/http"
	"os"
	"regexp"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// ErrLeaseLost says that another replica may be at work: this one must end at once.
var ErrLeaseLost = errors.New("the lease is lost")

// Lease is one Lease by which replicas agree on who works.
type Lease struct {
	Namespace                                 string
	Driver                                    string // names the Lease as upstream csi-provisioner does
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	health *leaderelection.HealthzAdaptor
}

var notInObjectName = regexp.MustCompile(`[^a-zA-Z0-9-]`)

// objectName makes a name for objects out of a driver's, as csi-provisioner
// makes that of its Lease.
func objectName(driver string) string {
	name := notInObjectName.ReplaceAllString(driver, "-")
	if name[len(name)-1] == '-' {
		name += "X"
	}
	return name
}

func (l *Lease) name() string { return objectName(l.Driver) }

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

// RunWhileHeld waits for the Lease, runs work until ctx ends and work has
// returned, gives the Lease back, and returns work's error. It returns
// ErrLeaseLost as soon as the Lease is lost, without waiting for work.
func (l *Lease) RunWhileHeld(ctx context.Context, client kubernetes.Interface, work func(context.Context) error) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, l.Namespace, l.name(), client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: hostname + "_" + uuid.NewString()})
	if err != nil {
		return err
	}
	electionCtx, release := context.WithCancel(context.WithoutCancel(ctx)) // held until work has returned
	defer release()
	done := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: l.LeaseDuration, RenewDeadline: l.RenewDeadline, RetryPeriod: l.RetryPeriod,
		ReleaseOnCancel: true, WatchDog: l.health, Name: l.name(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				klog.InfoS("Leading", "lease", l.Namespace+"/"+l.name(), "identity", lock.Identity())
				done <- work(ctx)
				release()
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { klog.InfoS("Leader", "identity", identity) },
		},
	})
	if err != nil {
		return err
	}
	stopWaiting := context.AfterFunc(ctx, func() {
		if !elector.IsLeader() {
			release()
		}
	})
	defer stopWaiting()
	elector.Run(electionCtx)
	select {
	case err := <-done:
		return err
	default:
	}
	if ctx.Err() != nil && !elector.IsLeader() {
		return nil // never led
	}
	return ErrLeaseLost
}
