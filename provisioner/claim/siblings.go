package claim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// The siblings of a claim are the other claims of its Pod that wait for volumes of this driver on a selected node. A PersistentVolume ties the
// Pod to a zone in which another may get none. So a volume that was made is held until its siblings have theirs, and is deleted if one of
// them can't have one there.

const (
	// siblingWait is how long a claim waits for its siblings. It is longer than a call of the driver with the chart's --timeout, and shorter
	// than the ten minutes after which the scheduler gives up a Pod whose claims are not bound. The Pod waits for the sibling anyway.
	siblingWait = 3 * time.Minute
	// selectionWait is how long a volume is held for a sibling for which the node was not selected: the scheduler selects a node for one
	// claim of a Pod after the other.
	selectionWait = 10 * time.Second
	// siblingCheckInterval is how often a claim that awaits a sibling looks for it.
	siblingCheckInterval = 10 * time.Second
	// maxDiscards is how many volumes of a claim in a row this process deletes for the sake of siblings: what was made after that is saved, so
	// that no claim has disks made and deleted without end.
	maxDiscards = 3
)

// siblings says what the siblings of a claim mean for it. Syncer.mu is held.
type siblings interface {
	// mayAsk returns nil if the driver may be called for the claim, else a *failure.
	mayAsk(claim *v1.PersistentVolumeClaim) error
	// judge says what is to become of a volume that was made.
	judge(asked *request.Request, made *csi.Volume) judgement
	// wakeSiblings tells the siblings that the claim has got further.
	wakeSiblings(claim *v1.PersistentVolumeClaim)
}

// judgement says what is to become of a volume that was made. The zero value: it is saved.
type judgement struct {
	refused    error // a sibling can't have a volume there, or the Pod can't run there: the volume is deleted
	awaited    error // a sibling may get its volume yet: the volume is held
	unselected bool  // the node was not selected for any sibling that is awaited: perhaps it never is
}

// hold returns nil if the volume is to be saved now. One that the API server has refused to save was held long enough, but may have become
// useless since.
func (t *task) hold() error {
	if t.isUnneeded() || t.maybeSaved {
		return nil
	}
	judged := t.siblings.judge(t.request, t.volume)
	limit := t.since.Add(siblingWait)
	if judged.unselected {
		limit = t.since.Add(selectionWait)
	}
	left := limit.Sub(t.Now())
	switch {
	case judged.refused != nil && t.mayDiscard() && t.request.MayReschedule():
		return t.discard(judged.refused)
	case judged.awaited == nil || left <= 0 || t.failure != nil && t.failure.kind == unsaved:
		return nil
	}
	t.Events.Eventf(t.request.Claim, v1.EventTypeNormal, reasonHeld, "volume %s is made for node %s; its PersistentVolume is not saved yet: %v",
		t.volume.VolumeId, t.request.Node, judged.awaited)
	return &failure{kind: held, err: judged.awaited, wait: min(left, siblingCheckInterval)}
}

// mayDiscard says whether deleting the volume stays within maxDiscards. One whose deletion has failed is still the same one.
func (t *task) mayDiscard() bool {
	return len(t.discarded) < maxDiscards || slices.Contains(t.discarded, t.volume.VolumeId)
}

// discard deletes the volume, and returns nil if it has to be saved after all.
func (t *task) discard(cause error) error {
	made := t.volume
	cause = fmt.Errorf("volume %s was made for node %s and is deleted: %w", made.VolumeId, t.request.Node, cause)
	t.volume = nil // what becomes of it is unknown until it is deleted
	if !slices.Contains(t.discarded, made.VolumeId) {
		t.discarded = append(t.discarded, made.VolumeId) // if the answer is lost, too
	}
	switch err := t.deleteUnowned(made.VolumeId, t.recovered, t.metrics.discarded); {
	case isOwned(err), isKept(err):
		t.volume = made
		return nil
	case err != nil: // the same request finds out whether it is gone
		return &failure{kind: unknown, err: fmt.Errorf("%w; it could not be deleted yet: %w", cause, err)}
	}
	t.endRequest()
	return &failure{kind: reschedules, err: cause}
}

// awaitSibling has the claim looked at again once a sibling has got further. One for which the driver was not called yet returns to the
// scheduler if that takes too long, for its selected node keeps the Pod from every other node.
func (t *task) awaitSibling(f *failure) time.Duration {
	t.note(f)
	if f.kind == siblingFirst {
		left := siblingWait - t.lasts(f)
		if left <= 0 {
			return t.reschedule(&failure{kind: reschedules, err: f.err})
		}
		f.wait = min(left, siblingCheckInterval)
	}
	t.Objects.Unsubscribe(string(t.uid))
	t.notBefore = t.Now().Add(f.wait)
	if t.woken {
		return t.soon()
	}
	return f.wait
}

