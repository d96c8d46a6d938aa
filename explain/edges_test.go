package explain

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

// edge is a case of verdicts.yaml with a change, and the verdict on it.
type edge struct {
	name, from string
	change     func(f *Facts)
	want       Cause
	state      State    // Waits if empty
	says       []string // in the message
	evidence   []string // as in verdicts.yaml
}

func subject(kind, namespace, name string) func(f *Facts) {
	return func(f *Facts) { f.Subject = Ref{Kind: kind, Namespace: namespace, Name: name} }
}

// capacityUnknownSince says by an event of a time ago that the driver doesn't say how much there is.
func capacityUnknownSince(ago time.Duration) func(f *Facts) {
	return func(f *Facts) {
		f.Events = append(f.Events, corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unknown"}, Reason: reasonCapacityUnknown,
			InvolvedObject: corev1.ObjectReference{Kind: kindCSIDriver, Name: f.Driver}, LastTimestamp: metav1.NewTime(f.At.Add(-ago)),
			Message: "How much storage there is is not known, and the CSIStorageCapacity objects stay as they are: GetCapacity of class disks in map[]: " +
				"rpc error: code = Unavailable desc = DescribeAvailableResource: an empty answer; is ecs:DescribeAvailableResource allowed?"})
	}
}

// both makes one change of several.
func both(changes ...func(f *Facts)) func(f *Facts) {
	return func(f *Facts) {
		for _, change := range changes {
			change(f)
		}
	}
}

func scheduler(message string) func(f *Facts) {
	return func(f *Facts) {
		f.Pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}}
	}
}

// secondClaim gives the first Pod a claim logs like the first claim, of which nothing is said.
func secondClaim(f *Facts) {
	claim := f.Claims[0].DeepCopy()
	claim.Name, claim.UID = "logs", "logs"
	f.Claims = append(f.Claims, *claim)
	f.Pods[0].Spec.Volumes = append(f.Pods[0].Spec.Volumes, volumeOfClaim("logs"))
}

// localClaim gives the first Pod a claim of another driver's class that waits for a node.
func localClaim(f *Facts) {
	secondClaim(f)
	local, name := f.Classes[0].DeepCopy(), "local"
	local.Name, local.UID, local.Provisioner = name, "local", "local.example.com"
	f.Classes = append(f.Classes, *local)
	f.Claims[len(f.Claims)-1].Spec.StorageClassName = &name
}

func singlePod(f *Facts) {
	f.Claims[0].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
}

// otherUser adds a Pod web-old with the first Pod's claims, on a node.
func otherUser(node string) func(f *Facts) {
	return func(f *Facts) {
		other := f.Pods[0].DeepCopy()
		other.Name, other.UID, other.Spec.NodeName = "web-old", "web-old", node
		f.Pods = append(f.Pods, *other)
	}
}

// start makes a Pod's container run.
func start(pod int) func(f *Facts) {
	return func(f *Facts) {
		f.Pods[pod].Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
}

// copyOf has the first claim filled from a claim.
func copyOf(claim string) func(f *Facts) {
	return func(f *Facts) {
		f.Claims[0].Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kindClaim, Name: claim}
	}
}

func nodeResizeError(f *Facts) {
	f.Claims[0].Status.Conditions = append(f.Claims[0].Status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue,
		Message: "failed to expand pvc with rpc error: code = Internal desc = resize2fs failed",
	})
}

func released(f *Facts) { f.Volumes[0].Status.Phase = corev1.VolumeReleased }

