package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// mostPages bounds the book; an order that finds no room waits.
	mostPages = 8
	// strikeLinger is how long orders that ended may stay in the book for want
	// of another reason to write.
	strikeLinger = 2 * time.Second
	// gather is how long a commit waits for others to go with it, if one has
	// just been made.
	gather = 5 * time.Millisecond
	// commitTimeout bounds one write of a page.
	commitTimeout = 15 * time.Second
)

// configMapBook keeps orders in ConfigMaps, a page each. Whoever holds the
// Lease is the only writer. All that wait for a write go into one commit, and
// what is struck out goes with the next.
type configMapBook struct {
	client    kubernetes.Interface
	namespace string
	prefix    string
	commits   func()      // counts
	fatal     func(error) // hears that somebody else writes

	mu      sync.Mutex
	pages   []*bookPage
	where   map[types.UID]*bookPage
	struck  map[types.UID]*bookPage // entries that the ConfigMaps may still hold
	waiting []chan error
	wanted  chan struct{} // someone waits for a commit
}

// bookPage is one ConfigMap.
type bookPage struct {
	name    string
	entries map[string]string // by claim UID
	bytes   int
	version string // as last read or written; empty if the ConfigMap isn't there
	dirty   bool

	saved map[string]string // what the version holds
	tried map[string]string // what a write of unknown outcome would have made it hold; nil for none
}

func newBook(client kubernetes.Interface, namespace, prefix string, commits func()) *configMapBook {
	return &configMapBook{
		client: client, namespace: namespace, prefix: prefix, commits: commits, fatal: func(error) {},
		where: map[types.UID]*bookPage{}, struck: map[types.UID]*bookPage{}, wanted: make(chan struct{}, 1),
	}
}

// load reads the whole book. Entries that can't be understood are kept and told.
func (b *configMapBook) load(ctx context.Context) ([]*order, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pages, b.where, b.struck = nil, map[types.UID]*bookPage{}, map[types.UID]*bookPage{}
	var orders []*order
	for n := range mostPages {
		p := &bookPage{name: fmt.Sprintf("%s-%d", b.prefix, n), entries: map[string]string{}}
		if err := b.read(ctx, p); err != nil {
			return nil, err
		}
		for uid, data := range p.entries {
			p.bytes += len(uid) + len(data)
			b.where[types.UID(uid)] = p
			o, err := decode([]byte(data))
			if err != nil {
				klog.ErrorS(err, "An entry of the journal can't be read; it is kept", "configMap", b.namespace+"/"+p.name, "claim", uid)
				continue
			}
			orders = append(orders, o)
		}
		p.saved = maps.Clone(p.entries)
		b.pages = append(b.pages, p)
	}
	return orders, nil
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

func (b *configMapBook) enter(claim types.UID, data string) (<-chan error, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.where[claim]
	if p == nil {
		if p = b.roomFor(len(claim) + len(data)); p == nil {
			return nil, errors.New("the journal is full; it empties as volumes under way come to their end")
		}
		b.where[claim] = p
	}
	delete(b.struck, claim)
	p.bytes += len(claim) + len(data) - len(p.entries[string(claim)])
	p.entries[string(claim)] = data
	p.dirty = true
	return b.await(), nil
}

// await asks for a commit. b.mu is held.
func (b *configMapBook) await() <-chan error {
	done := make(chan error, 1)
	b.waiting = append(b.waiting, done)
	select {
	case b.wanted <- struct{}{}:
	default:
	}
	return done
}

// roomFor returns the first page with room, so that few pages are in use.
func (b *configMapBook) roomFor(bytes int) *bookPage {
	for _, p := range b.pages {
		if p.bytes+bytes <= pageBytes {
			return p
		}
	}
	return nil
}

// strike implements book.
func (b *configMapBook) strike(claim types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.where[claim]
	if p == nil {
		return
	}
	p.bytes -= len(claim) + len(p.entries[string(claim)])
	delete(p.entries, string(claim))
	delete(b.where, claim)
	b.struck[claim] = p
	p.dirty = true
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
	if b.struck[claim] == nil {
		b.mu.Unlock()
		return nil
	}
	done := b.await()
	b.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run commits until ctx ends, and once more then.
func (b *configMapBook) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			b.commit(context.WithoutCancel(ctx))
			return
		case <-b.wanted:
		case <-time.After(strikeLinger):
		}
		b.commit(context.WithoutCancel(ctx))
		select {
		case <-ctx.Done():
		case <-time.After(gather):
		}
	}
}

// commit writes every page that has changed, and tells those who wait.
func (b *configMapBook) commit(ctx context.Context) {
	b.mu.Lock()
	waiting := b.waiting
	b.waiting = nil
	var err error
	for _, p := range b.pages {
		if p.dirty {
			p.dirty = false
			err = errors.Join(err, b.save(ctx, p, maps.Clone(p.entries)))
		}
	}
	b.mu.Unlock()
	for _, done := range waiting {
		done <- err
	}
}

// save writes one page. b.mu is held, but not while the write is under way.
func (b *configMapBook) save(ctx context.Context, p *bookPage, entries map[string]string) error {
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	b.commits()
	err := b.settle(ctx, p)
	if err == nil {
		err = b.put(ctx, p, entries)
	}
	b.mu.Lock()
	if err != nil {
		p.dirty = true // the next commit tries again
		return fmt.Errorf("the journal can't be written to ConfigMap %s/%s: %w", b.namespace, p.name, err)
	}
	maps.DeleteFunc(b.struck, func(claim types.UID, at *bookPage) bool {
		_, held := entries[string(claim)]
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
	p.tried = entries
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
	p.version, p.saved, p.tried = written.ResourceVersion, entries, nil
	return nil
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
	p.version, p.saved, p.tried = live.version, live.entries, nil
	return nil
}
