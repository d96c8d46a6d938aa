package provisioner

import (
	"errors"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// handlers pass the watches' events on to the Records, the deletions and the index of zones.
type handlers struct {
	p        *Provisioner
	deletion *deletion.Controller
	index    *topology.Index
}

// register registers the handlers that a process needs while it stands by, too.
func (h *handlers) register(c *watch.Caches) error {
	classGone := func(class *storagev1.StorageClass) {
		h.p.attempts.ClassChanged(class.Name)
		h.p.metrics.forget(class.Name)
	}
	return errors.Join(
		c.Handle(c.Classes, watch.OnUpdate(h.classChanged, classGone)),
		c.Handle(c.Attachments, watch.OnEvent(nil, h.deletion.AttachmentDeleted)),
		c.Handle(c.Nodes, watch.OnUpdate(h.nodeChanged, h.nodeGone)),
		c.Handle(c.CSINodes, watch.OnEvent(h.csiNodeChanged, h.csiNodeGone)),
	)
}

// lead handles all claims and volumes of the caches, and their events from now on: a process that stands by queues none, for no
// worker would take it. The informer shows a new handler all objects and then their events, so that none is handled after it went.
func (h *handlers) lead(c *watch.Caches) error {
	h.p.attempts.Lead(h.p.now())
	return errors.Join(
		c.Handle(c.Volumes, watch.OnEvent(h.volumeChanged, h.volumeGone)),
		c.Handle(c.Claims, watch.OnUpdate(h.claimChanged, h.claimGone)),
	)
}

func (h *handlers) claimChanged(old, claim *v1.PersistentVolumeClaim) {
	h.p.protection.ClaimChanged(claim)
	h.p.notifyMigration(claim)
	if !isNoChange(old, claim) {
		h.postClaim(claim)
	}
	if !request.NeedsVolume(claim) {
		h.p.siblings.wake(claim)
	}
}

// isNoChange says whether a claim was changed and nothing that is read of it: its owner would have an attempt made with each change, whatever
// the back-off is. What an informer delivers again counts as a change, in case one was missed.
func isNoChange(old, now *v1.PersistentVolumeClaim) bool {
	if old == nil || old.ResourceVersion == now.ResourceVersion {
		return false
	}
	before := *old
	before.ResourceVersion = now.ResourceVersion
	return equality.Semantic.DeepEqual(&before, now)
}

// podGone wakes the claims of a Pod that waits for none of them any more.
func (h *handlers) podGone(pod *watch.Pod) { h.p.siblings.wakeClaims(pod, "") }

// postClaim posts the claim to its Record. A claim without one gets it if its request can be prefetched.
func (h *handlers) postClaim(claim *v1.PersistentVolumeClaim) {
	changed := attempt.ClaimChanged{Claim: claim}
	if !h.p.attempts.Post(claim.UID, changed) && h.p.resolver.prefetchClass(claim) != nil {
		h.p.attempts.Begin(claim.UID, changed)
	}
}

func (h *handlers) claimGone(claim *v1.PersistentVolumeClaim) {
	h.p.attempts.Post(claim.UID, attempt.ClaimGone{})
	h.p.siblings.wake(claim)
}

func (h *handlers) volumeChanged(pv *v1.PersistentVolume) {
	h.postVolume(pv)
	if !h.isBoundTo(pv) { // several of one claim are found by the events of those that it is not bound to
		h.p.duplicates.volumeChanged(pv)
	}
	if pv.DeletionTimestamp != nil || !request.HasFinalizer(pv) {
		h.expediteErasure(pv)
	}
	h.deletion.VolumeChanged(pv)
}

func (h *handlers) volumeGone(pv *v1.PersistentVolume) {
	h.expediteErasure(pv)
	h.deletion.VolumeDeleted(pv)
	h.p.attempts.Post(request.ClaimUID(pv), attempt.VolumeGone{Name: pv.Name})
}

// postVolume posts the PersistentVolume to the Record of its claim. As long as the cache
// shows the claim unbound, the Record remembers the PersistentVolume.
func (h *handlers) postVolume(pv *v1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return
	}
	seen := attempt.VolumeSeen{Volume: pv}
	if claim := claimWithUID(h.p.claims, ref.Namespace, ref.Name, ref.UID); claim != nil && claim.Spec.VolumeName == "" || claim == nil && mayBeBound(pv) {
		h.p.attempts.Begin(ref.UID, seen)
		return
	}
	h.p.attempts.Post(ref.UID, seen)
}

// isBoundTo says whether the cache shows the claim of the PersistentVolume bound to it.
func (h *handlers) isBoundTo(pv *v1.PersistentVolume) bool {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return false
	}
	claim := claimWithUID(h.p.claims, ref.Namespace, ref.Name, ref.UID)
	return claim != nil && claim.Spec.VolumeName == pv.Name
}

// mayBeBound says whether Kubernetes may bind a claim to the PersistentVolume, or has just done so.
func mayBeBound(pv *v1.PersistentVolume) bool {
	return pv.Status.Phase != v1.VolumeReleased && pv.Status.Phase != v1.VolumeFailed
}

// expediteErasure has the journal's record of the claim deleted within seconds: once its
// PersistentVolume is gone, the record would have the volume made again.
func (h *handlers) expediteErasure(pv *v1.PersistentVolume) {
	if claim := request.ClaimUID(pv); claim != "" {
		h.p.store.Expedite(string(claim))
	}
}

// classChanged ignores what the informer delivers again unchanged.
func (h *handlers) classChanged(old, now *storagev1.StorageClass) {
	if old == nil || old.ResourceVersion != now.ResourceVersion {
		h.p.attempts.ClassChanged(now.Name)
	}
}

// nodeChanged ignores heartbeats: only labels matter.
func (h *handlers) nodeChanged(old, now *metav1.PartialObjectMetadata) {
	if old != nil && maps.Equal(old.Labels, now.Labels) {
		return
	}
	h.index.SetNode(&v1.Node{ObjectMeta: now.ObjectMeta})
	if old == nil || !equalIgnoringPrefix(h.p.config.ExtraLabelPrefix, old.Labels, now.Labels) {
		h.p.attempts.NodeChanged(now.Name)
	}
}

// equalIgnoringPrefix compares labels without those of a prefix: the disk types that a
// node takes open no zone, and they change on every node at once when nodefacts starts.
func equalIgnoringPrefix(prefix string, a, b map[string]string) bool {
	without := func(labels map[string]string) map[string]string {
		labels = maps.Clone(labels)
		maps.DeleteFunc(labels, func(key, _ string) bool { return prefix != "" && strings.HasPrefix(key, prefix) })
		return labels
	}
	return maps.Equal(without(a), without(b))
}

func (h *handlers) nodeGone(node *metav1.PartialObjectMetadata) {
	h.index.DeleteNode(node.Name)
	h.p.attempts.NodeChanged(node.Name)
}

func (h *handlers) csiNodeChanged(node *storagev1.CSINode) {
	if h.index.SetCSINode(node) {
		h.p.attempts.NodeChanged(node.Name)
	}
}

func (h *handlers) csiNodeGone(node *storagev1.CSINode) {
	h.index.DeleteCSINode(node.Name)
	h.p.attempts.NodeChanged(node.Name)
}