// ephemeral gives the first Pod a generic ephemeral volume and no other.
func ephemeral(name string) func(f *Facts) {
	return func(f *Facts) {
		f.Pods[0].Spec.Volumes = []corev1.Volume{{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}
}

func unread(kinds ...string) func(f *Facts) {
	return func(f *Facts) {
		for _, kind := range kinds {
			f.Unread = append(f.Unread, Unread{Kind: kind, Reason: "forbidden"})
		}
	}
}

func deleted(f *Facts) *metav1.Time { return &metav1.Time{Time: f.At.Add(-time.Hour)} }

// oneEvent is an event of an object, and no other.
func oneEvent(object Ref, reason, message string) func(f *Facts) {
	return func(f *Facts) {
		f.Events = []corev1.Event{{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: cmp.Or(object.Namespace, "default")}, Reason: reason, Message: message,
			InvolvedObject: corev1.ObjectReference{Kind: object.Kind, Namespace: object.Namespace, Name: object.Name}, LastTimestamp: metav1.NewTime(f.At)}}
	}
}

func kubeletSays(message string) func(f *Facts) {
	return oneEvent(Ref{Kind: kindPod, Namespace: "shop", Name: "web-0"}, reasonFailedMount, message)
}

// attachedTo attaches the first volume to a node, and none to another.
func attachedTo(node string) func(f *Facts) {
	return func(f *Facts) {
		f.Attachments = []storagev1.VolumeAttachment{attachmentOf("csi-x", f.Driver, f.Volumes[0].Name, node)}
	}
}

func toDelete(f *Facts) {
	f.Volumes[0].Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
}

func attachError(message string) func(f *Facts) {
	return func(f *Facts) { f.Attachments[0].Status.AttachError = &storagev1.VolumeError{Message: message} }
}

func noAttachError(f *Facts) { f.Attachments[0].Status.AttachError = nil }

var dataWeb0 = Ref{Kind: kindClaim, Namespace: "shop", Name: "data-web-0"}

var edges = []edge{
	{"no such subject", "attach-limit", subject(kindPod, "shop", "web-9"), "", Unknown, []string{"There is no Pod shop/web-9"}, nil},
	{"subject not read", "attach-limit", both(subject(kindPod, "shop", "web-9"), unread(kindPod)), "", Unknown, []string{"could not be read"}, nil},
	{"no such kind", "attach-limit", subject("Secret", "shop", "key"), "", Unknown, []string{"Secret is not explained"}, nil},

	{"a Pod that runs", "attach-limit", subject(kindPod, "shop", "db-0"), "", Works, []string{"worker-h1"}, nil},
	{"a bound claim", "no-room-in-volume-zone", subject(kindClaim, "shop", "data-web-0"), "", Works, []string{"d-bp1aaaa in cn-hangzhou-h"}, nil},
	{"a bound volume", "no-room-in-volume-zone", subject(kindVolume, "", "d-bp1aaaa"), "", Works, []string{"shop/data-web-0"}, nil},
	{"an attachment", "attach-limit", subject(kindAttachment, "", "csi-db0"), "", Works, []string{"worker-h1"}, nil},
	{"a node", "attach-limit", subject(kindNode, "", "worker-h1"), "", Works, []string{"worker-h1"}, nil},

	{"a scheduling gate", "unschedulable-without-storage", func(f *Facts) {
		f.Pods[0].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	},
		PodUnschedulable, "", []string{"example.com/quota"}, []string{"Pod spec.schedulingGates"}},
	{"an empty cluster", "unschedulable-without-storage", func(f *Facts) { f.Nodes, f.CSINodes = nil, nil }, PodUnschedulable, "", []string{"no nodes"}, nil},
	{"anti-affinity", "unschedulable-without-storage",
		both(askForCPU("1"), scheduler("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.")),
		PodUnschedulable, "", []string{"didn't match pod anti-affinity rules"}, []string{"Pod status.conditions"}},
	{"anti-affinity in the volume's zone", "no-room-in-volume-zone",
		both(endPod("batch-0"), scheduler("0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) didn't match PersistentVolume's node affinity.")),
		NoNodeInVolumeZone, "", []string{"anti-affinity", "d-bp1aaaa"}, []string{"PersistentVolume spec.nodeAffinity", "Pod status.conditions"}},
	{"room by the scheduler's word", "no-room-in-volume-zone", both(endPod("batch-0"), unread(kindPod)), NoNodeInVolumeZone, "", []string{"Insufficient cpu"},
		[]string{"Node status.allocatable"}},
	{"the scheduler has not looked", "unschedulable-without-storage", both(askForCPU("1"), noUnschedulable), BeingScheduled, "", []string{"hasn't looked"},
		[]string{"Pod spec.schedulerName"}},
	{"a local volume that no node has", "unschedulable-without-storage",
		both(askForCPU("1"), localClaim, scheduler("0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind. preemption: 0/3 nodes are available.")),
		PodUnschedulable, "", []string{"didn't find available persistent volumes"}, []string{"Pod status.conditions"}},
	{"another driver's capacity", "unschedulable-without-storage",
		both(askForCPU("1"), localClaim, scheduler("0/3 nodes are available: 3 node(s) did not have enough free storage.")),
		PodUnschedulable, "", []string{"did not have enough free storage"}, []string{"Pod status.conditions"}},
	{"another driver's limit", "unschedulable-without-storage",
		both(askForCPU("1"), localClaim, scheduler("0/3 nodes are available: 3 node(s) exceed max volume count.")),
		PodUnschedulable, "", []string{"exceed max volume count"}, []string{"Pod status.conditions"}},
	{"another driver that no node has", "unschedulable-without-storage",
		both(askForCPU("1"), localClaim, scheduler("0/3 nodes are available: 3 local.example.com CSI driver is not installed on the node.")),
		PodUnschedulable, "", []string{"local.example.com CSI driver"}, []string{"Pod status.conditions"}},
	{"a volume whose labels name a zone", "unschedulable-without-storage",
		both(askForCPU("1"), scheduler("0/3 nodes are available: 3 node(s) had no available volume zone.")),
		PodUnschedulable, "", []string{"no available volume zone"}, []string{"Pod status.conditions"}},
	{"a cordoned node", "no-room-in-volume-zone", both(endPod("batch-0"), func(f *Facts) { f.Nodes[0].Spec.Unschedulable = true }),
		NoNodeInVolumeZone, "", []string{"marked as unschedulable"}, []string{"Node spec.unschedulable"}},
	{"a full node and a full instance", "attach-limit", func(f *Facts) {
		f.Nodes[1].Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("100m")
		nine := int32(9)
		f.CSINodes[1].Spec.Drivers[0].Allocatable.Count = &nine
	}, AttachLimitReached, "", []string{"as many volumes as they take", "too little cpu"}, nil},
	{"a node with a volume of an earlier claim's name", "attach-limit", both(limit(3), func(f *Facts) {
		for i := range f.Volumes { // as a StatefulSet's claims leave them with policy Retain
			if ref := f.Volumes[i].Spec.ClaimRef; ref != nil && ref.Name == "data-db-0" {
				earlier := f.Volumes[i].DeepCopy()
				earlier.Name, earlier.Spec.CSI.VolumeHandle, earlier.Spec.ClaimRef.UID = "d-earlier", "d-earlier", "earlier"
				earlier.Status.Phase = corev1.VolumeReleased
				f.Volumes = append(f.Volumes, *earlier)
				return
			}
		}
		f.Volumes = nil
	}), BeingScheduled, "", []string{"worker-h1"}, nil},
	{"a claim that the Pod mounts twice", "attach-limit", both(limit(3), func(f *Facts) {
		again := *f.Pods[0].Spec.Volumes[0].DeepCopy()
		again.Name = "again"
		f.Pods[0].Spec.Volumes = append(f.Pods[0].Spec.Volumes, again)
	}), BeingScheduled, "", []string{"worker-h1"}, nil},
	{"nobody can tell", "attach-limit", both(limit(9), unread(kindCSINode), scheduler("0/2 nodes are available: 2 node(s) exceed max volume count.")), "",
		Unknown, []string{"could not be read"}, nil},
	{"startup taint on the only node", "node-without-driver", func(f *Facts) {
		f.Nodes[0].Spec.Taints = []corev1.Taint{{Key: StartupTaint, Effect: corev1.TaintEffectNoSchedule}}
		register(f)
	},
		DriverNotReadyOnNode, "", []string{StartupTaint}, []string{"Node spec.taints"}},
	{"allowedTopologies", "unschedulable-without-storage", both(askForCPU("1"), func(f *Facts) {
		f.Classes[0].AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: topology.WellKnownZoneKey,
			Values: []string{"cn-hangzhou-z"}}}}}
	}), AllowedTopologiesTooSmall, "", []string{"class disk"}, []string{"StorageClass allowedTopologies"}},
	{"allowedTopologies without expressions", "unschedulable-without-storage",
		both(askForCPU("1"), func(f *Facts) { f.Classes[0].AllowedTopologies = []corev1.TopologySelectorTerm{{}} }),
		AllowedTopologiesTooSmall, "", nil, nil},
	{"a Lease that was released", "nobody-provisions", func(f *Facts) { f.Leases[0].Spec.HolderIdentity = nil },
		NoProvisioner, "", []string{"nobody has held its Lease for "}, []string{"Lease spec.renewTime", "Lease spec.holderIdentity"}},
	{"no node takes the class's type", "unschedulable-without-storage", both(askForCPU("1"), func(f *Facts) { f.Classes[0].Parameters["type"] = "cloud_ssd" }),
		DiskTypeNotTaken, "", []string{"cloud_ssd"}, []string{"Node metadata.labels"}},
	{"one of several types will do", "unschedulable-without-storage",
		both(askForCPU("1"), func(f *Facts) { f.Classes[0].Parameters["type"] = "cloud_ssd, cloud_auto" }), BeingScheduled, "", nil, nil},
	{"the class's type is open", "unschedulable-without-storage", both(askForCPU("1"), func(f *Facts) { f.Classes[0].Parameters = nil }), BeingScheduled, "",
		nil, nil},
	{"no node is known to take anything", "unschedulable-without-storage", both(askForCPU("1"), func(f *Facts) {
		f.Classes[0].Parameters["type"] = "cloud_ssd"
		for i := range f.Nodes {
			f.Nodes[i].Labels = map[string]string{topology.WellKnownZoneKey: "cn-hangzhou-h", topology.ZoneKey: "cn-hangzhou-h",
				topology.RegionKey: "cn-hangzhou"}
		}
	}), BeingScheduled, "", nil, nil},
	{"sold out by the event alone", "zone-sold-out", func(f *Facts) { f.Capacities, f.CSIDriver.Spec.StorageCapacity = nil, nil }, ZoneSoldOut, "",
		[]string{"cn-hangzhou-h"}, []string{"Event message"}},
	{"sold out, and how much there is is not known", "zone-sold-out", capacityUnknownSince(time.Minute), ZoneSoldOut, "",
		[]string{"Whether that is still so is not known", "is ecs:DescribeAvailableResource allowed?"}, []string{"Event message", "StorageClass parameters.type"}},
	{"sold out, and how much there is was not known", "zone-sold-out", capacityUnknownSince(time.Hour), ZoneSoldOut, "", nil, []string{"StorageClass parameters.type"}},
	{"nodes whose zone labels disagree", "zone-sold-out", func(f *Facts) {
		for i := range f.Nodes {
			f.Nodes[i].Labels[topology.ZoneKey] = "cn-hangzhou-x"
		}
		for i := range f.Capacities { // as disk-provisioner leaves them out
			f.Capacities[i].NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "none"}}
		}
	}, ZoneLabelsDisagree, "", []string{"their zone labels name different zones", "No node that Pod"}, nil},
	{"sold out long ago", "zone-sold-out", func(f *Facts) {
		f.Capacities, f.CSIDriver.Spec.StorageCapacity = nil, nil
		f.Events[0].LastTimestamp.Time = f.At.Add(-time.Hour)
	}, BeingScheduled, "", nil, nil},
	{"sold out, tied by another volume", "zone-sold-out", func(f *Facts) {
		f.Pods[0].Spec.Affinity = nil
		volume := zonalVolume("d-bp9", "logs", "cn-hangzhou-h")
		volume.Spec.CSI.Driver = f.Driver
		f.Volumes = append(f.Volumes, volume)
		f.Claims = append(f.Claims,
			corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "logs", Namespace: "shop"},
				Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "d-bp9"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}})
		f.Pods[0].Spec.Volumes = append(f.Pods[0].Spec.Volumes, volumeOfClaim("logs"))
	}, ZoneSoldOut, "", []string{"d-bp9"}, []string{"PersistentVolume spec.nodeAffinity"}},
	{"an ephemeral claim that is missing", "unschedulable-without-storage", ephemeral("scratch"), ClaimNotFound, "", []string{"web-0-scratch", "doesn't exist yet"},
		[]string{"Pod spec.volumes"}},
	{"an ephemeral claim that can't be made", "unschedulable-without-storage", both(ephemeral("scratch"), oneEvent(Ref{Kind: kindPod, Namespace: "shop", Name: "web-0"}, reasonFailedBinding,
		`ephemeral volume scratch: create PVC web-0-scratch: persistentvolumeclaims "web-0-scratch" is forbidden: exceeded quota: disks`)),
		ClaimNotFound, "", []string{"can't be made", "exceeded quota: disks"}, []string{"Pod spec.volumes", "Event message"}},
	{"an ephemeral claim that isn't the Pod's", "unschedulable-without-storage", both(ephemeral("scratch"), func(f *Facts) { f.Claims[0].Name = "web-0-scratch" }),
		ClaimNotFound, "", []string{"was not made for this Pod"}, []string{"PersistentVolumeClaim metadata.ownerReferences"}},
	{"an ephemeral claim that is the Pod's", "unschedulable-without-storage", both(ephemeral("scratch"), askForCPU("1"), func(f *Facts) {
		f.Claims[0].Name = "web-0-scratch"
		f.Claims[0].OwnerReferences = []metav1.OwnerReference{{Kind: kindPod, Name: "web-0", UID: f.Pods[0].UID, Controller: ptr.To(true)}}
	}), BeingScheduled, "", nil, nil},
	{"a claim of one Pod that another has", "no-room-in-volume-zone", both(endPod("batch-0"), singlePod, otherUser("worker-h1")), VolumeInUse, "",
		[]string{"Pod web-old on Node worker-h1 uses claim data-web-0", "ReadWriteOncePod"}, []string{"PersistentVolumeClaim spec.accessModes", "Pod spec.nodeName"}},
	{"a claim of one Pod that another is to have", "no-room-in-volume-zone", both(endPod("batch-0"), singlePod, otherUser("")), BeingScheduled, "", nil, nil},
	{"a claim of one Pod that another has on the node", "attach-limit-on-new-node", both(attach("csi-a"), singlePod, otherUser("worker-h1"), start(2)), VolumeInUse, "",
		[]string{"Pod web-old on Node worker-h1"}, nil},
	{"a claim of one Pod of which neither has started", "attach-limit-on-new-node", both(attach("csi-a"), singlePod, otherUser("worker-h1")), PodNotStarted, "", nil, nil},
	{"a claim of one Pod that has started", "attach-limit-on-new-node", both(attach("csi-a"), singlePod, otherUser("worker-h1"), start(0), start(2)), PodNotStarted,
		"", nil, nil},
	{"a claim that is going", "unschedulable-without-storage", goingClaim, HeldByFinalizer, "",
		[]string{"kubernetes.io/pvc-protection"}, []string{"PersistentVolumeClaim metadata.finalizers"}},
	{"a claim that is going, of Pods that are not read", "unschedulable-without-storage",
		both(goingClaim, subject(kindClaim, "shop", "data-web-0"), unread(kindPod), func(f *Facts) { f.Pods = nil }), "", Unknown, []string{"could not be read"}, nil},
	{"a Pod whose claim binds at once", "credentials-refused",
		both(subject(kindPod, "shop", "web-0"),
			func(f *Facts) { f.Classes[0].VolumeBindingMode, f.Claims[0].Annotations = nil, nil }), CredentialsRefused, "", nil, nil},

	{"Karpenter's word", "autoscaler-would-not-help", func(f *Facts) {
		f.Events = f.Events[:1]
		f.Events[0].Reason, f.Events[0].Source.Component = reasonFailedScheduling, "karpenter"
		f.Events[0].Message = "Failed to schedule pod, incompatible volume requirements, key topology.kubernetes.io/zone"
	}, AutoscalerWouldNotHelp, "", []string{"incompatible volume requirements"}, []string{"Event message", "PersistentVolume spec.nodeAffinity"}},
	{"the scheduler's word is no autoscaler's", "autoscaler-would-not-help", func(f *Facts) { f.Events = f.Events[1:] }, NoNodeInVolumeZone, "", nil, nil},
	{"a Pod that is going", "attach-limit-on-new-node", func(f *Facts) { f.Pods[0].DeletionTimestamp = deleted(f) }, BeingDeleted, "", []string{"1h0m0s"},
		[]string{"Pod metadata.deletionTimestamp"}},
	{"a Pod that a finalizer holds", "attach-limit-on-new-node", func(f *Facts) {
		f.Pods[0].DeletionTimestamp, f.Pods[0].Finalizers = deleted(f), []string{"batch.kubernetes.io/job-tracking"}
	},
		HeldByFinalizer, "", []string{"job-tracking"}, []string{"Pod metadata.finalizers"}},
	{"a Pod that a dead node can't end", "attach-limit-on-new-node", func(f *Facts) { f.Pods[0].DeletionTimestamp, f.Nodes = deleted(f), nil }, NodeNotReady,
		"", []string{"worker-h1"}, []string{"Node metadata.name"}},
	{"an attach to a node that has gone", "attach-limit-on-new-node", both(subject(kindAttachment, "", "csi-a"), func(f *Facts) { f.Nodes = nil }),
		NodeNotReady, "", []string{"d-bp1aaaa is to be attached to Node worker-h1, which is gone."}, []string{"Node metadata.name"}},
	{"an attach to a dead node", "dead-node-has-disk", both(subject(kindAttachment, "", "csi-a"), func(f *Facts) {
		f.Attachments[0].Status.Attached = false
	}), NodeNotReady, "", []string{"to Node worker-h1, which has not been ready for 3m0s."}, []string{"Node status.conditions"}},
	{"a Pod whose selected node lacks the driver", "node-without-driver",
		func(f *Facts) { f.Claims[0].Annotations = map[string]string{request.AnnSelectedNode: "worker-h1"} },
		DriverNotOnNode, "", []string{"worker-h1"}, []string{"CSINode spec.drivers", "Pod spec.nodeSelector"}},
	{"a request in the journal", "nobody-provisions", both(renew, func(f *Facts) { f.Journal = []Request{{ClaimUID: string(f.Claims[0].UID)}} }),
		BeingProvisioned, "", []string{"journal"}, nil},
	{"a disk that is held for another claim", "nobody-provisions", both(renew, func(f *Facts) {
		claim := f.Claims[0]
		f.Journal = []Request{{ClaimUID: string(claim.UID)}}
		f.Events = append(f.Events, corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: "held"}, Reason: reasonProvisioningHeld, LastTimestamp: metav1.NewTime(f.At),
			InvolvedObject: corev1.ObjectReference{Kind: kindClaim, Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			Message:        "volume d-1 is made for node n-1; its PersistentVolume is not saved yet: claim logs of Pod web-0 has no volume yet",
		})
	}), BeingProvisioned, "", []string{"waits for another claim of its Pod", "claim logs of Pod web-0"}, []string{"Event message"}},
	{"a Pod whose node has gone", "attach-limit-on-new-node", both(attach("csi-a"), func(f *Facts) { f.Nodes = nil }), NodeNotReady, "", []string{"worker-h1"},
		[]string{"Node metadata.name"}},
	{"a mount that fails", "attach-limit-on-new-node",
		both(attach("csi-a"), kubeletSays(`MountVolume.MountDevice failed for volume "d-bp1aaaa" : rpc error: code = Internal desc = no device has serial number 1234`)),
		DriverFailed, "", []string{"no device has serial number"}, []string{"Event message"}},
	{"a mount that times out", "attach-limit-on-new-node",
		both(attach("csi-a"), kubeletSays("Unable to attach or mount volumes: unmounted volumes=[v0], unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition")),
		DriverFailed, "", []string{"timed out"}, []string{"Event message"}},
	{"a ConfigMap that isn't there", "attach-limit-on-new-node",
		both(attach("csi-a"), kubeletSays(`MountVolume.SetUp failed for volume "config" : configmap "web-config" not found`)),
		PodNotStarted, "", []string{"none of the driver's", `configmap "web-config" not found`}, []string{"Event message", "Pod spec.nodeName"}},
	{"another volume that times out", "attach-limit-on-new-node",
		both(attach("csi-a"), kubeletSays("Unable to attach or mount volumes: unmounted volumes=[config kube-api-access-x], unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition")),
		PodNotStarted, "", []string{"none of the driver's"}, []string{"Event message"}},
	{"a mount that fails, and a later one of another volume", "attach-limit-on-new-node",
		both(attach("csi-a"), kubeletSays(`MountVolume.SetUp failed for volume "config" : configmap "web-config" not found`), func(f *Facts) {
			earlier := *f.Events[0].DeepCopy()
			earlier.Name, earlier.LastTimestamp.Time = "earlier", f.At.Add(-time.Minute)
			earlier.Message = `MountVolume.MountDevice failed for volume "d-bp1aaaa" : rpc error: code = Internal desc = no device has serial number 1234`
			f.Events = append(f.Events, earlier)
		}), DriverFailed, "", []string{"no device has serial number"}, []string{"Event message"}},
	{"a driver that isn't registered", "attach-limit-on-new-node",
		both(attach("csi-a"), kubeletSays(`MountVolume.MountDevice failed for volume "d-bp1aaaa" : driver name diskplugin.csi.alibabacloud.com not found in the list of registered CSI drivers`)),
		DriverNotOnNode, "", []string{"worker-h1"}, []string{"Pod spec.nodeName"}},
	{"a container that waits", "attach-limit-on-new-node",
		both(attach("csi-a"), func(f *Facts) { f.Pods[0].Status.ContainerStatuses[0].State.Waiting.Reason = "ImagePullBackOff" }),
		PodNotStarted, "", []string{"ImagePullBackOff"}, []string{"Pod status.containerStatuses"}},
	{"a container that waits, and drivers that are not read", "attach-limit-on-new-node",
		both(attach("csi-a"), unread(kindCSINode), func(f *Facts) {
			f.CSINodes, f.Pods[0].Status.ContainerStatuses[0].State.Waiting.Reason = nil, "ImagePullBackOff"
		}), PodNotStarted, "", []string{"ImagePullBackOff"}, nil},
	{"a volume that another Pod has", "dead-node-has-disk", func(f *Facts) {
		f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionTrue
		other := f.Pods[0].DeepCopy()
		other.Name, other.Spec.NodeName = "web-old", "worker-h1"
		f.Pods = append(f.Pods, *other)
	}, VolumeInUse, "", []string{"Pod shop/web-old"}, []string{"VolumeAttachment spec.nodeName", "Pod spec.nodeName"}},
	{"a shared volume", "dead-node-has-disk", func(f *Facts) {
		f.Volumes[0].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}, BeingAttached, "", nil, nil},
	{"a disk that ECS says another instance has", "attach-limit-on-new-node",
		attachError("rpc error: code = FailedPrecondition desc = d-bp1aaaa: the disk is attached to i-9, and is not taken away"),
		VolumeInUse, "", []string{"d-bp1aaaa"}, nil},
	{"an attach that may go on", "attach-limit-on-new-node",
		attachError("rpc error: code = Aborted desc = d-bp1aaaa: ECS is at work on it: context deadline exceeded"), BeingAttached, "", []string{"at work on it"}, nil},
	{"an attach that the keys may not do", "attach-limit-on-new-node",
		attachError("rpc error: code = PermissionDenied desc = AttachDisk d-1 i-1: Forbidden.RAM: no. (request ID R-7)"), PermissionDenied, "", []string{"R-7"}, nil},
	{"an attach to a node without the driver", "attach-limit-on-new-node",
		attachError("failed to attach: CSINode worker-h1 does not contain driver diskplugin.csi.alibabacloud.com"), DriverNotOnNode, "", nil, nil},
	{"an attach that nothing is said of, to a node whose drivers are not read", "attach-limit-on-new-node",
		both(noAttachError, func(f *Facts) { f.CSINodes = nil }, unread(kindCSINode)), "", Unknown, []string{"could not be read"}, nil},

	{"a detach that fails", "attachment-held-by-finalizer", func(f *Facts) {
		f.Attachments[0].Finalizers = []string{attacherFinalizer(f.Driver)}
		f.Attachments[0].Status.DetachError = &storagev1.VolumeError{Message: "rpc error: code = Unauthenticated desc = DetachDisk d-1 i-1: InvalidAccessKeyId.NotFound: no. (request ID R-8)"}
	}, CredentialsRefused, "", []string{"R-8"}, []string{"VolumeAttachment status.detachError.message"}},
	{"a detach that goes on", "attachment-held-by-finalizer", func(f *Facts) {
		f.Attachments[0].Finalizers = []string{attacherFinalizer(f.Driver)}
		f.Attachments[0].Status.DetachError = &storagev1.VolumeError{Message: "rpc error: code = Aborted desc = d-1: ECS is at work on it: x"}
	}, BeingDetached, "", nil, nil},
	{"an attachment of another driver that is there", "attach-queue", func(f *Facts) {
		f.Attachments[2].Spec.Attacher, f.Attachments[2].Status.Attached = "nas.example.com", true
	}, "", Works, []string{"by driver nas.example.com"}, nil},
	{"an attachment of another driver", "attach-queue", func(f *Facts) { f.Attachments[2].Spec.Attacher = "nas.example.com" }, OtherDriver, "",
		[]string{"nas.example.com"}, nil},

	{"no Pod uses the claim", "node-name-set", both(subject(kindClaim, "shop", "data-web-0"), func(f *Facts) { f.Pods = nil }), WaitsForConsumer, "",
		[]string{"data-web-0"}, nil},
	{"a claim whose Pod has no node", "unschedulable-without-storage",
		both(subject(kindClaim, "shop", "data-web-0"), func(f *Facts) { f.Nodes, f.CSINodes = nil, nil }),
		WaitsForConsumer, "", []string{"Pod web-0"}, []string{"Pod spec.nodeName"}},
	{"a claim whose oldest Pod is going", "unschedulable-without-storage", both(subject(kindClaim, "shop", "data-web-0"), otherUser(""), func(f *Facts) {
		old := &f.Pods[len(f.Pods)-1]
		old.CreationTimestamp.Time, old.DeletionTimestamp = old.CreationTimestamp.Add(-time.Hour), deleted(f)
		old.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
	}), PodUnschedulable, "", []string{"Pod web-0"}, nil},
	{"a claim whose Pod no node takes", "unschedulable-without-storage", subject(kindClaim, "shop", "data-web-0"), PodUnschedulable, "", []string{"Pod web-0"},
		nil},
	{"whether a Pod uses the claim", "node-name-set", both(subject(kindClaim, "shop", "data-web-0"), func(f *Facts) { f.Pods = nil }, unread(kindPod)), "",
		Unknown, []string{"could not be read"}, nil},
	{"a claim of a Pod that names its node", "node-name-set", subject(kindClaim, "shop", "data-web-0"), NodeNameBypassesScheduler, "", nil, nil},
	{"a class that isn't read", "credentials-refused", both(func(f *Facts) { f.Classes = nil }, unread(kindClass)), "", Unknown, []string{"disk"}, nil},
	{"no class and no default", "credentials-refused", func(f *Facts) { f.Claims[0].Spec.StorageClassName = nil }, ClassNotFound, "",
		[]string{"names no StorageClass"}, nil},
	{"an annotation that names no class", "credentials-refused", func(f *Facts) {
		f.Claims[0].Annotations = map[string]string{corev1.BetaStorageClassAnnotation: ""}
	}, ClassNotFound, "", []string{"names no StorageClass"}, nil},
	{"a claim whose Pod's other claim is refused", "credentials-refused", both(secondClaim, subject(kindClaim, "shop", "logs")), CredentialsRefused, "",
		[]string{"Claim logs waits for claim data-web-0 of Pod web-0"},
		[]string{"Pod spec.volumes", "PersistentVolumeClaim metadata.annotations[volume.kubernetes.io/selected-node]", "Event message"}},
	{"a Pod one of whose claims is refused", "credentials-refused", both(secondClaim, subject(kindPod, "shop", "web-0"), func(f *Facts) {
		slices.Reverse(f.Pods[0].Spec.Volumes)
	}), CredentialsRefused, "", []string{"Claim logs waits for claim data-web-0 of Pod web-0"}, nil},
	{"a refused claim of another Pod", "credentials-refused", both(secondClaim, subject(kindClaim, "shop", "logs"), func(f *Facts) {
		f.Pods[0].Spec.Volumes = f.Pods[0].Spec.Volumes[1:]
	}), BeingProvisioned, "", nil, nil},
	{"a claim that two Pods wait for", "credentials-refused", both(secondClaim, subject(kindClaim, "shop", "logs"), func(f *Facts) {
		other := f.Pods[0].DeepCopy()
		other.Name = "web-1"
		f.Pods = append(f.Pods, *other)
	}), BeingProvisioned, "", nil, nil},
	{"events that aren't read", "credentials-refused", both(noEvents, unread(kindEvent)), "", Unknown, []string{"events"}, nil},
	{"a create that may go on", "credentials-refused",
		say(`failed to provision volume with StorageClass "disk": rpc error: code = Aborted desc = it was made before, and ECS doesn't show it; if it doesn't within 1m29s, a new one is made`),
		BeingProvisioned, "", []string{"1m29s"}, []string{"Event message"}},
	{"a create that fails", "credentials-refused",
		say(`failed to provision volume with StorageClass "disk": rpc error: code = Internal desc = CreateDisk: SomethingNew: what. (request ID R-9)`),
		DriverFailed, "", []string{"SomethingNew"}, nil},
	{"a claim that is refused", "parameter-refused", say(`failed to provision volume with StorageClass "disk": claim.spec.accessModes is empty`),
		ParameterRefused, "", []string{"Claim data-web-0 is refused"}, []string{"PersistentVolumeClaim spec"}},
	{"sold out, and a node is selected", "credentials-refused",
		say(`failed to provision volume with StorageClass "disk": rpc error: code = ResourceExhausted desc = no zone and disk type allowed has a disk to give: cloud_essd of 20 GiB in cn-hangzhou-h: CreateDisk: OperationDenied.NoStock: none. (request ID R)`),
		ZoneSoldOut, "", []string{"cn-hangzhou-h has no disk"}, []string{"StorageClass parameters.type"}},
	{"the selected node's labels disagree", "credentials-refused", func(f *Facts) { f.Nodes[0].Labels[topology.ZoneKey] = "cn-hangzhou-x" }, ZoneLabelsDisagree,
		"", []string{"cn-hangzhou-x"}, nil},
	{"a snapshot that failed", "snapshot-not-ready", func(f *Facts) {
		f.Snapshots[0].Error = "rpc error: code = ResourceExhausted desc = CreateSnapshot d-1: QuotaExceed.Snapshot: no more. (request ID R-3)"
	},
		SnapshotNotReady, "", []string{"has failed", "R-3"}, []string{"VolumeSnapshot status.error.message"}},
	{"a snapshot that is going", "snapshot-not-ready", func(f *Facts) { f.Snapshots[0].Ready, f.Snapshots[0].DeletionTimestamp = true, deleted(f) }, SnapshotNotReady, "",
		[]string{"is being deleted"}, []string{"VolumeSnapshot metadata.deletionTimestamp"}},
	{"a snapshot of another driver", "snapshot-not-ready", both(func(f *Facts) { f.Snapshots[0].Ready = true },
		oneEvent(Ref{Kind: kindClaim, Namespace: "shop", Name: "restored"}, reasonProvisioningFailed,
			`failed to provision volume with StorageClass "disk": snapshot shop/nightly is of driver nas.example.com; diskplugin.csi.alibabacloud.com can't make a volume of it`)),
		ParameterRefused, "", []string{"Claim restored is refused: ", "is of driver nas.example.com"}, []string{"PersistentVolumeClaim spec"}},
	{"a claim to copy that isn't there", "nobody-provisions", both(renew, copyOf("src")), SourceNotReady, "", []string{"There is no PersistentVolumeClaim shop/src"},
		[]string{"PersistentVolumeClaim spec.dataSource", "PersistentVolumeClaim metadata.name"}},
	{"a claim to copy that isn't read", "nobody-provisions", both(renew, copyOf("src"), unread(kindClaim)), "", Unknown, []string{"could not be read"}, nil},
	{"a claim to copy that is not bound", "nobody-provisions", both(renew, secondClaim, copyOf("logs")), SourceNotReady, "", []string{"is not bound"},
		[]string{"PersistentVolumeClaim status.phase"}},
	{"a claim to copy that is going", "nobody-provisions", both(renew, secondClaim, copyOf("logs"), func(f *Facts) { f.Claims[1].DeletionTimestamp = deleted(f) }),
		SourceNotReady, "", []string{"is being deleted"}, []string{"PersistentVolumeClaim metadata.deletionTimestamp"}},
	{"a claim to copy that is bound", "nobody-provisions", both(renew, secondClaim, copyOf("logs"), func(f *Facts) {
		f.Claims[1].Status.Phase, f.Claims[1].Spec.VolumeName = corev1.ClaimBound, "d-1"
	}), BeingProvisioned, "", nil, nil},
	{"a snapshot that isn't read", "snapshot-not-ready", both(func(f *Facts) { f.Snapshots = nil }, unread(kindSnapshot)), "", Unknown,
		[]string{"shop/nightly"}, nil},
	{"a Lease without holder", "nobody-provisions", both(renew, func(f *Facts) { f.Leases[0].Spec.HolderIdentity = nil }), NoProvisioner, "", nil, nil},
	{"a bound claim without capacity", "resize-pending", func(f *Facts) { f.Claims[0].Status.Capacity = nil }, "", Works, []string{"is bound"}, nil},
	{"a resize that the quota forbids", "resize-pending", both(storageStatus(corev1.PersistentVolumeClaimControllerResizeInProgress),
		oneEvent(dataWeb0, reasonResizeFailed,
			`resize volume "d-1" by resizer "d" failed: rpc error: code = FailedPrecondition desc = ResizeDisk d-1: QuotaExceeded.PostpaidDataDiskCapacity: no. (request ID R-4)`),
	), QuotaReached, "", []string{"R-4"}, nil},
	{"a file system that the node can't grow", "resize-pending", nodeResizeError, DriverFailed, "", []string{"the node can't grow its file system: resize2fs failed."},
		[]string{"PersistentVolumeClaim status.conditions[NodeResizeError].message", "PersistentVolumeClaim spec.resources.requests.storage"}},
	{"a file system that can't grow", "resize-pending", both(nodeResizeError, storageStatus(corev1.PersistentVolumeClaimNodeResizeInfeasible)), ResizeInfeasible, "",
		[]string{"resize2fs failed."}, []string{"PersistentVolumeClaim status.conditions[NodeResizeError].message"}},
	{"an attributes class that isn't there", "modification-cooling-down", func(f *Facts) {
		f.Attributes, f.Claims[0].Status.ModifyVolumeStatus.Status = nil, corev1.PersistentVolumeClaimModifyVolumePending
	}, ClassNotFound, "", []string{"VolumeAttributesClass fast"}, nil},
	{"a claim that is bound to nothing", "no-room-in-volume-zone", both(subject(kindClaim, "shop", "data-web-0"), func(f *Facts) { f.Volumes = nil }),
		VolumeNotFound, "", []string{"d-bp1aaaa"}, nil},
	{"a claim that names a volume that is to be made", "no-room-in-volume-zone",
		both(subject(kindClaim, "shop", "data-web-0"), func(f *Facts) { f.Volumes, f.Claims[0].Status.Phase = nil, corev1.ClaimPending }),
		VolumeNotFound, "", []string{"d-bp1aaaa of claim data-web-0 doesn't exist."}, nil},
	{"a claim that has lost its volume and its name", "nobody-provisions", both(renew, func(f *Facts) { f.Claims[0].Status.Phase = corev1.ClaimLost }),
		VolumeNotFound, "", []string{"has lost its volume"}, []string{"PersistentVolumeClaim status.phase"}},
	{"a claim for a populator", "nobody-provisions", both(renew, func(f *Facts) {
		f.Claims[0].Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("hello.example.com"), Kind: "Hello", Name: "world"}
	}), WaitsForPopulator, "", []string{"filled from Hello shop/world"}, []string{"PersistentVolumeClaim spec.dataSourceRef"}},
	{"a claim for a populator of a kind of the same name", "nobody-provisions", both(renew, func(f *Facts) {
		f.Claims[0].Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("backup.example.com"), Kind: "VolumeSnapshot", Name: "world"}
	}), WaitsForPopulator, "", nil, nil},
	{"a claim that names a volume", "no-room-in-volume-zone",
		both(subject(kindClaim, "shop", "data-web-0"),
			func(f *Facts) { f.Claims[0].Status.Phase = corev1.ClaimPending }), "", Unknown, []string{"is not bound to it"}, nil},
	{"a claim that names another's volume", "no-room-in-volume-zone", both(subject(kindClaim, "shop", "data-web-0"), anothersVolume),
		VolumeOfOtherClaim, "", []string{"d-bp1aaaa, which is Bound and belongs to claim shop/other"},
		[]string{"PersistentVolumeClaim spec.volumeName", "PersistentVolume spec.claimRef"}},
	{"a Pod whose claim names another's volume", "no-room-in-volume-zone", anothersVolume, VolumeOfOtherClaim, "", []string{"claim shop/other"}, nil},
	{"a Pod whose claim lost its volume to another", "no-room-in-volume-zone", both(anothersVolume, func(f *Facts) {
		f.Claims[0].Status.Phase = corev1.ClaimLost
	}), VolumeOfOtherClaim, "", []string{"claim shop/other"}, nil},
	{"a Pod whose claim names an earlier one's volume", "no-room-in-volume-zone", earlierVolume, VolumeOfOtherClaim, "",
		[]string{"which is Released and belongs to an earlier claim of the same name"}, []string{"PersistentVolume status.phase", "PersistentVolumeClaim metadata.uid"}},
	{"a Pod whose claim is not bound to the volume that it names", "no-room-in-volume-zone", func(f *Facts) {
		f.Claims[0].Status.Phase, f.Volumes[0].Spec.ClaimRef = corev1.ClaimPending, nil
	}, "", Unknown, []string{"is not bound to it"}, nil},

	{"a volume that is going", "no-room-in-volume-zone",
		both(subject(kindVolume, "", "d-bp1aaaa"),
			func(f *Facts) { f.Volumes[0].DeletionTimestamp = deleted(f) }), HeldByFinalizer, "", nil, []string{"PersistentVolume metadata.finalizers"}},
	{"a released volume that is attached", "released-volume-kept", both(toDelete, attachedTo("n"), func(f *Facts) {
		f.Nodes = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	}), BeingDetached, "", []string{"still attached to Node n"}, nil},
	{"a released volume on a dead node", "released-volume-kept", both(toDelete, attachedTo("n")), VolumeOnDeadNode, "", []string{"Node n"}, nil},
	{"a deletion that fails", "released-volume-kept", both(toDelete, oneEvent(Ref{Kind: kindVolume, Name: "d-bp1aaaa"}, reasonVolumeFailedDelete,
		"DeleteVolume d-bp1aaaa: rpc error: code = PermissionDenied desc = DeleteDisk d-bp1aaaa: Forbidden.RAM: no. (request ID R-5)")), PermissionDenied, "", []string{"R-5"}, []string{"PersistentVolume status.phase"}},
	{"a deletion without leader", "released-volume-kept", both(toDelete, func(f *Facts) { f.Leases = nil }), NoProvisioner, "", nil, nil},
	{"a deletion without events", "released-volume-kept", both(toDelete, unread(kindEvent)), "", Unknown, nil, nil},
	{"a released volume that a finalizer holds", "released-volume-kept", func(f *Facts) { f.Volumes[0].DeletionTimestamp = deleted(f) },
		HeldByFinalizer, "", []string{"kubernetes.io/pv-protection"}, []string{"PersistentVolume metadata.finalizers"}},
	{"a released volume that goes after its disk", "released-volume-kept", both(toDelete, func(f *Facts) { f.Volumes[0].DeletionTimestamp = deleted(f) }),
		BeingDeleted, "", nil, []string{"PersistentVolume status.phase"}},
	{"a released volume that another program's finalizer holds after its disk", "released-volume-kept", both(toDelete, func(f *Facts) {
		f.Volumes[0].DeletionTimestamp, f.Volumes[0].Finalizers = deleted(f), []string{"backup.example.com/keep"}
	}), HeldByFinalizer, "", []string{"has the finalizer backup.example.com/keep, which is of another program"}, []string{"PersistentVolume metadata.finalizers"}},
	{"a released volume whose disk is yet to go, with another program's finalizer", "released-volume-kept", both(toDelete, func(f *Facts) {
		f.Volumes[0].DeletionTimestamp, f.Volumes[0].Finalizers = deleted(f), []string{"backup.example.com/keep", request.Finalizer}
	}), BeingDeleted, "", nil, nil},
	{"a volume that has failed", "released-volume-kept", both(toDelete, func(f *Facts) {
		f.Volumes[0].Status.Phase, f.Volumes[0].Status.Message = corev1.VolumeFailed, "no deleter"
	}),
		VolumeKept, "", []string{"is Failed", "its disk is kept"}, []string{"PersistentVolume status.phase", "PersistentVolume status.message"}},
	{"a volume that is released by its status, and bound by its claim", "no-room-in-volume-zone", both(subject(kindVolume, "", "d-bp1aaaa"), released),
		VolumeKept, "", []string{"claim shop/data-web-0 is bound to it, so its disk is kept"}, []string{"PersistentVolumeClaim spec.volumeName"}},
	{"a volume that is kept, released by its status, and bound by its claim", "no-room-in-volume-zone", both(subject(kindVolume, "", "d-bp1aaaa"), released, func(f *Facts) {
		f.Volumes[0].Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}), VolumeKept, "", []string{"claim shop/data-web-0 is bound to it"}, nil},
	{"a volume of another driver", "released-volume-kept", func(f *Facts) { f.Volumes[0].Spec.CSI.Driver = "nas.example.com" }, OtherDriver, "", nil, nil},

	{"a dead node that has a disk", "dead-node-has-disk", subject(kindNode, "", "worker-h1"), VolumeOnDeadNode, "", []string{"d-bp1aaaa", "3m0s"},
		[]string{"VolumeAttachment spec.nodeName", "Node status.conditions"}},
	{"a dead node that is out of service", "dead-node-has-disk", func(f *Facts) {
		f.Nodes[0].Spec.Taints = append(f.Nodes[0].Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
	}, VolumeOnDeadNode, "", nil, nil},
	{"a node whose CSINode isn't read", "zone-labels-disagree", unread(kindCSINode), "", Unknown, nil, nil},
	{"a node without CSINode", "zone-labels-disagree", func(f *Facts) { f.CSINodes = nil }, DriverNotOnNode, "", nil, []string{"CSINode spec.drivers"}},
}

