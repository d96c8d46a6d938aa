package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// commit writes every page that has changed, and tells those who wait.
func (b *configMapBook) commit(ctx context.Context) {
	err := b.saveAll(ctx, b.begin())
	for _, done := range b.end() {
		done <- err
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
func (b *configMapBook) end() []chan error {
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
func (b *configMapBook) saveAll(ctx context.Context, pages []*bookPage) error {
	errs := make([]error, len(pages))
	var all sync.WaitGroup
	for i, p := range pages {
		all.Go(func() { errs[i] = b.save(ctx, p) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// save writes one page.
func (b *configMapBook) save(ctx context.Context, p *bookPage) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	b.commits()
	err := b.settle(ctx, p)
	if err == nil {
		err = b.put(ctx, p, p.writing)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		p.dirty = true // the next commit tries again
		return fmt.Errorf("the journal can't be written to ConfigMap %s/%s: %w", b.namespace, p.name, err)
	}
	maps.DeleteFunc(b.struck, func(claim types.UID, at *bookPage) bool {
		_, held := p.writing[string(claim)]
		return at == p && !held
	})
	return nil
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
	if !maps.Equal(live.entries, p.tried) && !maps.Equal(live.entries, p.saved) {
		err := fmt.Errorf("%w: somebody else has written ConfigMap %s/%s", ErrLeaseLost, b.namespace, p.name)
		b.fatal(err)
		return err
	}
	b.set(func() { p.version, p.saved, p.tried = live.version, live.entries, nil })
	return nil
}
