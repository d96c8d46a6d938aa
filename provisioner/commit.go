package provisioner

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/leader"
)

// When the book's pages are written, and what a write that failed has come to.

const (
	// strikeLinger is how long orders that were struck out may stay in the book
	// for want of another reason to write.
	strikeLinger = 2 * time.Second
	// retireLinger is how long orders may stay in the book whose volume stands:
	// somebody may take that away by force while nobody runs, and a volume that
	// is then kept on purpose must not be found in the book.
	retireLinger = time.Minute
	// gatherEach is how long a commit waits for others to go with it, for each
	// order in the book, and gatherMost how long at most: a few don't wait for
	// each other, and many cost few commits.
	gatherEach, gatherMost = 200 * time.Microsecond, 20 * time.Millisecond
	// aheadShare is how many times as long as the last commit took the next one
	// waits that nobody waits for: an API server that is slow is not asked for more
	// than it has to do. leadShare is the part of the time for which orders have
	// lately been in the book before their turn that it waits, if that is longer,
	// and aheadMost is how long it waits at most.
	aheadShare, leadShare, aheadMost = 4, 4, 250 * time.Millisecond
	// lookForPages is how often it is looked whether the pages with orders are
	// still there, for who deletes one tells nobody.
	lookForPages = 15 * time.Second
	// commitTimeout bounds one write of a page.
	commitTimeout = 15 * time.Second
)

// run commits until ctx ends, and once more then.
func (b *configMapBook) run(ctx context.Context) {
	var took time.Duration
	for {
		select {
		case <-ctx.Done():
			b.commitAll(context.WithoutCancel(ctx))
			return
		case <-b.wanted:
		case <-b.ahead:
			b.leaveTime(ctx, min(max(aheadShare*took, b.lastLead()/leadShare), aheadMost))
		case <-time.After(strikeLinger):
			b.hurryOverdue()
		}
		b.lookForPages(context.WithoutCancel(ctx))
		begin := time.Now()
		b.commit(context.WithoutCancel(ctx))
		took = time.Since(begin)
		select {
		case <-ctx.Done():
		case <-time.After(b.gather()):
		}
	}
}

// leaveTime waits until someone waits for a commit, or for so long.
func (b *configMapBook) leaveTime(ctx context.Context, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-b.wanted:
	case <-time.After(most):
	}
}

// lastLead is for how long the last order begun with had been foreseen.
func (b *configMapBook) lastLead() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lead
}

// gather is how long the next commit waits.
func (b *configMapBook) gather() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(time.Duration(len(b.where))*gatherEach, gatherMost)
}

// commitAll leaves nothing in the book that has ended or was never begun with.
func (b *configMapBook) commitAll(ctx context.Context) {
	b.mu.Lock()
	for claim := range b.foreseen {
		b.takeOut(claim).dirty = true
	}
	for _, p := range b.pages {
		p.dirty = p.dirty || !p.stale.IsZero()
	}
	b.mu.Unlock()
	b.commit(ctx)
}

// hurryOverdue has what was retired long ago written out.
func (b *configMapBook) hurryOverdue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pages {
		p.dirty = p.dirty || !p.stale.IsZero() && time.Since(p.stale) >= retireLinger
	}
}

// lookForPages has a page written again that somebody has deleted: a crash would
// forget its orders, and nothing else may be written for long.
func (b *configMapBook) lookForPages(ctx context.Context) {
	if time.Since(b.looked) < lookForPages {
		return
	}
	b.looked = time.Now()
	for _, p := range b.withOrders() {
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		live := &bookPage{name: p.name, entries: map[string]string{}}
		if err := b.read(ctx, live); err == nil && live.version == "" {
			b.isDeleted(p)
		}
		cancel()
	}
}

// withOrders returns the pages that should be there and hold orders.
func (b *configMapBook) withOrders() (pages []*bookPage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pages {
		if p.version != "" && len(p.entries) > 0 {
			pages = append(pages, p)
		}
	}
	return pages
}

// isDeleted notes that the page's ConfigMap isn't there any more. As long as the
// Lease is held nobody else writes one, so all of the page is written anew.
func (b *configMapBook) isDeleted(p *bookPage) {
	klog.InfoS("The journal's ConfigMap was deleted; it is written again", "configMap", b.namespace+"/"+p.name)
	b.set(func() { p.version, p.saved, p.tried, p.dirty = "", nil, nil, true })
}

