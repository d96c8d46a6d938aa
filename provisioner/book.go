package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// journalPrefix begins the names of the journal's ConfigMaps; the driver's
	// name and a number follow.
	journalPrefix = "topodisk-journal-"
	// pageBytes is how much a ConfigMap of the book may hold; Kubernetes
	// allows 1 MiB.
	pageBytes = 768 << 10
	// handyBytes is how large a page grows while another one is smaller: it is
	// written whole for a single order.
	handyBytes = 16 << 10
	// mostPages bounds the book; an order that finds no room waits.
	mostPages = 8
	// mostForeseen bounds the orders in the book that nobody has begun with: they
	// are written once. With fewer of them the workers wait for one commit after
	// the other.
	mostForeseen = 1024
)

// configMapBook keeps orders in ConfigMaps, a page each. Whoever holds the
// Lease is the only writer. All that wait for a write go into one commit, and
// what is struck out or retired goes with the next.
type configMapBook struct {
	client    kubernetes.Interface
	namespace string
	prefix    string
	commits   func()      // counts
	fatal     func(error) // hears that somebody else writes

	mu         sync.Mutex
	pages      []*bookPage
	where      map[types.UID]*bookPage
	struck     map[types.UID]*bookPage // entries that the ConfigMaps may still hold
	foreign    map[types.UID]*bookPage // entries that can't be read: they stay as they are
	foreseen   map[types.UID]time.Time // entries that nobody has begun with, and since when they are there
	lead       time.Duration           // for how long the last one begun with had been there
	waiting    []pageWaiter            // for the next commit
	committing []pageWaiter            // for the one under way
	looked     time.Time               // when the pages were last looked for
	lost       error                   // that somebody else writes; nil if nobody does
	wanted     chan struct{}           // someone waits for a commit
	ahead      chan struct{}           // there is something to write that nobody waits for
}

// bookPage is one ConfigMap.
type bookPage struct {
	name    string
	entries map[string]string // by claim UID
	bytes   int
	version string    // as last read or written; empty if the ConfigMap isn't there
	dirty   bool      // is to be written
	stale   time.Time // since when it has less in it than the ConfigMap, which can wait for another reason to write; zero if it hasn't
	failed  error     // why its last write has failed; nil if it hasn't

	saved   map[string]string // what the version holds
	writing map[string]string // what is being written; nil for nothing
	tried   map[string]string // what a write of unknown outcome would have made it hold; nil for none
}

// pageWaiter waits for a commit of one page.
type pageWaiter struct {
	page *bookPage
	done chan error
}

func newBook(client kubernetes.Interface, namespace, prefix string, commits func()) *configMapBook {
	return &configMapBook{
		client: client, namespace: namespace, prefix: prefix, commits: commits, fatal: func(error) {},
		where: map[types.UID]*bookPage{}, struck: map[types.UID]*bookPage{}, foreign: map[types.UID]*bookPage{}, foreseen: map[types.UID]time.Time{},
		wanted: make(chan struct{}, 1), ahead: make(chan struct{}, 1),
	}
}

// load reads the whole book. Entries that can't be understood are kept and told.
func (b *configMapBook) load(ctx context.Context) ([]*order, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.where, b.struck, b.foreign = map[types.UID]*bookPage{}, map[types.UID]*bookPage{}, map[types.UID]*bookPage{}
	pages, err := b.readAll(ctx)
	if err != nil {
		return nil, err
	}
	b.pages = pages
	orders := map[types.UID]*order{}
	for _, p := range b.newestFirst() {
		p.saved = maps.Clone(p.entries)
		for uid, data := range p.saved {
			o, err := decode([]byte(data))
			switch {
			case err != nil:
				klog.ErrorS(err, "An entry of the journal can't be read; it is kept", "configMap", b.namespace+"/"+p.name, "claim", uid)
				b.foreign[types.UID(uid)] = p
			case b.where[types.UID(uid)] != nil:
				delete(p.entries, uid)
				p.dirty = true
				continue
			default:
				b.where[types.UID(uid)], orders[types.UID(uid)] = p, o
			}
			p.bytes += len(uid) + len(data)
		}
	}
	return slices.Collect(maps.Values(orders)), nil
}

// newestFirst returns the pages, the one that was written last first. If two have
// an order for the same claim, that of the older page had come to its end, and a
// crash kept it from being taken out.
func (b *configMapBook) newestFirst() []*bookPage {
	return slices.SortedStableFunc(slices.Values(b.pages), func(x, y *bookPage) int {
		order, err := resourceversion.CompareResourceVersion(y.version, x.version)
		if err != nil { // one of them isn't there
			return strings.Compare(y.version, x.version)
		}
		return order
	})
}

// readAll reads every page, missing ones too: somebody may have deleted one in the middle.
func (b *configMapBook) readAll(ctx context.Context) ([]*bookPage, error) {
	pages, errs := make([]*bookPage, mostPages), make([]error, mostPages)
	var all sync.WaitGroup
	for n := range pages {
		all.Go(func() {
			pages[n] = &bookPage{name: fmt.Sprintf("%s-%d", b.prefix, n), entries: map[string]string{}}
			errs[n] = b.read(ctx, pages[n])
		})
	}
	all.Wait()
	return pages, errors.Join(errs...)
}

func (b *configMapBook) read(ctx context.Context, p *bookPage) error {
	configMap, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(ctx, p.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	maps.Copy(p.entries, configMap.Data)
	p.version = configMap.ResourceVersion
	return nil
}

// write implements book.
func (b *configMapBook) write(ctx context.Context, o *order) error {
	data, err := encode(o)
	if err != nil {
		return err
	}
	done, err := b.enter(o.claim.UID, string(data))
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx) // it may be written all the same, which is safe
	}
}

