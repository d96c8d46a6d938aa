package provisioner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// The siblings of a claim are the other claims of its Pod that wait for volumes of this driver on a selected node. The
// PersistentVolume of one ties the Pod to a zone in which another may get none. Everything here is read from caches.

// siblingWait is how long a claim waits for its siblings. It is longer than a call of the driver with the chart's --timeout,
// and shorter than the ten minutes after which the scheduler gives up a Pod whose claims are not bound. The Pod waits for the
// sibling anyway.
const siblingWait = 3 * time.Minute

// siblings judges what the siblings of claims mean for them.
type siblings struct {
	p    *Provisioner
	pods *watch.Pods // nil: a claim has no siblings
}

// sibling is what is known of a sibling.
type sibling struct {
	claim     *v1.PersistentVolumeClaim
	pod       string
	progress  attempt.Progress
	selected  bool  // the node of the claim whose sibling it is was selected for it, too
	discarded bool  // a volume of its was deleted for the sake of a sibling
	refusal   error // why the driver is not asked for its volume now
	scarce    bool  // the driver's last answer to its request or an equal one was a refusal
}

func (s sibling) String() string { return fmt.Sprintf("claim %s of Pod %s", s.claim.Name, s.pod) }

// precedence says which of two claims the driver is asked for first: for one that it has refused of late, then for one that
// has not had to give up a volume for the other. Negative: a before b; 0: for both at the same time.
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

// errReturned says why the driver is not asked for a sibling's volume.
var errReturned = errors.New("it has returned to the scheduler")

// errSiblingFirst says why a claim is not provisioned before a sibling.
var errSiblingFirst = errors.New("gets its volume first: the driver has refused one of the two of late")

// order is what the siblings mean for a claim that the driver has not been asked for.
type order struct {
	refused error // the driver refuses one of them
	first   error // the driver is asked for one of them first
}

// order returns what the siblings mean for a claim that the driver has not been asked for.
func (s *siblings) order(claim *v1.PersistentVolumeClaim) order {
	all := s.of(claim)
	if len(all) == 0 {
		return order{}
	}
	return orderOf(s.standing(claim, claim, ""), all)
}

func orderOf(own sibling, all []sibling) (o order) {
	for _, other := range all {
		switch {
		case other.progress == attempt.VolumeMade:
		case other.refusal != nil:
			o.refused = refusedError(other, own.claim)
		case other.progress == attempt.Failed:
		case other.selected && precedence(other, own) < 0:
			o.first = fmt.Errorf("%s %w", other, errSiblingFirst)
		}
	}
	return o
}

// refusedError says that the claim gets no volume because a sibling gets none.
func refusedError(other sibling, claim *v1.PersistentVolumeClaim) error {
	return fmt.Errorf("%s can't have a volume for node %s, so this claim returns to the scheduler with it: %w", other, claim.Annotations[request.AnnSelectedNode], other.refusal)
}

// judge returns what the siblings mean for a claim whose volume was made.
func (s *siblings) judge(r *request.Request) attempt.Siblings { return judgeOf(r.Claim, s.of(r.Claim)) }

func judgeOf(claim *v1.PersistentVolumeClaim, all []sibling) (judged attempt.Siblings) {
	for _, other := range all {
		switch {
		case other.progress == attempt.VolumeMade:
		case other.refusal != nil:
			return attempt.Siblings{State: attempt.Refused, Err: refusedError(other, claim)}
		case other.progress != attempt.Failed && (judged.State == attempt.NoneAwaited || judged.Unselected):
			judged = attempt.Siblings{State: attempt.Awaited, Unselected: !other.selected, Err: fmt.Errorf("%s has no volume yet", other)}
		}
	}
	return judged
}

// of returns the siblings of a claim.
func (s *siblings) of(claim *v1.PersistentVolumeClaim) []sibling {
	var all []sibling
	pod, others := s.others(claim)
	for _, other := range others {
		if s.p.resolver.waitsForNode(other) {
			all = append(all, s.standing(other, claim, pod))
		}
	}
	return all
}

// requireNode says whether the claim's volume must be in the selected node's zone, whatever its class says: another claim of the
// Pod gets its volume there, or has one of this driver in a zone already.
func (s *siblings) requireNode(claim *v1.PersistentVolumeClaim) bool {
	_, others := s.others(claim)
	return slices.ContainsFunc(others, func(other *v1.PersistentVolumeClaim) bool {
		pv := volumeOfClaim(s.p.volumes, other)
		return s.p.resolver.waitsForNode(other) || pv != nil && len(topology.ZonesOfVolume(pv)) > 0
	})
}

