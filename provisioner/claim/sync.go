package claim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// openRequest is a request that may have made, or may yet make, a volume without a PersistentVolume; without one, all is zero.
type openRequest struct {
	request    *request.Request  // what the driver is asked for: the journal may have it, so it stays what it is
	recovered  bool              // it is from the journal of an earlier process, whose volume may have been used since
	maybeMade  bool              // an earlier call for it may have made its volume
	secrets    map[string]string // that it was last sent with
	volume     *csi.Volume       // that the driver has made for it
	maybeSaved bool              // a PersistentVolume may stand for the volume, or may yet: an answer of the API server was lost
}

// memory is what is remembered of a claim besides what caches and journal show, each for the fact that it stands for. It begins with the
// claim's first attempt and ends when the claim is bound or gone and no volume can exist without a PersistentVolume, or an operator has ended
// the request.
type memory struct {
	openRequest
	nameMayBeTaken bool   // a volume of the claim's name may exist, from whatever request
	pv             string // the PersistentVolume that stood for the claim when it was last looked for
	version        string // a cache with an older version of the claim shows a selected node that was removed

	failure   *failure  // how the last attempt ended; nil: with a volume, or with the claim's return to the scheduler
	since     time.Time // when the first failure of its kind in a row was, or when the volume was made
	failures  int       // in a row
	notBefore time.Time // when the next attempt is due
	woken     bool      // something that the claim may wait for has changed since the last attempt began
	discarded []string  // volumes in a row that were deleted, or may have been, because another claim of the Pod could not have one
}

// task is one look at a claim.
type task struct {
	*Syncer
	*entry
	ctx   context.Context
	uid   types.UID
	claim *v1.PersistentVolumeClaim // that the request was open for at the beginning, else as the cache showed it then or at checkVolume; nil for none
	made  *v1.PersistentVolume      // that save has written
}

func (s *Syncer) newTask(ctx context.Context, uid types.UID, e *entry) *task {
	t := &task{Syncer: s, entry: e, ctx: ctx, uid: uid}
	if t.claim = t.cached(); t.request != nil {
		t.claim = t.request.Claim
	}
	if t.claim != nil {
		e.class, e.node = request.ClassName(t.claim), t.claim.Annotations[request.AnnSelectedNode]
	}
	return t
}

// sync brings a claim as far as it gets, and returns after what time to look at it again; 0: once something has changed.
func (t *task) sync() (again time.Duration) {
	switch pv := t.saved(); {
	case pv != nil:
		return t.finish(pv)
	case t.request == nil && !t.isWanted():
		return t.forget()
	case t.request == nil && t.hasVolume():
		return lookAgain // or once the claim is bound or the volume goes
	case t.endAsRequested():
		return t.forget()
	case !t.isDue():
		return t.rest()
	}
	t.woken = false
	if t.volume == nil {
		t.began = t.Now()
	}
	for _, step := range []func() error{t.prepare, t.create, t.hold, t.save} {
		if err := step(); err != nil {
			return t.fail(err)
		}
	}
	return t.finish(t.made)
}

// errChanged ends an attempt because something has changed that sync decides about at its beginning.
var errChanged = errors.New("the claim or its volume has changed meanwhile")

// errBehind ends an attempt until a watch shows what the API server knows already.
var errBehind = errors.New("the cache is behind the API server")

// cacheLag is after what time the API server is asked for what a cache doesn't show although it should: a watch that begins anew shows
// neither that an object came nor that it went.
const cacheLag = time.Minute

// lookAgain is how often a claim is looked at that has a volume and is not bound to it.
const lookAgain = 15 * time.Minute

// errNotOurs ends an attempt for a claim that is not for this provisioner at present, or has no selected node.
var errNotOurs = errors.New("the claim has no selected node, or is not for this provisioner")

// cached returns the claim as the cache shows it, nil for none: it is gone then.
func (t *task) cached() *v1.PersistentVolumeClaim { return t.Syncer.cached(t.uid) }

// isWanted says whether the claim exists and needs a volume.
func (t *task) isWanted() bool {
	claim := t.cached()
	return claim != nil && request.NeedsVolume(claim)
}