// sibling is what is known of a sibling.
type sibling struct {
	claim     *v1.PersistentVolumeClaim
	pod       string
	progress  progress
	selected  bool  // the node of the claim whose sibling it is was selected for it, too
	discarded bool  // a volume of its was deleted for the sake of a sibling
	refusal   error // why the driver is not asked for its volume now
	scarce    bool  // the driver's last answer to its request or an equal one was a refusal
}

func (s sibling) String() string { return fmt.Sprintf("claim %s of Pod %s", s.claim.Name, s.pod) }

// progress is how far a claim has come to a volume.
type progress int

const (
	// notBegun: no attempt is under way.
	notBegun progress = iota
	// underWay: an attempt may lead to a volume yet.
	underWay
	// hasFailed: the last attempt failed for a reason that another node does not change.
	hasFailed
	// isMade: the volume exists.
	isMade
)

func (e *entry) progress() progress {
	f := e.failure
	switch {
	case e.volume != nil, e.pv != "" && f == nil && !e.working: // else its PersistentVolume may have gone
		return isMade
	case e.working || e.request != nil:
		return underWay
	case f == nil:
		return notBegun
	case f.quiet || f.kind == siblingFirst || f.kind == nodeNotRemoved:
		return underWay
	}
	return hasFailed
}

// precedence says which of two claims the driver is asked for first: for one that it has refused of late, then for one that has not had to
// give up a volume for the other. Negative: a before b; 0: for both at the same time.
func precedence(a, b sibling) int {
	rank := func(first bool) int {
		if first {
			return 0
		}
		return 1
	}
	if !a.scarce && !b.scarce && !a.discarded && !b.discarded {
		return 0
	}
	return cmp.Or(
		cmp.Compare(rank(a.scarce), rank(b.scarce)), cmp.Compare(rank(!a.discarded), rank(!b.discarded)),
		cmp.Compare(a.claim.UID, b.claim.UID))
}

var (
	// errReturned says why the driver is not asked for a sibling's volume.
	errReturned = errors.New("it has returned to the scheduler")
	// errSiblingFirst says why a claim is not provisioned before a sibling.
	errSiblingFirst = errors.New("gets its volume first: the driver has refused one of the two of late")
	// errNodeChanged says that a volume was made for a node that is not the selected one any more.
	errNodeChanged = errors.New("another node was selected since")
)

// mayAsk goes by what the caches show of the claim's Pod.
func (s *Syncer) mayAsk(claim *v1.PersistentVolumeClaim) error {
	all := s.siblingsOf(claim)
	if len(all) == 0 {
		return nil
	}
	err := mayAsk(s.standing(claim, claim, ""), all)
	if f, ok := errors.AsType[*failure](err); ok && f.kind == reschedules {
		s.metrics.skipped.Inc()
	}
	return err
}

func mayAsk(own sibling, all []sibling) error {
	var first error
	for _, other := range all {
		switch {
		case other.progress == isMade:
		case other.refusal != nil:
			return &failure{kind: reschedules, err: refusedError(other, own.claim)}
		case other.progress == hasFailed:
		case other.selected && precedence(other, own) < 0:
			first = &failure{kind: siblingFirst, err: fmt.Errorf("%s %w", other, errSiblingFirst)}
		}
	}
	return first
}

// refusedError says that the claim gets no volume because a sibling gets none.
func refusedError(other sibling, claim *v1.PersistentVolumeClaim) error {
	return fmt.Errorf("%s can't have a volume for node %s, so this claim returns to the scheduler with it: %w", other, claim.Annotations[request.AnnSelectedNode], other.refusal)
}

// judge refuses a volume that is of no use: to a Pod that was deleted meanwhile and came back for another zone, or to one that can't run on the
// claim's node.
func (s *Syncer) judge(asked *request.Request, made *csi.Volume) judgement {
	if err := cmp.Or(s.checkNode(asked, made), s.checkPodsNow(asked.Claim)); err != nil {
		return judgement{refused: err}
	}
	return judge(asked.Claim, s.siblingsOf(asked.Claim))
}

func judge(claim *v1.PersistentVolumeClaim, all []sibling) (judged judgement) {
	for _, other := range all {
		switch {
		case other.progress == isMade:
		case other.refusal != nil:
			return judgement{refused: refusedError(other, claim)}
		case other.progress != hasFailed && (judged.awaited == nil || judged.unselected):
			judged = judgement{unselected: !other.selected, awaited: fmt.Errorf("%s has no volume yet", other)}
		}
	}
	return judged
}