func goingClaim(f *Facts) { f.Claims[0].DeletionTimestamp = deleted(f) }

// anothersVolume gives the volume that the first claim names to another claim, and earlierVolume to an earlier one of its name.
func anothersVolume(f *Facts) {
	f.Claims[0].Status.Phase, f.Volumes[0].Spec.ClaimRef.Name, f.Volumes[0].Spec.ClaimRef.UID = corev1.ClaimPending, "other", "other"
}

func earlierVolume(f *Facts) {
	f.Claims[0].Status.Phase, f.Volumes[0].Spec.ClaimRef.UID, f.Volumes[0].Status.Phase = corev1.ClaimPending, "earlier", corev1.VolumeReleased
}

func askForCPU(cpu string) func(f *Facts) {
	return func(f *Facts) {
		f.Pods[0].Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
}

func TestEdges(t *testing.T) {
	for _, test := range edges {
		t.Run(test.name, func(t *testing.T) {
			f := factsOf(t, test.from)
			test.change(f)
			v := Why(f)
			state := test.state
			if state == "" {
				state = Waits
			}
			if v.State != state || v.Cause != test.want {
				t.Errorf("%s %s, want %s %s", v.State, v.Cause, state, test.want)
			}
			for _, text := range test.says {
				if !strings.Contains(v.Message, text) {
					t.Errorf("the message doesn't say %q", text)
				}
			}
			for _, text := range missingEvidence(test.evidence, v.Evidence) {
				t.Errorf("no evidence of %s", text)
			}
			for _, problem := range append(formProblems(f, v), evidenceProblems(f, v)...) {
				t.Error(problem)
			}
			if t.Failed() {
				t.Logf("%s", textOf(v))
			}
		})
	}
}

// goingOnDeadNode makes the subject a Pod that is being deleted on the dead node.
func goingOnDeadNode(f *Facts) {
	f.Pods[0].DeletionTimestamp, f.Pods[0].Spec.NodeName = deleted(f), "worker-h1"
}

// A node that doesn't answer may still write: what comes first is to look, and the taint is said to be for a stopped instance.
func TestNoNodeIsSaidToBeOffUnseen(t *testing.T) {
	for name, change := range map[string]func(f *Facts){
		"a volume's": func(*Facts) {}, "the node": subject(kindNode, "", "worker-h1"), "a Pod's": goingOnDeadNode,
	} {
		f := factsOf(t, "dead-node-has-disk")
		change(f)
		v := Why(f)
		next := typed(v)
		if len(next) != 2 || next[0] != "kubectl describe node worker-h1" || !strings.HasPrefix(next[1], "kubectl taint node worker-h1 ") ||
			!strings.Contains(v.Message, "certainly stopped") || v.Actor != ClusterAdmin {
			t.Errorf("%s: %s", name, textOf(v))
		}
	}
}

// A node that is gone, or said to be out of service, needs no taint.
func TestNothingIsToBeDoneForNodesOutOfService(t *testing.T) {
	for name, change := range map[string]func(f *Facts){
		"gone": func(f *Facts) { remove(f, Ref{Kind: kindNode, Name: "worker-h1"}) },
		"out of service": func(f *Facts) {
			f.Nodes[0].Spec.Taints = append(f.Nodes[0].Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
		},
	} {
		for cause, situation := range map[Cause]func(f *Facts){VolumeOnDeadNode: func(*Facts) {}, NodeNotReady: goingOnDeadNode} {
			f := factsOf(t, "dead-node-has-disk")
			both(situation, change)(f)
			if v := Why(f); v.Cause != cause || v.Actor != Nobody || strings.Contains(textOf(v.Next), "taint") || strings.Contains(v.Message, "taint") {
				t.Errorf("%s: %s", name, textOf(v))
			}
		}
	}
}

// A verdict that stands without what was not read says what that was, if it was asked for.
func TestVerdictsSayWhatIsMissing(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*Facts)
		cause   Cause
		missing string
	}{
		"quota-reached":             {func(f *Facts) { unread(kindLease, kindSnapshot)(f); f.Leases = nil }, QuotaReached, kindLease},
		"autoscaler-would-not-help": {func(f *Facts) { unread(kindEvent)(f); f.Events = nil }, NoNodeInVolumeZone, kindEvent},
		"no-room-in-volume-zone":    {func(f *Facts) { unread(kindEvent)(f); f.Events = nil }, NoNodeInVolumeZone, kindEvent},
	} {
		t.Run(name, func(t *testing.T) {
			f := factsOf(t, name)
			test.change(f)
			v := Why(f)
			if v.Cause != test.cause || len(v.Missing) != 1 || v.Missing[0].Kind != test.missing {
				t.Errorf("%s, missing %v", v.Cause, v.Missing)
			}
		})
	}
}

