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
	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// newStore returns the journal of the driver's provisioner.
func newStore(client kubernetes.Interface, metadata metadata.Interface, config Config, commits func()) *journal.Store {
	return journal.New(client, metadata, config.Namespace, request.JournalName(config.DriverName), commits)
}

// recoverAttempts recovers the requests of the journal.
func (c *Controller) recoverAttempts(ctx context.Context) error {
	if c.store == nil {
		return nil
	}
	requests, err := c.readJournal(ctx)
	if err != nil {
		return err
	}
	for _, r := range requests {
		c.recover(r)
	}
	c.recovered = requests
	return nil
}

// postGone posts the claims of recovered requests that have gone since: the handlers know nothing of what the caches did not show
// any more when they were registered.
func (c *Controller) postGone() {
	for _, r := range c.recovered {
		if claimWithUID(c.p.claims, r.Claim.Namespace, r.Claim.Name, r.Claim.UID) == nil {
			c.exec.table.Post(r.Claim.UID, attempt.ClaimGone{})
		}
	}
	c.recovered = nil
}

// recover has a request repeated until its outcome is known, unless its volume is saved already.
func (c *Controller) recover(r *request.Request) {
	saved, err := watch.VolumesOfClaim(c.p.volumes, r.Claim.UID)
	if err == nil && slices.ContainsFunc(saved, r.IsSavedAs) {
		c.store.Delete(string(r.Claim.UID))
		c.p.protection.Recheck(r.Claim)
		return
	}
	klog.InfoS("Repeating a request of an earlier process", "volume", r.Create.Name, "claim", klog.KObj(r.Claim))
	c.p.protection.Recover(r.Claim)
	table := c.exec.table
	table.Begin(r.Claim.UID, attempt.Recovered{Request: r})
	if claim := claimWithUID(c.p.claims, r.Claim.Namespace, r.Claim.Name, r.Claim.UID); claim != nil {
		table.Post(r.Claim.UID, attempt.ClaimChanged{Claim: claim})
	} else {
		table.Post(r.Claim.UID, attempt.ClaimGone{})
	}
}

// readJournal retries until the journal is read, or for recoveryLimit.
func (c *Controller) readJournal(ctx context.Context) ([]*request.Request, error) {
	for {
		requests, _, err := readRequests(ctx, c.store)
		if end := c.recovery.note(stepJournal, err); end != nil || err == nil {
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
	if c.store == nil {
		return func() {}
	}
	c.store.OnChange(c.alone, c.journalChanged)
	takenOver := func(err error) { end(fmt.Errorf("%w: %w", leader.ErrLost, err)) }
	c.store.OnEndRequest(c.exec.endRequested)
	return inBackground(ctx, func(ctx context.Context) { c.store.Run(ctx, takenOver) })
}

// alone returns nil if no other process has led until the call.
func (c *Controller) alone(ctx context.Context) error {
	if c.p.config.AwaitRenewal == nil {
		return nil
	}
	err := c.p.config.AwaitRenewal(ctx)
	if errors.Is(err, leader.ErrLost) {
		return fmt.Errorf("%w: %w", journal.ErrTakenOver, err)
	}
	return err
}

// journalChanged reports that somebody has changed the journal. A record that appeared is one of an earlier process.
func (c *Controller) journalChanged(change journal.Change) {
	if self := c.p.config.Self; self != nil {
		c.p.events.Eventf(self, v1.EventTypeWarning, reasonJournalChanged,
			"somebody has changed ConfigMap %s/%s, which only the leader may write: %d records were removed, %d altered and %d added; the first two are written again",
			c.p.config.Namespace, change.ConfigMap, change.Removed, change.Altered, len(change.Appeared))
	}
	for claim, record := range change.Appeared {
		r, err := request.Decode(record)
		if err != nil {
			c.store.Keep(claim, err)
			continue
		}
		c.recover(r)
	}
}
