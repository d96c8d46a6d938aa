// Package journal stores the records that must survive a crash of the
// process. A record is text under a key; what either
// means is its caller's business.
//
// # Promise
//
// Put returns nil only when the record can be read again after a crash of any
// process at any time. A record that was deleted can be read until Flush has
// returned nil for its key, and no longer than a while after that. One process
// writes at a time, that which holds the Lease; a second one never overwrites
// what the first has written since it was read, and notices: see Run. What somebody
// else removes or alters is written again while the Lease is held: see OnChange. The
// outcome of a write that failed is read, never assumed.
//
// # Form
//
// Records are entries of the data of ConfigMaps, the shards: a key is the
// entry's name. All records that wait for a write at the same moment go to as few
// shards as can be, and what was deleted from these goes with them. A shard is
// written as a strategic merge patch of the entries that differ, so that a record
// costs its own length, however many others there are; or whole if that is
// shorter, as it is for few records. Each write names the version that it changes.
// A JSON merge patch would cost the API server more than twice the CPU time, for
// it encodes the whole shard as JSON and decodes it again. etcd stores the whole
// shard with each write, so shards stay small for as long as there are few records.
//
// Versions before this one read and write the first eight shards, and only whole.
// The others take what has no room there; those versions leave it alone.
package journal

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
)

const (
	// shardBytes is how much a shard may hold; Kubernetes allows 1 MiB.
	shardBytes = 768 << 10
	// smallShard is how large a shard grows while another one is smaller: etcd
	// stores it whole for a single record.
	smallShard = 16 << 10
	// sameShard is how much one commit adds to a shard before it goes on to the
	// next: each is a write.
	sameShard = 64 << 10
	// Shards is the number of ConfigMaps, which bounds the journal, and
	// firstShards how many of them every version reads.
	Shards, firstShards = 32, 8
)

// Limit is how many bytes the journal takes.
const Limit = Shards * shardBytes

// FullError says that no shard has room for a record.
type FullError struct{}

// Error says that the journal is full.
func (*FullError) Error() string { return "the journal is full" }

// Store is a journal. Load comes first, then Run; the other methods may be
// called at any time after Load, by any number of goroutines.
type Store struct {
	client    kubernetes.Interface
	metadata  metadata.Interface
	namespace string
	prefix    string
	commits   func() // counts

	mu      sync.Mutex
	shards  []*shard
	deleted map[string]*shard // records that the ConfigMaps may still hold
	kept    map[string]*shard // records that the caller can't read: they stay as they are
	lost    error             // another process writes the journal; nil if none does
	notify  func(error)       // is called with lost

	alone   func(context.Context) error // see OnChange
	changed func(Change)

	endRequested func(key, reason string)

	wanted chan struct{} // someone waits for a commit
}

// New returns the journal of the ConfigMaps whose names are the prefix, a hyphen
// and a number. Both clients are the same API server's; Load needs no metadata.
// commits is called for every write.
func New(client kubernetes.Interface, metadata metadata.Interface, namespace, prefix string, commits func()) *Store {
	return &Store{
		client: client, metadata: metadata, namespace: namespace, prefix: prefix, commits: commits,
		notify: func(error) {}, endRequested: func(string, string) {}, changed: func(Change) {},
		alone:   func(context.Context) error { return ErrTakenOver },
		deleted: map[string]*shard{}, kept: map[string]*shard{},
		wanted: make(chan struct{}, 1),
	}
}

// Change is what somebody who doesn't hold the Lease has done to a ConfigMap. What was removed or altered is written again; records
// that appeared stay, as if an earlier process had put them.
type Change struct {
	ConfigMap        string
	Removed, Altered int
	Appeared         map[string][]byte
}

// OnChange sets what Run calls when somebody else has changed a ConfigMap. alone returns nil if no other process has led until the call,
// and ErrTakenOver if one does. It must be called before Run; without it everybody who changes a ConfigMap is taken for a process that leads.
func (s *Store) OnChange(alone func(context.Context) error, changed func(Change)) {
	s.alone, s.changed = alone, changed
}

// Load reads all records, by key.
func (s *Store) Load(ctx context.Context) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted, s.kept = map[string]*shard{}, map[string]*shard{}
	shards, err := s.readAll(ctx)
	if err != nil {
		return nil, err
	}
	s.shards = shards
	records := map[string][]byte{}
	for _, sh := range s.newestFirst() {
		sh.saved = maps.Clone(sh.entries)
		for key, record := range sh.saved {
			if _, isNewer := records[key]; isNewer {
				delete(sh.entries, key)
				sh.dirty = true
				continue
			}
			records[key] = []byte(record)
			sh.bytes += len(key) + len(record)
		}
	}
	return records, nil
}

// newestFirst returns the shards, the one that was written last first. If two
// have a record of the same key, that of the older shard was deleted, and a crash
// kept it from being taken out.
func (s *Store) newestFirst() []*shard {
	return slices.SortedStableFunc(slices.Values(s.shards), func(x, y *shard) int {
		order, err := resourceversion.CompareResourceVersion(y.version, x.version)
		if err != nil { // one of them isn't there
			return strings.Compare(y.version, x.version)
		}
		return order
	})
}

// readAll reads every shard, missing ones too: somebody may have deleted one in the middle.
func (s *Store) readAll(ctx context.Context) ([]*shard, error) {
	shards, errs := make([]*shard, Shards), make([]error, Shards)
	var all sync.WaitGroup
	for n := range shards {
		all.Go(func() {
			shards[n] = &shard{name: fmt.Sprintf("%s-%d", s.prefix, n), entries: map[string]string{}}
			errs[n] = s.read(ctx, shards[n])
		})
	}
	all.Wait()
	return shards, cmp.Or(errs...) // one says enough
}

