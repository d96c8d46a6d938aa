package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/internal/sleep"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// newStore returns the journal of the driver's provisioner.
func newStore(client kubernetes.Interface, metadata metadata.Interface, config Config, commits func()) *journal.Store {
	return journal.New(client, metadata, config.Namespace, request.JournalName(config.DriverName), commits)
}

// recoverRequests has the requests of the journal repeated.
func (c *Controller) recoverRequests(ctx context.Context) error {
	if c.journal == nil {
		return nil
	}
	requests, err := c.readJournal(ctx)
	if err != nil {
		return err
	}
	for _, r := range requests {
		c.recover(r)
	}
	return nil
}

// recover has a request repeated until its outcome is known, unless its volume is saved already.
func (c *Controller) recover(r *request.Request) {
	saved, err := watch.VolumesOfClaim(c.caches.Volumes.GetIndexer(), r.Claim.UID)
	if err == nil && slices.ContainsFunc(saved, r.IsSavedAs) {
		c.journal.Delete(string(r.Claim.UID))
		c.protection.Recheck(r.Claim)
		return
	}
	klog.InfoS("Repeating a request of an earlier process", "volume", r.Create.Name, "claim", klog.KObj(r.Claim))
	c.protection.Recover(r.Claim)
	c.claims.Recover(r)
}

// readJournal retries until the journal is read, or for recoveryLimit.
func (c *Controller) readJournal(ctx context.Context) ([]*request.Request, error) {
	for {
		requests, _, err := readRequests(ctx, c.journal)
		if end := c.noteRecovery(stepJournal, err); end != nil || err == nil {
			return requests, end
		}
		if err := sleep.For(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// readRequests returns the requests of the journal, and the number of records of a later
// version, which are kept.
func readRequests(ctx context.Context, s *journal.Store) (requests []*request.Request, unknown int, err error) {
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
		requests = append(requests, r)
	}
	return requests, unknown, nil
}

// keepJournal commits the journal until stop is called. It ends ctx if another process writes the journal.
func (c *Controller) keepJournal(ctx context.Context, end context.CancelCauseFunc) (stop func()) {
	if c.journal == nil {
		return func() {}
	}
	c.journal.OnChange(c.alone, c.journalChanged)
	takenOver := func(err error) { end(fmt.Errorf("%w: %w", leader.ErrLost, err)) }
	c.journal.OnEndRequest(c.claims.EndRequested)
	return inBackground(ctx, func(ctx context.Context) { c.journal.Run(ctx, takenOver) })
}

// alone returns nil if no other process has led until the call.
func (c *Controller) alone(ctx context.Context) error {
	if c.config.AwaitRenewal == nil {
		return nil
	}
	err := c.config.AwaitRenewal(ctx)
	if errors.Is(err, leader.ErrLost) {
		return fmt.Errorf("%w: %w", journal.ErrTakenOver, err)
	}
	return err
}

// journalChanged reports that somebody has changed the journal. A record that appeared is one of an earlier process.
func (c *Controller) journalChanged(change journal.Change) {
	if self := c.config.Self; self != nil {
		c.events.Eventf(self, v1.EventTypeWarning, reasonJournalChanged,
			"somebody has changed ConfigMap %s/%s, which only the leader may write: %d records were removed, %d altered and %d added; the first two are written again",
			c.config.Namespace, change.ConfigMap, change.Removed, change.Altered, len(change.Appeared))
	}
	for claim, record := range change.Appeared {
		r, err := request.Decode(record)
		if err != nil {
			c.journal.Keep(claim, err)
			continue
		}
		c.recover(r)
	}
}