// others returns the other claims of a claim's Pod, and the Pod's name. A claim that several Pods wait for has none: it can't be
// known for which of them its node was selected.
func (s *siblings) others(claim *v1.PersistentVolumeClaim) (pod string, others []*v1.PersistentVolumeClaim) {
	one := s.podOf(claim)
	if one == nil {
		return "", nil
	}
	for _, name := range one.Claims {
		if other := claimNamed(s.p.claims, claim.Namespace, name); name != claim.Name && other != nil {
			others = append(others, other)
		}
	}
	return one.Name, others
}

// podOf returns the one Pod that waits for the claim and others, nil for none or several.
func (s *siblings) podOf(claim *v1.PersistentVolumeClaim) (pod *watch.Pod) {
	if s == nil || !s.p.config.SupportsTopology || claim.Annotations[request.AnnSelectedNode] == "" {
		return nil
	}
	for _, one := range s.pods.OfClaim(claim.Namespace, claim.Name) {
		switch {
		case one.DeletionTimestamp != nil:
		case pod != nil:
			return nil
		default:
			pod = one
		}
	}
	return pod
}

// standing returns what is known of a claim, if its volume is for the node of another one.
func (s *siblings) standing(of, on *v1.PersistentVolumeClaim, pod string) sibling {
	known := sibling{claim: of, pod: pod, selected: of.Annotations[request.AnnSelectedNode] == on.Annotations[request.AnnSelectedNode]}
	known.progress, known.discarded = s.p.attempts.Standing(of.UID)
	if want, ok := s.p.resolver.want(of, on.Annotations[request.AnnSelectedNode]); ok {
		known.refusal, known.scarce = s.p.refusals.Refuses(want), s.p.refusals.IsScarce(want)
	}
	if known.refusal == nil && known.progress == attempt.NoAttempt && s.hasReturned(of, on) {
		known.refusal = errReturned
	}
	return known
}

// hasReturned says whether a claim has lost its selected node since that of another one was selected. The scheduler selects a
// node for all claims of a Pod before it writes the first, so it overwrites no newer version of the others.
func (s *siblings) hasReturned(of, on *v1.PersistentVolumeClaim) bool {
	if of.Annotations[request.AnnSelectedNode] != "" {
		return false
	}
	if on.ResourceVersion == "" { // it is from the journal
		if on = claimWithUID(s.p.claims, on.Namespace, on.Name, on.UID); on == nil {
			return false
		}
	}
	order, err := resourceversion.CompareResourceVersion(of.ResourceVersion, on.ResourceVersion)
	return err == nil && order > 0
}

// wake tells the siblings of a claim that it has got further.
func (s *siblings) wake(claim *v1.PersistentVolumeClaim) {
	if s == nil {
		return
	}
	for _, pod := range s.pods.OfClaim(claim.Namespace, claim.Name) {
		s.wakeClaims(pod, claim.Name)
	}
}

// wakeClaims tells the claims of a Pod, but for one, that a sibling has got further.
func (s *siblings) wakeClaims(pod *watch.Pod, but string) {
	for _, name := range pod.Claims {
		if other := claimNamed(s.p.claims, pod.Namespace, name); name != but && other != nil {
			s.p.attempts.Post(other.UID, attempt.SiblingChanged{})
		}
	}
}

// want returns what package stock knows the request of a claim with siblings by, if its volume is for a node, and the caches show all of it.
func (r *resolver) want(claim *v1.PersistentVolumeClaim, node string) (stock.Want, bool) {
	class, err := r.class(claim)
	if err != nil || request.DataSource(claim) != nil || request.AttributesClass(claim) != nil {
		return stock.Want{}, false
	}
	plan, err := request.NewPlan(r.config.Options, claim, class, node)
	if err != nil {
		return stock.Want{}, false
	}
	plan.RequireNode()
	requirement, err := r.requirement(plan)
	if err != nil {
		return stock.Want{}, false
	}
	return stockWant(plan.Request(request.Inputs{Requirement: requirement})), true
}

// waitsForNode says whether this driver is to make the claim's volume for a node that the scheduler selects.
func (r *resolver) waitsForNode(claim *v1.PersistentVolumeClaim) bool {
	if by := request.ProvisionerOf(claim); by != "" && by != r.config.DriverName || !request.ShouldProvision(claim) {
		return false
	}
	class, err := r.class(claim)
	return err == nil && class.Provisioner == r.config.DriverName && ptr.Deref(class.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer
}
