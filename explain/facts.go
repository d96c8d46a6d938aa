// Package explain tells why a Pod, claim, volume, node or VolumeAttachment waits. It does no I/O: Facts in, one Verdict out. Package
// explain/collect reads the Facts from a cluster.
package explain

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Facts are what was read of a cluster to explain one object. A kind that is in Unread may be incomplete, and a judgement that needs it
// is Unknown. Facts hold no Secret, no value of an environment variable and no managed fields, so that they can be sent to a stranger.
//
// What each subject needs, beside the object itself and the events that involve an object named here (of Pods that use a claim, at most
// MaxTellingPods):
//
//   - Pod: its claims (the ephemeral ones, too) and all that they need; VolumeAttachments, Nodes and CSINodes, all of them;
//     CSIStorageCapacities of the claims' classes; the Pods that use the same claims; and the Pods on the nodes
//     that RoomNodes names, with the PersistentVolumes bound to these Pods' claims: they tell what room is left. If these nodes are more
//     than MaxRoomNodes, none of their Pods is needed, and an Unread of kind Pod says so: the scheduler's message tells what room there is.
//   - PersistentVolumeClaim: its StorageClass, VolumeAttributesClasses (that of the claim and that of its status) and PersistentVolume;
//     the VolumeSnapshot or the claim that it is filled from; the Pods of its namespace that use it; the Node and the CSINode that is
//     selected; all Nodes and CSINodes if it binds at once, CSIStorageCapacities of its class; the Leases of its provisioner
//     (their name is the driver's with dashes for dots), the CSIDriver; the VolumeAttachments of its volume; the Journal, if it can be had.
//     If no node is selected for it, and a Pod that has not ended uses it: all that the oldest of these Pods needs that isn't going.
//   - PersistentVolume: its claim and class; all PersistentVolumes of the same volumeHandle; its VolumeAttachments, and their Nodes;
//     the Leases of the provisioner.
//   - Node: its CSINode, the CSIDriver, the Pods on it and the PersistentVolumes of their claims; the VolumeAttachments of it; its Lease.
//   - VolumeAttachment: its PersistentVolume and claim, its Node and CSINode; the Pods that use the claim; the other
//     VolumeAttachments of the same volume and of the same node; the Nodes of the former.
//
// A list that is empty and not in Unread means that there is no such object.
type Facts struct {
	// At is when the facts were read, by the API server's clock if its answers tell it.
	At time.Time `json:"at"`
	// Driver is the CSI driver's name.
	Driver string `json:"driver"`
	// Subject is the object to be explained.
	Subject Ref `json:"subject"`

	Nodes       []corev1.Node                     `json:"nodes,omitempty"`
	CSINodes    []storagev1.CSINode               `json:"csiNodes,omitempty"`
	CSIDriver   *storagev1.CSIDriver              `json:"csiDriver,omitempty"`
	Classes     []storagev1.StorageClass          `json:"classes,omitempty"`
	Attributes  []storagev1.VolumeAttributesClass `json:"volumeAttributesClasses,omitempty"`
	Capacities  []storagev1.CSIStorageCapacity    `json:"capacities,omitempty"`
	Claims      []corev1.PersistentVolumeClaim    `json:"claims,omitempty"`
	Volumes     []corev1.PersistentVolume         `json:"volumes,omitempty"`
	Attachments []storagev1.VolumeAttachment      `json:"attachments,omitempty"`
	Pods        []corev1.Pod                      `json:"pods,omitempty"`
	Snapshots   []Snapshot                        `json:"snapshots,omitempty"`
	Events      []corev1.Event                    `json:"events,omitempty"`
	Leases      []coordinationv1.Lease            `json:"leases,omitempty"`
	Journal     []Request                         `json:"journal,omitempty"`

	// Unread says what could not be read, and why.
	Unread []Unread `json:"unread,omitempty"`
}

// Snapshot is what is needed of a VolumeSnapshot and its VolumeSnapshotContent.
type Snapshot struct {
	metav1.ObjectMeta `json:"metadata"`
	Class             string `json:"class,omitempty"`
	Content           string `json:"content,omitempty"` // empty as long as the snapshot has none
	Driver            string `json:"driver,omitempty"`  // of the content
	Ready             bool   `json:"ready"`
	RestoreSize       string `json:"restoreSize,omitempty"` // a quantity
	Error             string `json:"error,omitempty"`
}

// Request is what is needed of a request in disk-provisioner's journal: one that it has under way.
type Request struct {
	ClaimUID  string `json:"claimUID"`
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	Node      string `json:"node,omitempty"`
}

// MaxRoomNodes is for how many nodes at most the room is worked out from the Pods on them.
const MaxRoomNodes = 100

// MaxTellingPods is of how many Pods that use a claim the events are needed: those of the oldest.
const MaxTellingPods = 8

// Unread is a kind of objects that could not be read, or not all of them. What was read of the kind all the same is used.
type Unread struct {
	Kind      string `json:"kind"`                // as in a manifest, e.g. PersistentVolume; of the Journal it is ConfigMap
	Namespace string `json:"namespace,omitempty"` // empty: all of them
	Reason    string `json:"reason"`
}

// Ref names an object.
type Ref struct {
	Kind      string `json:"kind"` // as in a manifest, e.g. PersistentVolumeClaim
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the object in words, such as PersistentVolumeClaim shop/data.
func (r Ref) String() string { return r.Kind + " " + r.FullName() }

// FullName returns the name, after the namespace if there is one.
func (r Ref) FullName() string { return key(r.Namespace, r.Name) }
