package claim

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// What wakes a claim. The caches show a change before these are called.

// Lead says that this process leads from now on.
func (s *Syncer) Lead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leadingSince = s.Now()
}

// ShouldStart says whether to begin with a claim that is this provisioner's and has no volume: one that it has begun with is woken by changes.
func (s *Syncer) ShouldStart(claim *v1.PersistentVolumeClaim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[claim.UID] != nil {
		return false
	}
	s.reportPopulator(claim)
	return request.ShouldProvision(claim) && !s.queue.ShuttingDown()
}

// Start begins with a claim.
func (s *Syncer) Start(claim *v1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(claim.UID, claim.Namespace)
}

// begin has a claim looked at that nothing may be remembered of yet. s.mu is held.
func (s *Syncer) begin(uid types.UID, namespace string) *entry {
	e := s.claims[uid]
	if e == nil {
		e = &entry{namespace: namespace}
		s.claims[uid] = e
	}
	s.wake(uid, e)
	return e
}

// Recover has a request of the journal of an earlier process repeated until its outcome is known.
func (s *Syncer) Recover(r *request.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.claims[r.Claim.UID]; {
	case e == nil:
	case e.request != nil:
		return
	case e.working: // on a request of its own, perhaps
		time.AfterFunc(time.Second, func() { s.Recover(r) })
		return
	}
	e := s.begin(r.Claim.UID, r.Claim.Namespace)
	e.request, e.recovered, e.maybeMade, e.nameMayBeTaken = r, true, true, true
	if encoded, err := r.Encode(); err == nil {
		e.bytes = len(encoded)
	}
	s.recount(e)
}

// Wake has a claim looked at without regard to its back-off.
func (s *Syncer) Wake(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.claims[uid]; e != nil {
		s.wake(uid, e)
	}
}

// wake has a claim looked at without regard to its back-off. s.mu is held.
func (s *Syncer) wake(uid types.UID, e *entry) {
	e.woken = true
	s.enqueue(uid)
}

func (s *Syncer) enqueue(uid types.UID) {
	s.liveness.Queued(string(uid))
	s.queue.Add(uid)
}

// wakeAll wakes the claims of which some fact holds.
func (s *Syncer) wakeAll(which func(*entry) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, e := range s.claims {
		if which(e) {
			s.wake(uid, e)
		}
	}
}

// ClaimChanged wakes a claim that has changed. old is nil for one that is new to the cache.
func (s *Syncer) ClaimChanged(old, claim *v1.PersistentVolumeClaim) {
	s.reportMigration(claim)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.claims[claim.UID]; {
	case e == nil:
	case old == nil: // it is new, and may have been begun with already
		s.enqueue(claim.UID)
	case !isSame(old, claim), watch.IsOlder(old.ResourceVersion, e.version):
		s.claimChanged(claim.UID)
	case old.ResourceVersion == claim.ResourceVersion: // the informer shows all again
		s.enqueue(claim.UID)
	}
	if !request.NeedsVolume(claim) || old != nil && old.Annotations[request.AnnSelectedNode] != claim.Annotations[request.AnnSelectedNode] {
		s.wakeSiblings(claim)
	}
}

// isSame says whether nothing of a claim has changed that is read of it: its owner would have an attempt made with each change, whatever the
// back-off is.
func isSame(old, now *v1.PersistentVolumeClaim) bool {
	before := *old
	before.ResourceVersion = now.ResourceVersion
	return equality.Semantic.DeepEqual(&before, now)
}

// ClaimGone wakes a claim that no longer exists.
func (s *Syncer) ClaimGone(claim *v1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimChanged(claim.UID)
	s.wakeSiblings(claim)
}

// claimChanged wakes a claim. An open request stays what it is, so that is no reason to repeat it; but a volume that waits to be saved may not
// be needed any more. s.mu is held.
func (s *Syncer) claimChanged(uid types.UID) {
	e := s.claims[uid]
	if e == nil {
		return
	}
	claim := s.cached(uid)
	isWanted := claim != nil && request.NeedsVolume(claim)
	if e.request == nil || e.volume != nil && (e.failure.awaitsSibling() || !isWanted) {
		s.wake(uid, e)
	}
}

