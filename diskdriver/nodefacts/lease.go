package nodefacts

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/leader"
)

// How long a silent holder is waited for, and how it renews.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

var notInName = regexp.MustCompile(`[^a-z0-9-]`)

// LeaseName is the name of the Lease of a CSI driver's node facts.
func LeaseName(driver string) string {
	return "topodisk-node-facts-" + notInName.ReplaceAllString(strings.ToLower(driver), "-")
}

// lead does the work whenever this process holds the Lease, until ctx ends.
// Two replicas of different versions must not write in turn what each thinks
// right. A last write after the Lease was lost does no harm: it says what was
// so a moment ago, and the next holder looks at every Node.
func (p *Publisher) lead(ctx context.Context, work func(context.Context)) {
	for ctx.Err() == nil {
		lease := &leader.Lease{
			Namespace: p.config.Namespace, Name: LeaseName(p.config.Driver),
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		}
		ended := make(chan struct{})
		err := lease.RunWhileHeld(ctx, p.client, func(held context.Context) error {
			defer close(ended)
			work(held)
			return nil
		})
		switch {
		case errors.Is(err, leader.ErrLost):
			klog.ErrorS(err, "Node facts are published by another replica", "lease", lease.Name)
			<-ended
		case err != nil:
			klog.ErrorS(err, "Node facts are not published")
			return
		}
	}
}