// commit writes every page that has changed, and tells those who wait for one
// what came of that.
func (b *configMapBook) commit(ctx context.Context) {
	b.saveAll(ctx, b.begin())
	lost := b.isLost()
	for _, w := range b.end() {
		if lost == nil {
			w.done <- w.page.failed
		} else {
			w.done <- lost
		}
	}
}

// begin returns the pages that are to be written.
func (b *configMapBook) begin() []*bookPage {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committing, b.waiting = b.waiting, nil
	var pages []*bookPage
	for _, p := range b.pages {
		if p.dirty {
			p.dirty, p.stale = false, time.Time{}
			p.writing = maps.Clone(p.entries)
			pages = append(pages, p)
		}
	}
	return pages
}

// end returns those who have waited for the commit.
func (b *configMapBook) end() []pageWaiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pages {
		p.writing = nil
	}
	waiting := b.committing
	b.committing = nil
	return waiting
}

// saveAll writes pages side by side.
func (b *configMapBook) saveAll(ctx context.Context, pages []*bookPage) {
	var all sync.WaitGroup
	for _, p := range pages {
		all.Go(func() { b.save(ctx, p) })
	}
	all.Wait()
}

// save writes one page, and notes if that has failed.
func (b *configMapBook) save(ctx context.Context, p *bookPage) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	b.commits()
	err := b.isLost()
	if err == nil {
		err = b.settle(ctx, p)
	}
	if err == nil {
		err = b.put(ctx, p, p.writing)
	}
	if p.version != "" && apierrors.IsNotFound(err) {
		b.isDeleted(p)
		err = b.put(ctx, p, p.writing)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p.failed = nil
	if err != nil {
		p.dirty = true // the next commit tries again
		p.failed = fmt.Errorf("the journal can't be written to ConfigMap %s/%s: %w", b.namespace, p.name, err)
		return
	}
	b.forgetStruck(p)
}

// isLost returns an error once somebody else has written a page: then no page is
// this process' any more.
func (b *configMapBook) isLost() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// forgetStruck forgets what was struck out of a page, as far as its ConfigMap
// doesn't hold it, nor will by what is being written. b.mu is held.
func (b *configMapBook) forgetStruck(p *bookPage) {
	maps.DeleteFunc(b.struck, func(claim types.UID, at *bookPage) bool {
		_, saved := p.saved[string(claim)]
		_, writing := p.writing[string(claim)]
		return at == p && !saved && !writing
	})
}

func (b *configMapBook) put(ctx context.Context, p *bookPage, entries map[string]string) error {
	configMaps := b.client.CoreV1().ConfigMaps(b.namespace)
	configMap := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: b.namespace, ResourceVersion: p.version, Labels: map[string]string{managedByLabel: managedBy}},
		Data:       entries,
	}
	b.set(func() { p.tried = entries })
	var written *v1.ConfigMap
	var err error
	if p.version == "" {
		written, err = configMaps.Create(ctx, configMap, metav1.CreateOptions{})
	} else {
		written, err = configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	b.set(func() { p.version, p.saved, p.tried = written.ResourceVersion, entries, nil })
	return nil
}

func (b *configMapBook) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// settle finds out what became of a write that failed: it may have taken effect
// all the same. A page that holds neither what it held nor what was written is
// somebody else's work, who must hold the Lease by now.
func (b *configMapBook) settle(ctx context.Context, p *bookPage) error {
	if p.tried == nil {
		return nil
	}
	live := &bookPage{name: p.name, entries: map[string]string{}}
	if err := b.read(ctx, live); err != nil {
		return err
	}
	switch {
	case live.version == "" && p.version != "":
		b.isDeleted(p)
		return nil
	case !maps.Equal(live.entries, p.tried) && !maps.Equal(live.entries, p.saved):
		err := fmt.Errorf("%w: somebody else has written ConfigMap %s/%s", leader.ErrLost, b.namespace, p.name)
		b.set(func() { b.lost = err })
		b.fatal(err)
		return err
	}
	b.set(func() {
		p.version, p.saved, p.tried = live.version, live.entries, nil
		b.forgetStruck(p)
	})
	return nil
}