// csi-attacher refuses an attach to a node without the driver, and so it is what tries again.
func TestAttachWithoutDriverIsRetriedByAttacher(t *testing.T) {
	for name, change := range map[string]func(f *Facts){
		"refused":    attachError("failed to attach: CSINode worker-h1 does not contain driver diskplugin.csi.alibabacloud.com"),
		"not looked": noAttachError,
	} {
		t.Run(name, func(t *testing.T) {
			f := factsOf(t, "attach-limit-on-new-node")
			change(f)
			f.CSINodes = nil
			if v := Why(f); v.Cause != DriverNotOnNode || v.Retried != attacherRetries {
				t.Errorf("%s, retried %q, want %s, %q", v.Cause, v.Retried, DriverNotOnNode, attacherRetries)
			}
		})
	}
}

// A command that deletes a disk is never the first, and the message says that the data go with it; of a disk that another
// PersistentVolume names, none is.
func TestDisksAreNotDeletedUnawares(t *testing.T) {
	f := factsOf(t, "released-volume-kept")
	v := Why(f)
	if want := []string{"kubectl describe persistentvolume d-bp1aaaa",
		`kubectl patch persistentvolume d-bp1aaaa --patch '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'`}; !slices.Equal(typed(v), want) ||
		!strings.Contains(v.Message, "Delete deletes the disk with all its data.") {
		t.Errorf("kept by its policy: %s", textOf(v))
	}
	toDelete(f)
	other := f.Volumes[0].DeepCopy()
	other.Name, other.Status.Phase = "restored", corev1.VolumeBound
	f.Volumes = append(f.Volumes, *other)
	v = Why(f)
	if want := []string{`kubectl patch persistentvolume d-bp1aaaa --patch '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`,
		"kubectl delete persistentvolume d-bp1aaaa"}; !slices.Equal(typed(v), want) || !strings.Contains(v.Message, "Retain") {
		t.Errorf("kept for another PersistentVolume: %s", textOf(v))
	}
}

