package nodefacts

import (
	"context"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// How long a silent holder is waited for, and how it renews.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

var notInName = regexp.MustCompile(`[^a-z0-9-]`)

// leaseName is the name of the Lease of a CSI driver's node facts.
func leaseName(driver string) string {
	return "topodisk-node-facts-" + notInName.ReplaceAllString(strings.ToLower(driver), "-")
}

// lead does the work whenever this process holds the Lease, until ctx ends.
// Two replicas of different versions must not write in turn what each thinks
// right. A last write after the Lease was lost does no harm: it says what was
// so a moment ago, and the next holder looks at every Node.
func (p *Publisher) lead(ctx context.Context, work func(context.Context)) {
	host, err := os.Hostname()
	if err != nil {
		klog.ErrorS(err, "This machine has no name; the Lease goes by a number alone")
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, p.config.Namespace, leaseName(p.config.Driver),
		p.client.CoreV1(), p.client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()})
	if err != nil {
		klog.ErrorS(err, "Node facts are not published")
		return
	}
	for ctx.Err() == nil {
		if err := p.leadOnce(ctx, lock, work); err != nil {
			klog.ErrorS(err, "Node facts are not published")
			return
		}
	}
}

// leadOnce waits for the Lease, and does the work until the Lease is lost.
func (p *Publisher) leadOnce(ctx context.Context, lock resourcelock.Interface, work func(context.Context)) error {
	leading := make(chan context.Context)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true, Name: lock.Describe(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				select {
				case leading <- held:
				case <-held.Done():
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(ctx)
	}()
	select {
	case held := <-leading:
		klog.InfoS("Publishing node facts", "lease", lock.Describe())
		work(held)
	case <-ended:
	}
	<-ended
	return nil
}
