package journal

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// When the shards are written.

const (
	// deleteDelay is how long deleted records stay in the journal if nothing else is
	// written.
	deleteDelay = 10 * time.Second
	// lookInterval is how often it is looked whether something is due that nobody waits for.
	lookInterval = 2 * time.Second
	// batchEach is how long a commit waits for others to share it, for each record in
	// the journal, and batchMost how long at most: a few records do not wait for each
	// other, and many need few commits.
	batchEach, batchMost = 200 * time.Microsecond, 20 * time.Millisecond
	// shardCheckInterval is the time between two checks that the shards with records
	// exist as they were written, and of their annotations: no watch tells of either.
	shardCheckInterval = 15 * time.Second
	// avoidTime is for how long new records avoid a shard whose write has failed: it
	// may be immutable.
	avoidTime = time.Minute
	// longWrite is how long a write takes before new records avoid its shard.
	longWrite = time.Second
	// CommitTimeout bounds one write of a shard.
	CommitTimeout = 15 * time.Second
)

// Run commits until ctx ends, and once more then. It calls takenOver with
// ErrTakenOver as soon as it sees that somebody else writes the journal: nothing
// that was put since is written then. A shard is committed without regard to the
// others, however long one of them takes.
func (s *Store) Run(ctx context.Context, takenOver func(error)) {
	s.set(func() { s.notify = takenOver })
	var commits sync.WaitGroup
	for {
		select {
		case <-ctx.Done():
			commits.Wait()
			s.commitAll(context.WithoutCancel(ctx))
			return
		case <-s.wanted:
		case <-time.After(lookInterval):
		}
		s.markStale(deleteDelay)
		s.startCommits(context.WithoutCancel(ctx), &commits)
		s.notifyEndRequests()
		select {
		case <-ctx.Done():
		case <-time.After(s.batchWindow()):
		}
	}
}

// batchWindow is how long the next commit waits.
func (s *Store) batchWindow() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := 0
	for _, sh := range s.shards {
		records += len(sh.entries)
	}
	return min(time.Duration(records)*batchEach, batchMost)
}

// commitAll leaves nothing that was deleted.
func (s *Store) commitAll(ctx context.Context) {
	s.markStale(0)
	s.commit(ctx)
}

// commit returns once every shard that has changed was written.
func (s *Store) commit(ctx context.Context) {
	var commits sync.WaitGroup
	s.startCommits(ctx, &commits)
	commits.Wait()
}

// markStale marks the shards for a write that have had deleted records for so long.
func (s *Store) markStale(delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shards {
		sh.dirty = sh.dirty || !sh.stale.IsZero() && time.Since(sh.stale) >= delay
	}
}

// startCommits has each shard that is to be written or checked committed, side by side.
func (s *Store) startCommits(ctx context.Context, commits *sync.WaitGroup) {
	for _, sh := range s.begin() {
		commits.Go(func() { s.commitShard(ctx, sh) })
	}
}

// begin returns the shards to be committed, but for those that are being committed.
func (s *Store) begin() []*shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	var shards []*shard
	for _, sh := range s.shards {
		if sh.committing || !sh.dirty && !sh.isCheckDue() {
			continue
		}
		sh.committing = true
		if sh.dirty {
			sh.dirty, sh.added, sh.stale = false, 0, time.Time{}
			sh.writing, sh.began = maps.Clone(sh.entries), time.Now()
			sh.writeWaiters, sh.waiters = sh.waiters, nil
		}
		shards = append(shards, sh)
	}
	return shards
}

// commitShard writes a shard if it has changed, tells those who wait for it what came of
// that, and checks the shard if that is due.
func (s *Store) commitShard(ctx context.Context, sh *shard) {
	if sh.writing != nil {
		s.save(ctx, sh)
	}
	if s.endWrite(sh) {
		s.check(ctx, sh)
		s.set(func() { s.endCommit(sh) })
	}
}

// endWrite tells those who have waited for the write of a shard, and ends the commit
// unless the shard is to be checked.
func (s *Store) endWrite(sh *shard) (checking bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, done := range sh.writeWaiters {
		done <- cmp.Or(s.lost, sh.failed)
	}
	sh.writing, sh.writeWaiters = nil, nil
	if sh.isCheckDue() {
		return true
	}
	s.endCommit(sh)
	return false
}

// endCommit asks for the next commit of a shard if records have come since this one
// began. s.mu is held.
func (s *Store) endCommit(sh *shard) {
	sh.committing = false
	if len(sh.waiters) > 0 {
		signal(s.wanted)
	}
}

// isCheckDue says whether a shard with records is to be checked.
func (sh *shard) isCheckDue() bool {
	return len(sh.saved) > 0 && time.Since(sh.checked) >= shardCheckInterval
}

// check has a shard written again that somebody has deleted or changed, for a crash would lose its
// records, and notes requests to end records.
func (s *Store) check(ctx context.Context, sh *shard) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	live, err := s.metadata.Resource(configMaps).Namespace(s.namespace).Get(ctx, sh.name, metav1.GetOptions{})
	s.set(func() { sh.checked = time.Now() })
	switch {
	case apierrors.IsNotFound(err):
		s.noteDeleted(sh)
	case err == nil && live.ResourceVersion != sh.version:
		if err := s.compare(ctx, sh); err != nil {
			klog.ErrorS(err, "A ConfigMap of the journal can't be compared", "configMap", s.namespace+"/"+sh.name)
		}
	case err == nil:
		s.set(func() { sh.noteEndRequests(endRequestsOf(live.Annotations)) })
	}
}