// A claim that is being deleted stays for each Pod that has a node, even if it has ended, and for no other.
func TestAGoingClaimNamesAllItsPods(t *testing.T) {
	f := factsOf(t, "unschedulable-without-storage")
	both(goingClaim, subject(kindClaim, "shop", "data-web-0"))(f)
	for i, name := range []string{"db-1", "job-2"} {
		pod := f.Pods[0].DeepCopy()
		pod.Name, pod.Spec.NodeName, pod.CreationTimestamp.Time = name, "worker-h1", f.At.Add(time.Duration(i)*time.Second)
		f.Pods = append(f.Pods, *pod)
	}
	endPod("job-2")(f)
	slices.Reverse(f.Pods)
	v := Why(f)
	if want := []string{"kubectl delete pod db-1 --namespace shop", "kubectl delete pod job-2 --namespace shop"}; v.Cause != HeldByFinalizer ||
		!slices.Equal(typed(v), want) || !strings.Contains(v.Message, "db-1, job-2.") {
		t.Errorf("%s", textOf(v))
	}
}

// A claim that was deleted by mistake has its data for as long as a Pod uses it: who is told to delete the Pod is told of them first.
func TestAGoingClaimsDataAreNotDeletedUnawares(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *Facts)
		says   string // empty: nothing of data
	}{
		"goes with its disk":       {func(*Facts) {}, "with all its data: its reclaim policy is Delete. To keep them, have an administrator set Retain first."},
		"keeps its disk":           {func(f *Facts) { f.Volumes[0].Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain }, ""},
		"a volume that isn't read": {both(unread(kindVolume), func(f *Facts) { f.Volumes = nil }), "could not be read"},
		"another's volume":         {anothersVolume, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := factsOf(t, "no-room-in-volume-zone")
			both(goingClaim, subject(kindClaim, "shop", "data-web-0"), test.change)(f)
			f.Pods[0].Spec.NodeName = "worker-h1"
			v, deletes := Why(f), "kubectl delete pod web-0 --namespace shop"
			want := []string{deletes}
			if test.says != "" {
				want = []string{"kubectl describe pvc data-web-0 --namespace shop", deletes}
			}
			if !slices.Equal(typed(v), want) || !strings.Contains(v.Message, test.says) || test.says == "" && strings.Contains(v.Message, "data:") {
				t.Errorf("%s", textOf(v))
			}
		})
	}
}

