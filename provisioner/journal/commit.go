package journal

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// When the shards are written.

const (
	// deleteDelay is how long deleted records may stay in the journal for want of
	// another reason to write.
	deleteDelay = 2 * time.Second
	// lazyDelay is how long records may stay that were deleted lazily.
	lazyDelay = time.Minute
	// batchEach is how long a commit waits for others to go with it, for each
	// record in the journal, and batchMost how long at most: a few don't wait for
	// each other, and many cost few commits.
	batchEach, batchMost = 200 * time.Microsecond, 20 * time.Millisecond
	// leadShare is the part that a commit waits which nobody waits for of the time that
	// is left, after two commits, of that for which records have lately been prefetched
	// before they were put, and aheadMost is how long it waits at most: many share it,
	// and it is over before they are put.
	leadShare, aheadMost = 4, 250 * time.Millisecond
	// lookForShards is how often it is looked whether the shards with records are
	// still there, and what they ask for, for who deletes or annotates one tells nobody.
	lookForShards = 15 * time.Second
	// avoidFailing is for how long new records avoid a shard that could not be
	// written: it may have been made immutable.
	avoidFailing = time.Minute
	// CommitTimeout bounds one write of a shard.
	CommitTimeout = 15 * time.Second
)

// Run commits until ctx ends, and once more then. It calls takenOver with
// ErrTakenOver as soon as it sees that somebody else writes the journal: nothing
// that was put since is written then.
func (s *Store) Run(ctx context.Context, takenOver func(error)) {
	s.set(func() { s.notify = takenOver })
	var took time.Duration
	for {
		select {
		case <-ctx.Done():
			s.commitAll(context.WithoutCancel(ctx))
			return
		case <-s.wanted:
		case <-s.ahead:
			s.leaveTime(ctx, min((s.lastLead()-2*took)/leadShare, aheadMost))
		case <-time.After(deleteDelay):
			s.expediteOverdue()
		}
		s.lookForShards(context.WithoutCancel(ctx))
		begin := time.Now()
		s.commit(context.WithoutCancel(ctx))
		took = time.Since(begin)
		s.tellEndRequests()
		s.wakeForRoom()
		select {
		case <-ctx.Done():
		case <-time.After(s.batchWindow()):
		}
	}
}

// leaveTime waits until someone waits for a commit, or for so long.
func (s *Store) leaveTime(ctx context.Context, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-s.wanted:
	case <-time.After(most):
	}
}

// lastLead is for how long the last record that was put had been prefetched.
func (s *Store) lastLead() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lead
}

// batchWindow is how long the next commit waits.
func (s *Store) batchWindow() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(time.Duration(len(s.where))*batchEach, batchMost)
}

// commitAll leaves nothing that was deleted, or prefetched and not put.
func (s *Store) commitAll(ctx context.Context) {
	s.mu.Lock()
	for key := range s.prefetched {
		s.takeOut(key).dirty = true
	}
	for _, h := range s.shards {
		h.dirty = h.dirty || !h.stale.IsZero()
	}
	s.mu.Unlock()
	s.commit(ctx)
}

// expediteOverdue has what was lazily deleted long ago written out.
func (s *Store) expediteOverdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.shards {
		h.dirty = h.dirty || !h.stale.IsZero() && time.Since(h.stale) >= lazyDelay
	}
}

// lookForShards has a shard written again that somebody has deleted, for a crash would
// forget its records, and notes requests to end records: nothing else may be written for long.
func (s *Store) lookForShards(ctx context.Context) {
	if time.Since(s.looked) < lookForShards {
		return
	}
	s.looked = time.Now()
	for _, h := range s.inUse() {
		ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
		live, err := s.metadata.Resource(configMaps).Namespace(s.namespace).Get(ctx, h.name, metav1.GetOptions{})
		cancel()
		switch {
		case apierrors.IsNotFound(err):
			s.isDeleted(h)
		case err == nil:
			s.set(func() { h.noteEndRequests(endRequestsOf(live.Annotations)) })
		}
	}
}

// inUse returns the shards that should be there and hold records.
func (s *Store) inUse() (shards []*shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.shards {
		if h.version != "" && len(h.entries) > 0 {
			shards = append(shards, h)
		}
	}
	return shards
}

// commit writes every shard that has changed, and tells those who wait for one
// what came of that.
func (s *Store) commit(ctx context.Context) {
	s.saveAll(ctx, s.begin())
	lost := s.isLost()
	for _, w := range s.end() {
		if lost == nil {
			w.done <- w.shard.failed
		} else {
			w.done <- lost
		}
	}
}

// begin returns the shards that are to be written.
func (s *Store) begin() []*shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committing, s.waiting = s.waiting, nil
	var shards []*shard
	for _, h := range s.shards {
		if h.dirty {
			h.dirty, h.added, h.stale = false, 0, time.Time{}
			h.writing = maps.Clone(h.entries)
			shards = append(shards, h)
		}
	}
	return shards
}

// end returns those who have waited for the commit.
func (s *Store) end() []shardWaiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.shards {
		h.writing = nil
	}
	waiting := s.committing
	s.committing = nil
	return waiting
}

// saveAll writes shards side by side.
func (s *Store) saveAll(ctx context.Context, shards []*shard) {
	var all sync.WaitGroup
	for _, h := range shards {
		all.Go(func() { s.save(ctx, h) })
	}
	all.Wait()
}
