package provisioner

import (
	"errors"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// handlers pass the watches' events on to the claims, the deletions and the index of zones.
type handlers struct {
	*Controller
	index      *topology.Index
	duplicates *duplicates
}

// register registers the handlers that a process needs while it stands by, too.
func (h *handlers) register(c *watch.Caches) error {
	classGone := func(class *storagev1.StorageClass) {
		h.claims.ClassGone(class.Name)
		h.metrics.byClass.Forget(class.Name)
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
	h.claims.Lead()
	return errors.Join(
		c.Handle(c.Volumes, watch.OnUpdate(h.volumeChanged, h.volumeGone)),
		c.Handle(c.Claims, watch.OnUpdate(h.claimChanged, h.claimGone)),
	)
}

func (h *handlers) claimChanged(old, now *v1.PersistentVolumeClaim) {
	h.protection.ClaimChanged(now)
	h.claims.ClaimChanged(old, now)
}

func (h *handlers) claimGone(gone *v1.PersistentVolumeClaim) { h.claims.ClaimGone(gone) }

// podGone wakes the claims of a Pod that waits for none of them any more.
func (h *handlers) podGone(pod *watch.Pod) { h.claims.PodGone(pod) }

func (h *handlers) volumeChanged(old, pv *v1.PersistentVolume) {
	h.claims.VolumeChanged(old, pv)
	if !h.isBoundTo(pv) { // several of one claim are found by the events of those that it is not bound to
		h.duplicates.volumeChanged(pv)
	}
	h.deletion.VolumeChanged(pv)
	h.volumeOfAnother(pv)
}

func (h *handlers) volumeGone(pv *v1.PersistentVolume) {
	h.deletion.VolumeDeleted(pv)
	h.claims.VolumeGone(pv)
}

// isBoundTo says whether the cache shows the claim of the PersistentVolume bound to it.
func (h *handlers) isBoundTo(pv *v1.PersistentVolume) bool {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return false
	}
	claims, err := watch.ClaimsWithUID(h.caches.Claims.GetIndexer(), ref.UID)
	return err == nil && len(claims) > 0 && claims[0].Spec.VolumeName == pv.Name
}

// classChanged ignores what the informer delivers again unchanged.
func (h *handlers) classChanged(old, now *storagev1.StorageClass) {
	if old == nil || old.ResourceVersion != now.ResourceVersion {
		h.claims.ClassChanged(now.Name)
	}
}

// nodeChanged ignores heartbeats: only labels matter.
func (h *handlers) nodeChanged(old, now *metav1.PartialObjectMetadata) {
	if old != nil && maps.Equal(old.Labels, now.Labels) {
		return
	}
	h.index.SetNode(&v1.Node{ObjectMeta: now.ObjectMeta})
	if old == nil || !equalIgnoringPrefix(h.config.ExtraLabelPrefix, old.Labels, now.Labels) {
		h.claims.NodeChanged(now.Name)
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
	h.claims.NodeChanged(node.Name)
}

func (h *handlers) csiNodeChanged(node *storagev1.CSINode) {
	if h.index.SetCSINode(node) {
		h.claims.NodeChanged(node.Name)
	}
}

func (h *handlers) csiNodeGone(node *storagev1.CSINode) {
	h.index.DeleteCSINode(node.Name)
	h.claims.NodeChanged(node.Name)
}