// checkNode returns an error if another node has been selected for the claim than the request is for, and it is in another zone than the
// volume. What the caches don't show is no reason.
func (s *Syncer) checkNode(asked *request.Request, made *csi.Volume) error {
	now := s.cached(asked.Claim.UID)
	if now == nil || asked.Node == "" || !s.SupportsTopology {
		return nil
	}
	node := now.Annotations[request.AnnSelectedNode]
	if node == "" || node == asked.Node {
		return nil
	}
	requirement, err := s.Topology.Require(topology.Question{SelectedNode: node, Strict: true})
	if err != nil || len(requirement.GetRequisite()) != 1 {
		return nil //nolint:nilerr // the node's zone can't be told: that is no reason to delete the volume
	}
	zone, terms := topology.ZoneOfTerm(requirement.Requisite[0]), made.GetAccessibleTopology()
	isUsable := func(term *csi.Topology) bool { in := topology.ZoneOfTerm(term); return in == "" || in == zone }
	if zone == "" || len(terms) == 0 || slices.ContainsFunc(terms, isUsable) {
		return nil
	}
	return fmt.Errorf("%w, %s in zone %s", errNodeChanged, node, zone)
}

// siblingsOf returns the siblings of a claim.
func (s *Syncer) siblingsOf(claim *v1.PersistentVolumeClaim) []sibling {
	var all []sibling
	pod, others := s.otherClaims(claim)
	for _, other := range others {
		if s.waitsForNode(other) {
			all = append(all, s.standing(other, claim, pod))
		}
	}
	return all
}

// standing returns what is known of a claim, if its volume is for the node of another one.
func (s *Syncer) standing(of, on *v1.PersistentVolumeClaim, pod string) sibling {
	known := sibling{claim: of, pod: pod, selected: of.Annotations[request.AnnSelectedNode] == on.Annotations[request.AnnSelectedNode]}
	if e := s.claims[of.UID]; e != nil {
		known.progress, known.discarded = e.progress(), len(e.discarded) > 0
	}
	if known.progress != isMade && !s.Refusals.IsEmpty() { // else there is nothing to work out for each claim of a large Pod
		if want, ok := s.wantFor(of, on.Annotations[request.AnnSelectedNode]); ok {
			known.refusal, known.scarce = s.Refusals.Refuses(want), s.Refusals.IsScarce(want)
		}
	}
	if known.refusal == nil && known.progress == notBegun && s.hasReturned(of, on) {
		known.refusal = errReturned
	}
	return known
}

// hasReturned says whether a claim has lost its selected node since that of another one was selected. The scheduler selects a node for all
// claims of a Pod before it writes the first, so it overwrites no newer version of the others.
func (s *Syncer) hasReturned(of, on *v1.PersistentVolumeClaim) bool {
	if of.Annotations[request.AnnSelectedNode] != "" {
		return false
	}
	if on.ResourceVersion == "" { // it is from the journal
		if on = s.cached(on.UID); on == nil {
			return false
		}
	}
	return watch.IsOlder(on.ResourceVersion, of.ResourceVersion)
}

// wantFor returns what package stock knows the request of a claim with siblings by, if its volume is for a node, and the caches show all of it.
func (s *Syncer) wantFor(claim *v1.PersistentVolumeClaim, node string) (stock.Want, bool) {
	class, err := s.classOf(claim)
	if err != nil || request.DataSource(claim) != nil || request.AttributesClass(claim) != nil {
		return stock.Want{}, false
	}
	plan, err := request.NewPlan(s.Options, claim, class, node)
	if err != nil {
		return stock.Want{}, false
	}
	plan.RequireNode()
	requirement, err := s.requirement(plan)
	if err != nil {
		return stock.Want{}, false
	}
	return wantOf(plan.Request(request.Inputs{Requirement: requirement})), true
}

// wakeSiblings tells the siblings of a claim that it has got further. s.mu is held.
func (s *Syncer) wakeSiblings(claim *v1.PersistentVolumeClaim) {
	told := map[string]bool{claim.Name: true} // Pods may have the same claims
	for _, pod := range s.Pods.OfClaim(claim.Namespace, claim.Name) {
		s.wakeClaims(pod, told)
	}
}

// wakeClaims tells the claims of a Pod that were not told yet that a sibling has got further. Only those that wait for one are looked at:
// attempts that fail must not wake each other. s.mu is held.
func (s *Syncer) wakeClaims(pod *watch.Pod, told map[string]bool) {
	for _, name := range pod.Claims {
		if told[name] {
			continue
		}
		told[name] = true
		if other := s.claimNamed(pod.Namespace, name); other != nil {
			if e := s.claims[other.UID]; e != nil && e.failure.awaitsSibling() {
				s.wake(other.UID, e)
			}
		}
	}
}