// A claim that was never bound is bound when its volume is there, and one that has lost its volume isn't.
func TestWhoBindsAClaimToAMissingVolume(t *testing.T) {
	for phase, want := range map[corev1.PersistentVolumeClaimPhase]string{
		corev1.ClaimPending: "kube-controller-manager, when there is such a PersistentVolume", corev1.ClaimLost: "never",
	} {
		f := factsOf(t, "no-room-in-volume-zone")
		subject(kindClaim, "shop", "data-web-0")(f)
		f.Volumes, f.Claims[0].Status.Phase = nil, phase
		if v := Why(f); v.Cause != VolumeNotFound || v.Retried != want {
			t.Errorf("%s: %s", phase, textOf(v))
		}
	}
}

// Without a Lease, capacities of the driver's classes tell where disk-provisioner is, and those of another driver don't.
func TestWhereTheControllerIs(t *testing.T) {
	for class, want := range map[string]string{"disk": "storage", "local": "kube-system"} {
		f := factsOf(t, "nobody-provisions")
		localClaim(f)
		f.Leases = nil
		f.Capacities = []storagev1.CSIStorageCapacity{{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "c"}, StorageClassName: class}}
		if v := Why(f); v.Cause != NoProvisioner || typed(v)[0] != "kubectl --namespace "+want+" get pods" {
			t.Errorf("%s: %s", class, textOf(v))
		}
	}
}

