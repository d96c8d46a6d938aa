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
	// deleteDelay is how long deleted records stay in the journal if nothing else is
	// written.
	deleteDelay = 2 * time.Second
	// lazyDelay is how long records stay that were deleted lazily.
	lazyDelay = time.Minute
	// batchEach is how long a commit waits for others to share it, for each record in
	// the journal, and batchMost how long at most: a few records do not wait for each
	// other, and many need few commits.
	batchEach, batchMost = 200 * time.Microsecond, 20 * time.Millisecond
	// A commit of prefetched records waits for more of them. They were lately put so
	// long after they were prefetched (the lead time); leadPart is the part of it that
	// a commit waits, less the time of two commits, and longestDelay how long at most:
	// it is over before they are put.
	leadPart, longestDelay = 4, time.Second
	// shardCheckInterval is the time between two checks that the shards with records
	// exist, and of their annotations: no watch tells of either.
	shardCheckInterval = 15 * time.Second
	// avoidTime is for how long new records avoid a shard whose write has failed: it
	// may be immutable.
	avoidTime = time.Minute
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
		case <-s.prefetch:
			s.awaitPut(ctx, min((s.lastLeadTime()-2*took)/leadPart, longestDelay))
		case <-time.After(deleteDelay):
		}
		s.flushOverdue()
		begin := time.Now()
		s.commit(context.WithoutCancel(ctx))
		took = time.Since(begin)
		s.wakeRoomWaiters()
		s.checkShards(ctx)
		s.notifyEndRequests()
		select {
		case <-ctx.Done():
		case <-time.After(s.batchWindow()):
		}
	}
}

// awaitPut waits until somebody waits for a commit, or until the delay is over.
func (s *Store) awaitPut(ctx context.Context, delay time.Duration) {
	select {
	case <-ctx.Done():
	case <-s.wanted:
	case <-time.After(delay):
	}
}

// lastLeadTime returns how long before it was put the last record was prefetched.
func (s *Store) lastLeadTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leadTime
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
		s.remove(key).dirty = true
	}
	for _, sh := range s.shards {
		sh.dirty = sh.dirty || !sh.stale.IsZero()
	}
	s.mu.Unlock()
	s.commit(ctx)
}

// flushOverdue marks the shards for a write whose lazy deletions are overdue.
func (s *Store) flushOverdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shards {
		sh.dirty = sh.dirty || !sh.stale.IsZero() && time.Since(sh.stale) >= lazyDelay
	}
}

// checkShards has a shard written again that somebody has deleted, for a crash would
// lose its records, and notes requests to end records.
func (s *Store) checkShards(ctx context.Context) {
	if time.Since(s.checked) < shardCheckInterval {
		return
	}
	s.checked = time.Now()
	sideBySide(s.inUse(), func(sh *shard) { s.check(ctx, sh) })
}

func (s *Store) check(ctx context.Context, sh *shard) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	live, err := s.metadata.Resource(configMaps).Namespace(s.namespace).Get(ctx, sh.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.noteDeleted(sh)
	case err == nil:
		s.set(func() { sh.noteEndRequests(endRequestsOf(live.Annotations)) })
	}
}

// inUse returns the shards that should be there and hold records.
func (s *Store) inUse() (shards []*shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shards {
		if sh.version != "" && len(sh.entries) > 0 {
			shards = append(shards, sh)
		}
	}
	return shards
}

// commit writes every shard that has changed, and tells those who wait for one
// what came of that.
func (s *Store) commit(ctx context.Context) {
	sideBySide(s.begin(), func(sh *shard) { s.save(ctx, sh) })
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
	for _, sh := range s.shards {
		if sh.dirty {
			sh.dirty, sh.added, sh.stale = false, 0, time.Time{}
			sh.writing = maps.Clone(sh.entries)
			shards = append(shards, sh)
		}
	}
	return shards
}

// end returns those who have waited for the commit.
func (s *Store) end() []shardWaiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shards {
		sh.writing = nil
	}
	waiting := s.committing
	s.committing = nil
	return waiting
}

// sideBySide returns once f has returned for every shard.
func sideBySide(shards []*shard, f func(*shard)) {
	var all sync.WaitGroup
	for _, sh := range shards {
		all.Go(func() { f(sh) })
	}
	all.Wait()
}