func (s *Store) read(ctx context.Context, sh *shard) error {
	configMap, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, sh.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	maps.Copy(sh.entries, configMap.Data)
	sh.version, sh.endRequests, sh.checked = configMap.ResourceVersion, endRequestsOf(configMap.Annotations), time.Now()
	return nil
}

// Keep says that the caller can't read a record, and why. It stays as it is, and
// no other is put under its key, until a process reads it that can.
func (s *Store) Keep(key string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.find(key)
	if sh == nil {
		return
	}
	klog.ErrorS(why, "A record of the journal can't be read; it is kept", "configMap", s.namespace+"/"+sh.name, "key", key)
	s.kept[key] = sh
}

// find returns the shard that has a record of the key, nil if none has one that the caller can read. s.mu is held.
func (s *Store) find(key string) *shard {
	if s.kept[key] != nil {
		return nil
	}
	for _, sh := range s.shards {
		if _, ok := sh.entries[key]; ok {
			return sh
		}
	}
	return nil
}

// Put returns once the record can be read again after a crash. If it returns an
// error the record may be there all the same.
func (s *Store) Put(ctx context.Context, key string, record []byte) error {
	if len(key)+len(record) > shardBytes || !utf8.Valid(record) {
		return fmt.Errorf("a record of %d bytes can't be kept: it must be UTF-8, and of %d bytes at most", len(record), shardBytes-len(key))
	}
	done, err := s.enter(key, string(record))
	if err != nil {
		return err
	}
	return awaitCommit(ctx, done)
}

// awaitCommit returns what came of the commit, or why ctx has ended before it.
func awaitCommit(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enter has the record written unless it is there, and returns a channel that
// tells when it is.
func (s *Store) enter(key, record string) (<-chan error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh := s.kept[key]; sh != nil {
		return nil, fmt.Errorf("key %s of ConfigMap %s/%s is a record that this version of disk-provisioner can't read: let the version that wrote it end it", key, s.namespace, sh.name)
	}
	sh := s.find(key)
	switch {
	case sh == nil || sh.entries[key] != record:
		if sh = s.place(key, record); sh == nil {
			return nil, &FullError{}
		}
	case sh.holds(key, record):
		done := make(chan error, 1)
		done <- nil
		return done, nil
	case sh.writing != nil && sh.writing[key] == record: // it goes with the commit under way
		done := make(chan error, 1)
		sh.writeWaiters = append(sh.writeWaiters, done)
		return done, nil
	}
	return s.requestCommit(sh), nil
}

// place puts a record on a shard, which is to be written then, and returns nil if none has room. s.mu is held.
func (s *Store) place(key, record string) *shard {
	bytes := len(key) + len(record)
	sh := s.shardOf(key)
	if sh == nil {
		sh = s.roomFor(bytes)
	}
	if sh == nil || sh.room()+sh.size(key) < bytes {
		return nil
	}
	delete(s.deleted, key)
	sh.bytes += bytes - sh.size(key)
	sh.entries[key] = record
	sh.added += len(record)
	sh.dirty = true
	return sh
}

// shardOf returns the shard that has a record of the key, or may still hold an earlier one; nil if none does. The key's next
// record can't go to another shard: a crash would leave both.
func (s *Store) shardOf(key string) *shard { return cmp.Or(s.find(key), s.deleted[key]) }

// requestCommit asks for a commit of the shard, and returns a channel that tells what came of it. s.mu is held.
func (s *Store) requestCommit(sh *shard) <-chan error {
	sh.dirty = true
	done := make(chan error, 1)
	sh.waiters = append(sh.waiters, done)
	signal(s.wanted)
	return done
}

// signal signals without blocking.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// roomFor returns a shard with room: one of the first if it can be, and one that is
// avoided only if there is no other.
func (s *Store) roomFor(bytes int) *shard {
	for _, shards := range [][]*shard{s.shards[:firstShards], s.shards[firstShards:]} {
		if sh := bestOf(shards, bytes); sh != nil {
			return sh
		}
	}
	for _, sh := range s.shards {
		if sh.room() >= bytes {
			return sh
		}
	}
	return nil
}

// bestOf returns a shard that is written anyway, else the first that stays small,
// so that few are in use, else the smallest; nil if none has room.
func bestOf(shards []*shard, bytes int) *shard {
	var small, smallest *shard
	now := time.Now()
	for _, sh := range shards {
		switch {
		case sh.isAvoided(now) || sh.room() < bytes:
		case sh.dirty && sh.added+bytes <= sameShard:
			return sh
		case small == nil && sh.bytes+bytes <= smallShard:
			small = sh
		case smallest == nil || sh.bytes < smallest.bytes:
			smallest = sh
		}
	}
	return cmp.Or(small, smallest)
}

// Delete deletes a record together with whatever is written next to its shard, and within deleteDelay if nothing is. Deleting one that is
// not there is a success.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.find(key)
	if sh == nil {
		return
	}
	sh.bytes -= sh.size(key)
	delete(sh.entries, key)
	s.deleted[key] = sh
	if sh.stale.IsZero() {
		sh.stale = time.Now()
	}
}

// Size is the size of all records.
func (s *Store) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0
	for _, sh := range s.shards {
		sum += sh.bytes
	}
	return sum
}

// Flush returns nil once a record that was deleted can't be read any more.
func (s *Store) Flush(ctx context.Context, key string) error {
	s.mu.Lock()
	sh := s.deleted[key]
	if sh == nil {
		s.mu.Unlock()
		return nil
	}
	done := s.requestCommit(sh)
	s.mu.Unlock()
	return awaitCommit(ctx, done)
}
