package provisioner

import (
	"errors"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/watch"
)

// The handlers pass the watches' events on to the claims, the deletions and the index of zones.

// register registers the handlers that a process needs while it stands by, too.
func (c *Controller) register() error {
	classGone := func(class *storagev1.StorageClass) {
		c.claims.ClassGone(class.Name)
		c.metrics.byClass.Forget(class.Name)
	}
	return errors.Join(
		c.caches.Handle(c.caches.Classes, watch.OnUpdate(c.classChanged, classGone)),
		c.caches.Handle(c.caches.Attachments, watch.OnEvent(nil, c.deletion.AttachmentDeleted)),
		c.caches.Handle(c.caches.Nodes, watch.OnUpdate(c.nodeChanged, c.nodeGone)),
		c.caches.Handle(c.caches.CSINodes, watch.OnEvent(c.csiNodeChanged, c.csiNodeGone)),
	)
}

// lead handles all claims and volumes of the caches, and their events from now on: a process that stands by queues none, for no
// worker would take it. The informer shows a new handler all objects and then their events, so that none is handled after it went.
func (c *Controller) lead() error {
	c.claims.Lead()
	return errors.Join(
		c.caches.Handle(c.caches.Volumes, watch.OnUpdate(c.volumeChanged, c.volumeGone)),
		c.caches.Handle(c.caches.Claims, watch.OnUpdate(c.claimChanged, c.claims.ClaimGone)),
	)
}

func (c *Controller) claimChanged(old, now *v1.PersistentVolumeClaim) {
	c.protection.ClaimChanged(now)
	c.claims.ClaimChanged(old, now)
}

func (c *Controller) volumeChanged(old, pv *v1.PersistentVolume) {
	c.claims.VolumeChanged(old, pv)
	if !c.isBoundTo(pv) { // several of one claim are found by the events of those that it is not bound to
		c.reportDuplicates(pv)
	}
	c.deletion.VolumeChanged(pv)
	c.volumeOfAnother(pv)
}

func (c *Controller) volumeGone(pv *v1.PersistentVolume) {
	c.deletion.VolumeDeleted(pv)
	c.claims.VolumeGone(pv)
}

// isBoundTo says whether the cache shows the claim of the PersistentVolume bound to it.
func (c *Controller) isBoundTo(pv *v1.PersistentVolume) bool {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return false
	}
	claims, err := watch.ClaimsWithUID(c.caches.Claims.GetIndexer(), ref.UID)
	return err == nil && len(claims) > 0 && claims[0].Spec.VolumeName == pv.Name
}

// classChanged ignores what the informer delivers again unchanged.
func (c *Controller) classChanged(old, now *storagev1.StorageClass) {
	if old == nil || old.ResourceVersion != now.ResourceVersion {
		c.claims.ClassChanged(now.Name)
	}
}

// nodeChanged ignores heartbeats: only labels matter.
func (c *Controller) nodeChanged(old, now *metav1.PartialObjectMetadata) {
	if old != nil && maps.Equal(old.Labels, now.Labels) {
		return
	}
	c.index.SetNode(&v1.Node{ObjectMeta: now.ObjectMeta})
	if old == nil || !equalIgnoringPrefix(c.config.ExtraLabelPrefix, old.Labels, now.Labels) {
		c.claims.NodeChanged(now.Name)
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

func (c *Controller) nodeGone(node *metav1.PartialObjectMetadata) {
	c.index.DeleteNode(node.Name)
	c.claims.NodeChanged(node.Name)
}

func (c *Controller) csiNodeChanged(node *storagev1.CSINode) {
	if c.index.SetCSINode(node) {
		c.claims.NodeChanged(node.Name)
	}
}

func (c *Controller) csiNodeGone(node *storagev1.CSINode) {
	c.index.DeleteCSINode(node.Name)
	c.claims.NodeChanged(node.Name)
}
