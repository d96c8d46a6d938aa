//go:build e2e

package e2e

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/lab"
)

// leaseNamespace is that of the installation.
const leaseNamespace = metav1.NamespaceSystem

// leaseName is that of csi-provisioner's Lease: the driver's name.
var leaseName = request.ObjectName(lab.DriverName)

// reign is the time in which one process led.
type reign struct {
	holder string
	from   time.Time
}

// leaders are those who have held the Lease of provisioners, in their order.
type leaders struct {
	watch  watch.Interface
	before reign // the one that is not over yet
	ended  chan struct{}

	mu     sync.Mutex
	reigns []reign
}

// followLeaders notes who holds the Lease until the test is over, from who takes it next.
func (s *scene) followLeaders() *leaders {
	s.Helper()
	api := s.Client.CoordinationV1().Leases(leaseNamespace)
	var lease *coordinationv1.Lease
	s.WaitFor("somebody leads", soon, func(ctx context.Context) (bool, error) {
		var err error
		lease, err = api.Get(ctx, leaseName, metav1.GetOptions{})
		return err == nil && reignOf(lease).holder != "", err
	})
	w, err := lab.FollowFrom(context.Background(), lease.ResourceVersion, func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.FieldSelector = "metadata.name=" + leaseName
		return api.Watch(ctx, options)
	})
	s.Must(err)
	l := &leaders{watch: w, before: reignOf(lease), ended: make(chan struct{})}
	go l.follow()
	s.Cleanup(func() {
		w.Stop()
		<-l.ended
	})
	return l
}

func (l *leaders) follow() {
	defer close(l.ended)
	for event := range l.watch.ResultChan() {
		if lease, ok := event.Object.(*coordinationv1.Lease); ok {
			l.note(reignOf(lease))
		}
	}
}

// newAfter is how long a provisioner has to lead until it knows of a claim made then that nobody else has asked for its
// disk: creation times are whole seconds, and clocks may differ by two. Of others the driver looks for a disk first.
const newAfter = 4 * time.Second

// awaitLeaderForNewClaims returns when whoever leads has led for so long.
func (s *scene) awaitLeaderForNewClaims() {
	s.Helper()
	s.WaitFor("a leader that knows new claims", soon, func(ctx context.Context) (bool, error) {
		lease, err := s.Client.CoordinationV1().Leases(leaseNamespace).Get(ctx, leaseName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		r := reignOf(lease)
		return r.holder != "" && time.Since(r.from) > newAfter, nil
	})
}

// sellOut leaves nothing in a zone, for claims whose refusal the provisioner knows to be final at once.
func (s *scene) sellOut(zone string) {
	s.Helper()
	s.awaitLeaderForNewClaims()
	s.Must(s.Simulator.SellOut(s.Context(), zone))
}

// reignOf is who holds the Lease, since when; nobody has no name.
func reignOf(lease *coordinationv1.Lease) reign {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	return reign{holder, ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}).Time}
}

func (l *leaders) note(r reign) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.reigns)
	switch {
	case r.holder == "" || n > 0 && l.reigns[n-1].holder == r.holder:
	case n == 0 && r.holder == l.before.holder && r.from.Equal(l.before.from): // it is only renewed
	default:
		l.reigns = append(l.reigns, r)
	}
}

// list returns the reigns so far.
func (l *leaders) list() []reign {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]reign(nil), l.reigns...)
}