// PodGone wakes the claims of a Pod that waits for none of them any more.
func (s *Syncer) PodGone(pod *watch.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeClaims(pod, map[string]bool{})
}

// VolumeChanged has the claim of a PersistentVolume looked at: it may be the one that an attempt is to lead to. One that is not the claim's any
// more is gone for that claim. old is nil for one that is new to the cache.
func (s *Syncer) VolumeChanged(old, pv *v1.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := request.ClaimUID(pv)
	if s.claims[uid] != nil {
		s.enqueue(uid)
	}
	if old != nil && request.ClaimUID(old) != uid {
		s.volumeGone(old)
	}
}

// VolumeGone wakes the claim of a PersistentVolume that no longer exists: it may need another one.
func (s *Syncer) VolumeGone(pv *v1.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.volumeGone(pv)
}

// volumeGone wakes the claim that a PersistentVolume has stood for. s.mu is held.
func (s *Syncer) volumeGone(pv *v1.PersistentVolume) {
	uid := request.ClaimUID(pv)
	e, claim := s.claims[uid], s.cached(uid)
	switch {
	case e != nil && e.request == nil && e.pv == pv.Name:
		s.wake(uid, e)
	case e == nil && claim != nil && request.IsOurs(claim, s.DriverName) && request.ShouldProvision(claim):
		s.begin(uid, claim.Namespace).pv = pv.Name
	}
}

// ClassChanged wakes the claims of a class, those with an open request, too: the class as it is now is tried once the outcome is known.
func (s *Syncer) ClassChanged(class string) {
	s.wakeAll(func(e *entry) bool { return e.class == class })
}

// ClassGone ends the metrics of a class, and wakes its claims.
func (s *Syncer) ClassGone(class string) {
	s.ClassChanged(class)
	s.metrics.byClass.Forget(class)
}

// NodeChanged wakes the claims that a change of the node's topology may help: those for which it was selected, whatever the last attempt failed
// by, and those that wait for any node. An open request stays what it is, so that is no reason to repeat one that nobody works on.
func (s *Syncer) NodeChanged(node string) {
	s.wakeAll(func(e *entry) bool {
		if !e.working && (e.request != nil || e.failure == nil) {
			return false
		}
		var reason topology.Reason
		if e.failure != nil {
			reason, _ = topology.ReasonOf(e.failure)
		}
		return e.node == node || e.node == "" && e.working || reason == topology.NoTopology
	})
}

// DriverBack wakes the claims that may wait for the driver.
func (s *Syncer) DriverBack() {
	s.wakeAll(func(e *entry) bool { return e.request != nil || e.failure != nil && e.failure.quiet })
}

// EndRequested has an operator's request to end a record granted or rejected.
func (s *Syncer) EndRequested(key, reason string) {
	uid := types.UID(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.claims[uid]; e != nil && e.request != nil {
		s.enqueue(uid)
		return
	}
	s.rejectEnd(uid, nil, reason, "nothing is under way for it")
}

// Settle returns nil once no attempt is under way and the journal has no record of the claim: after a crash, a record would have a deleted
// volume made again. An attempt that is under way is woken: its outcome is known, for its volume exists.
func (s *Syncer) Settle(ctx context.Context, claim types.UID) error {
	if s.isUnderWay(claim) {
		return deletion.ErrUnderWay
	}
	return s.Journal.Flush(ctx, string(claim))
}

func (s *Syncer) isUnderWay(claim types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.claims[claim]
	if e == nil || e.request == nil && !e.working {
		return false
	}
	s.wake(claim, e)
	return true
}

// Open returns the number of volumes under way, and how many of them are of unknown outcome.
func (s *Syncer) Open() (all, unknown int) {
	return int(s.openVolumes.Load()), int(s.unknownVolumes.Load())
}

// Requests returns the open requests.
func (s *Syncer) Requests() []*request.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*request.Request
	for _, e := range s.claims {
		if e.request != nil {
			open = append(open, e.request)
		}
	}
	return open
}
