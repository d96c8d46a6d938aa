package provisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// takeUp reads the book and files every order in it that has no PersistentVolume
// yet: it is repeated until its end is known.
func (c *Controller) takeUp(ctx context.Context) error {
	if c.book == nil {
		return nil
	}
	orders, err := c.readBook(ctx)
	if err != nil {
		return err
	}
	for _, o := range orders {
		source, ok := sourceObject(o.claim)
		saved, err := volumesOf(c.p.volumes, o.claim.UID)
		if err == nil && slices.ContainsFunc(saved, o.isSavedAs) {
			c.book.strike(o.claim.UID)
			if ok {
				c.p.sources.queue.Add(source)
			}
			continue
		}
		klog.InfoS("A volume was under way when the last process ended", "volume", o.request.Name, "claim", klog.KObj(o.claim))
		o.foundAgain = true
		if ok {
			c.p.sources.hold(o.claim.UID, source)
		}
		c.p.journal.file(o)
		c.lib.claims.wake(o.claim)
	}
	return nil
}

// readBook reads the book for as long as it takes, or until that has failed for too long.
func (c *Controller) readBook(ctx context.Context) ([]*order, error) {
	for {
		orders, err := c.book.load(ctx)
		if err != nil {
			err = fmt.Errorf("the journal can't be read: %w", err)
		}
		if end := c.recovery.note(stepJournal, err); end != nil || err == nil {
			return orders, end
		}
		if err := sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// keepBook commits the journal until stop is called; a writer beside this one ends everything.
func (c *Controller) keepBook(ctx context.Context, end context.CancelCauseFunc) (stop func()) {
	if c.book == nil {
		return func() {}
	}
	c.book.fatal = end
	bookCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { c.book.run(bookCtx); close(done) }()
	return func() { cancel(); <-done }
}
