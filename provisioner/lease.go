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

var notInLeaseName = regexp.MustCompile(`[^a-zA-Z0-9-]`)

func (l *Lease) name() string {
	name := notInLeaseName.ReplaceAllString(l.Driver, "-")
	if name[len(name)-1] == '-' {
		name += "X"
	}
	return name
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

// RunWhileHeld waits for the Lease, runs work until ctx ends and work has
// returned, and gives the Lease back. It returns ErrLeaseLost as soon as the
// Lease is lost, without waiting for work.
func (l *Lease) RunWhileHeld(ctx context.Context, client kubernetes.Interface, work func(context.Context)) error {
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
	done := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: l.LeaseDuration, RenewDeadline: l.RenewDeadline, RetryPeriod: l.RetryPeriod,
		ReleaseOnCancel: true, WatchDog: l.health, Name: l.name(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				klog.InfoS("Leading", "lease", l.Namespace+"/"+l.name(), "identity", lock.Identity())
				work(ctx)
				close(done)
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
	case <-done:
		return nil
	default:
	}
	if ctx.Err() != nil && !elector.IsLeader() {
		return nil // never led
	}
	return ErrLeaseLost
}