// isUnneeded says whether the claim needs no volume, or has one that is not the request's.
func (t *task) isUnneeded() bool { return !t.isWanted() || len(t.others()) > 0 }

// volumes returns the PersistentVolumes of the claim that the cache shows.
func (t *task) volumes() []*v1.PersistentVolume {
	volumes, _ := watch.VolumesOfClaim(t.Volumes, t.uid) // there is such an index
	return volumes
}

// saved returns the PersistentVolume of the open request's volume, nil if the cache shows none.
func (t *task) saved() *v1.PersistentVolume {
	if t.request == nil {
		return nil
	}
	volumes := t.volumes()
	if i := slices.IndexFunc(volumes, t.request.IsSavedAs); i >= 0 {
		return volumes[i]
	}
	return nil
}

// others returns the claim's PersistentVolumes that are not the open request's.
func (t *task) others() []*v1.PersistentVolume {
	volumes := t.volumes()
	if t.request == nil {
		return volumes
	}
	return slices.DeleteFunc(volumes, t.request.IsSavedAs)
}

// hasVolume says whether the cache shows a PersistentVolume that stands for the claim.
func (t *task) hasVolume() bool {
	volumes := t.volumes()
	if len(volumes) == 0 {
		return false
	}
	t.pv, t.failure = volumes[0].Name, nil
	return true
}

// forget ends what is remembered of a claim that needs nothing any more.
func (t *task) forget() time.Duration {
	delete(t.claims, t.uid)
	t.Objects.Unsubscribe(string(t.uid))
	return 0
}

// endRequest ends the open request without a PersistentVolume: no volume exists from it, but for one that is kept for good (leave) or that an
// operator has given up. It waits until the journal has it no more, because a process that finds it makes its volume anew; if that fails, the
// record goes with a later write.
func (t *task) endRequest() {
	t.closeRequest()
	if err := t.unlocked(func(ctx context.Context) error { return t.Journal.Flush(ctx, string(t.uid)) }); err != nil {
		klog.V(2).InfoS("A request that has ended is in the journal still", "claim", t.uid, "err", err)
	}
}

// closeRequest ends the open request. If the claim or its class has changed since the request was made, the next attempt need not wait.
func (t *task) closeRequest() {
	asked := t.request
	t.Journal.Delete(string(t.uid))
	if hasSource(asked) {
		t.Protection.Unprotect(t.uid)
	}
	t.openRequest, t.bytes = openRequest{}, 0
	if now := t.cached(); now != nil && (asked.Claim.ResourceVersion == "" || !isSame(asked.Claim, now) || t.hasOtherClass(now, asked)) {
		t.woken = true
	}
}

// hasOtherClass says whether the cache shows another state of the claim's class than that which the request was made of.
func (t *task) hasOtherClass(claim *v1.PersistentVolumeClaim, asked *request.Request) bool {
	now, err := t.classOf(claim)
	return err == nil && (now.UID != asked.Class.UID || now.ResourceVersion != asked.Class.ResourceVersion)
}

// finish ends an attempt whose volume has a PersistentVolume.
func (t *task) finish(pv *v1.PersistentVolume) time.Duration {
	t.reportSaved(pv)
	t.closeRequest()
	t.pv, t.failure, t.failures, t.discarded = pv.Name, nil, 0, nil
	t.Objects.Unsubscribe(string(t.uid))
	if !t.isWanted() {
		return t.forget()
	}
	return cacheLag
}

// endAsRequested ends the open request if an operator has asked for that, and says whether it has. A request whose claim needs a volume
// stays, because it would begin again.
func (t *task) endAsRequested() bool {
	reason := t.Journal.EndRequest(string(t.uid))
	switch {
	case reason == "":
		return false
	case t.request == nil:
		t.rejectEnd(reason, "nothing is under way for it")
		return false
	case t.isWanted():
		t.rejectEnd(reason, "its claim still wants a volume; allowed are records whose claim is deleted or bound")
		return false
	}
	t.reportEnd(reason)
	t.endRequest()
	return true
}

// hasSource says whether the request's volume is filled from a snapshot or a claim.
func hasSource(r *request.Request) bool { return request.DataSource(r.Claim) != nil }