// A zone label is corrected to the zone that ECS has told. Where it has told none, neither label is taken for the right one.
func TestZoneLabelsAreCorrectedByECSAlone(t *testing.T) {
	const label = "kubectl label node n --overwrite "
	for zone, want := range map[string][]string{
		"h": {label + topology.ZoneKey + "=h"}, "i": {label + topology.WellKnownZoneKey + "=i"},
		"j": {label + topology.WellKnownZoneKey + "=j", label + topology.ZoneKey + "=j"}, "": {"kubectl describe node n"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{topology.WellKnownZoneKey: "h", topology.ZoneKey: "i"}}}
		if zone != "" {
			n.Annotations = map[string]string{factsAnnotation: `{"zone":"` + zone + `"}`}
		}
		if v := zoneLabelsVerdict(n); !slices.Equal(typed(v), want) || strings.Contains(v.Message, "Correct the one") != (zone == "") {
			t.Errorf("%q: %s", zone, textOf(v))
		}
	}
}

// A volume of an earlier claim can be had, unless it goes with its disk.
func TestAVolumeOfAnEarlierClaimCanBeFreed(t *testing.T) {
	for policy, frees := range map[corev1.PersistentVolumeReclaimPolicy]bool{
		corev1.PersistentVolumeReclaimRetain: true, corev1.PersistentVolumeReclaimDelete: false,
	} {
		f := factsOf(t, "no-room-in-volume-zone")
		earlierVolume(f)
		f.Volumes[0].Spec.PersistentVolumeReclaimPolicy = policy
		v := Why(f)
		look, actor := "kubectl describe pvc data-web-0 --namespace shop", User
		if frees { // which only an administrator may do
			look, actor = "kubectl describe persistentvolume d-bp1aaaa", ClusterAdmin
		}
		if typed(v)[0] != look || v.Actor != actor || strings.Contains(textOf(v.Next), "claimRef") != frees {
			t.Errorf("%s: %s", policy, textOf(v))
		}
	}
}

// Every cause is the verdict of some test.
func TestEveryCauseIsTested(t *testing.T) {
	tested := map[Cause]bool{}
	for _, e := range expectations(t) {
		tested[Cause(e.Cause)] = true
	}
	for _, e := range edges {
		tested[e.want] = true
	}
	for _, all := range repairs {
		for _, r := range all {
			tested[r.want] = true
		}
	}
	source, err := os.ReadFile("cause.go")
	if err != nil {
		t.Fatal(err)
	}
	causes := regexp.MustCompile(`Cause = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	for _, m := range causes {
		if !tested[Cause(m[1])] {
			t.Errorf("%s is never a verdict", m[1])
		}
	}
	if len(causes) < 30 {
		t.Errorf("%d causes found", len(causes))
	}
}
