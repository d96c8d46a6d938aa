package provisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// newStore returns the driver's journal.
func newStore(client kubernetes.Interface, metadata metadata.Interface, config Config, commits func()) *journal.Store {
	return journal.New(client, metadata, config.Namespace, journalPrefix+ObjectName(config.DriverName), commits)
}

// journalPrefix begins the names of the journal's ConfigMaps; the driver's name
// and a number follow.
const journalPrefix = "topodisk-journal-"

// takeUp reads the journal and files every order in it that has no PersistentVolume
// yet: it is repeated until its end is known.
func (c *Controller) takeUp(ctx context.Context) error {
	if c.store == nil {
		return nil
	}
	orders, err := c.readJournal(ctx)
	if err != nil {
		return err
	}
	for _, o := range orders {
		saved, err := watch.VolumesOfClaim(c.p.volumes, o.Claim.UID)
		if err == nil && slices.ContainsFunc(saved, o.IsSavedAs) {
			c.store.Delete(string(o.Claim.UID))
			c.p.protection.Recheck(o.Claim)
			continue
		}
		klog.InfoS("A volume was under way when the last process ended", "volume", o.Create.Name, "claim", klog.KObj(o.Claim))
		o.foundAgain = true
		c.p.protection.Recover(o.Claim)
		c.p.journal.file(o)
		c.lib.claims.wake(o.Claim)
	}
	return nil
}

// readJournal reads the journal for as long as it takes, or until that has failed for too long.
func (c *Controller) readJournal(ctx context.Context) ([]*order, error) {
	for {
		orders, _, err := readOrders(ctx, c.store)
		if end := c.recovery.note(stepJournal, err); end != nil || err == nil {
			return orders, end
		}
		if err := sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// readOrders returns all orders of the journal, and how many of its records are
// of another version; those are kept.
func readOrders(ctx context.Context, s *journal.Store) (orders []*order, unknown int, err error) {
	records, err := s.Load(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("the journal can't be read: %w", err)
	}
	for claim, record := range records {
		r, err := request.Decode(record)
		if err != nil {
			s.Keep(claim, err)
			unknown++
			continue
		}
		orders = append(orders, &order{Request: r, unknown: true}) // nobody knows what became of it
	}
	return orders, unknown, nil
}

// keepJournal commits the journal until stop is called; a writer beside this one ends everything.
func (c *Controller) keepJournal(ctx context.Context, end context.CancelCauseFunc) (stop func()) {
	if c.store == nil {
		return func() {}
	}
	journalCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	takenOver := func(err error) { end(fmt.Errorf("%w: %w", leader.ErrLost, err)) }
	c.store.OnEndRequest(c.endRequested)
	go func() { c.store.Run(journalCtx, takenOver); close(done) }()
	return func() { cancel(); <-done }
}

// sleep returns nil after d, or the context's error as soon as ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