// foresee implements book.
func (b *configMapBook) foresee(o *order) {
	data, err := encode(o)
	if err != nil {
		return
	}
	claim := o.claim.UID
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.foreign[claim] != nil {
		return
	}
	p := b.where[claim]
	since, again := b.foreseen[claim]
	if p != nil && (!again || p.entries[string(claim)] == string(data)) || p == nil && len(b.foreseen) >= mostForeseen {
		return
	}
	if !again {
		since = time.Now()
	}
	if b.place(claim, string(data)) != nil {
		b.foreseen[claim] = since
		signal(b.ahead)
	}
}

// dismiss implements book.
func (b *configMapBook) dismiss(claim types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.foreseen[claim]; ok {
		b.takeOut(claim).dirty = true
	}
}

// enter returns when the order stands in the book, by a channel.
func (b *configMapBook) enter(claim types.UID, data string) (<-chan error, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if since, ok := b.foreseen[claim]; ok {
		b.lead = time.Since(since)
		delete(b.foreseen, claim)
	}
	if p := b.foreign[claim]; p != nil {
		return nil, fmt.Errorf("key %s of ConfigMap %s/%s is an order for this claim that this version of disk-provisioner can't read, so there may be a disk: "+
			"let the version that wrote it end it", claim, b.namespace, p.name)
	}
	p := b.where[claim]
	switch {
	case p == nil || p.entries[string(claim)] != data:
		if p = b.place(claim, data); p == nil {
			return nil, errors.New("the journal is full; it empties as volumes under way come to their end")
		}
	case p.stands(claim, data):
		done := make(chan error, 1)
		done <- nil
		return done, nil
	case p.writing != nil && p.writing[string(claim)] == data: // it goes with the commit under way
		done := make(chan error, 1)
		b.committing = append(b.committing, pageWaiter{p, done})
		return done, nil
	}
	return b.await(p), nil
}

// stands says whether the ConfigMap holds the order, and will whatever becomes of
// a write that is under way or whose outcome is unknown.
func (p *bookPage) stands(claim types.UID, data string) bool {
	holds := func(entries map[string]string) bool { return entries[string(claim)] == data }
	return holds(p.saved) && (p.writing == nil || holds(p.writing)) && (p.tried == nil || holds(p.tried))
}

// place puts an order on the page that has it or has room for it, which is to be
// written then, and returns nil if none has. As long as a page may still hold an
// earlier order for the claim there is no other page for it: a crash would leave
// both. b.mu is held.
func (b *configMapBook) place(claim types.UID, data string) *bookPage {
	p := b.where[claim]
	if p == nil {
		if p = b.struck[claim]; p == nil {
			p = b.roomFor(len(claim) + len(data))
		}
		if p == nil || p.bytes+len(claim)+len(data) > pageBytes {
			return nil
		}
		b.where[claim] = p
		p.bytes += len(claim)
	}
	delete(b.struck, claim)
	p.bytes += len(data) - len(p.entries[string(claim)])
	p.entries[string(claim)] = data
	p.dirty = true
	return p
}

// await asks for a commit of the page. b.mu is held.
func (b *configMapBook) await(p *bookPage) <-chan error {
	p.dirty = true
	done := make(chan error, 1)
	b.waiting = append(b.waiting, pageWaiter{p, done})
	signal(b.wanted)
	return done
}

// signal leaves word for who looks next; one word is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// roomFor returns the first page that stays handy, so that few pages are in use,
// else the smallest one with room; one whose last write has failed only if there
// is no other.
func (b *configMapBook) roomFor(bytes int) *bookPage {
	var smallest, failing *bookPage
	for _, p := range b.pages {
		switch fits := p.bytes+bytes <= pageBytes; {
		case p.failed != nil:
			if fits && failing == nil {
				failing = p
			}
		case p.bytes+bytes <= handyBytes:
			return p
		case fits && (smallest == nil || p.bytes < smallest.bytes):
			smallest = p
		}
	}
	if smallest == nil {
		return failing
	}
	return smallest
}

// strike implements book.
func (b *configMapBook) strike(claim types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.takeOut(claim); p != nil {
		p.dirty = true
	}
}

// retire implements book.
func (b *configMapBook) retire(claim types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.takeOut(claim); p != nil && p.stale.IsZero() {
		p.stale = time.Now()
	}
}

// takeOut returns the page that had the order, or nil. b.mu is held.
func (b *configMapBook) takeOut(claim types.UID) *bookPage {
	p := b.where[claim]
	if p == nil {
		return nil
	}
	p.bytes -= len(claim) + len(p.entries[string(claim)])
	delete(p.entries, string(claim))
	delete(b.where, claim)
	delete(b.foreseen, claim)
	b.struck[claim] = p
	return p
}

// hurry implements book.
func (b *configMapBook) hurry(claim types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.struck[claim]; p != nil {
		p.dirty = true
	}
}

// bytes implements book.
func (b *configMapBook) bytes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := 0
	for _, p := range b.pages {
		sum += p.bytes
	}
	return sum
}

// flush implements book.
func (b *configMapBook) flush(ctx context.Context, claim types.UID) error {
	b.mu.Lock()
	p := b.struck[claim]
	if p == nil {
		b.mu.Unlock()
		return nil
	}
	done := b.await(p)
	b.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
