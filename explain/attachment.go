package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/provisioner/request"
)

const attacherRetries = "csi-attacher, with growing pauses"

func judgeAttachment(c *cluster, a *storagev1.VolumeAttachment) Verdict {
	switch {
	case a.Spec.Attacher != c.Driver && a.Status.Attached && a.DeletionTimestamp == nil:
		return works("The volume is attached to Node %s, by driver %s.", a.Spec.NodeName, a.Spec.Attacher)
	case a.Spec.Attacher != c.Driver:
		return Verdict{
			State: Waits, Cause: OtherDriver, Actor: ClusterAdmin,
			Message:  fmt.Sprintf("VolumeAttachment %s is of driver %s.", a.Name, a.Spec.Attacher),
			Evidence: []Evidence{seen(refOf(kindAttachment, a), "spec.attacher", a.Spec.Attacher)},
			Next:     []shell.Command{attachmentYAML(a)}, Retried: "by that driver's csi-attacher",
		}
	case a.DeletionTimestamp != nil:
		return judgeDetach(c, a)
	case a.Status.Attached:
		return works("The volume is attached to Node %s.", a.Spec.NodeName)
	}
	return judgeAttach(c, a)
}

func attachmentYAML(a *storagev1.VolumeAttachment) shell.Command {
	return command("get", refOf(kindAttachment, a), "--output", "yaml")
}

// VolumeName returns the name of the PersistentVolume that is attached, "" if it has none.
func VolumeName(a *storagev1.VolumeAttachment) string {
	if a.Spec.Source.PersistentVolumeName == nil {
		return ""
	}
	return *a.Spec.Source.PersistentVolumeName
}

// attacherFinalizer is csi-attacher's, on VolumeAttachments and PersistentVolumes.
func attacherFinalizer(driver string) string {
	return "external-attacher/" + request.ObjectName(driver)
}

// judgeDetach judges a VolumeAttachment that is being deleted.
func judgeDetach(c *cluster, a *storagev1.VolumeAttachment) Verdict {
	of := refOf(kindAttachment, a)
	deleted := seen(of, "metadata.deletionTimestamp", a.DeletionTimestamp)
	foreign := slices.DeleteFunc(slices.Clone(a.Finalizers), func(f string) bool { return f == attacherFinalizer(c.Driver) })
	if len(foreign) > 0 {
		return Verdict{
			State: Waits, Cause: HeldByFinalizer, Actor: ClusterAdmin,
			Message: fmt.Sprintf("VolumeAttachment %s has been going%s, and stays as long as it has the finalizer %s.",
				a.Name, c.since(*a.DeletionTimestamp), strings.Join(foreign, ", ")),
			Evidence: []Evidence{seen(of, "metadata.finalizers", a.Finalizers), deleted},
			Next:     []shell.Command{attachmentYAML(a)}, Retried: "never by topodisk; by whoever owns the finalizer",
		}
	}
	if a.Status.DetachError == nil {
		return Verdict{
			State: Waits, Cause: BeingDetached, Actor: Nobody,
			Message: fmt.Sprintf("%s is being detached from Node %s%s.",
				VolumeName(a), a.Spec.NodeName, c.since(*a.DeletionTimestamp)),
			Evidence: []Evidence{deleted},
			Next:     []shell.Command{attachmentYAML(a)}, Retried: attacherRetries,
		}
	}
	e := readError(a.Status.DetachError.Message)
	verdict := errorVerdict(c, e, detaching, seen(of, "status.detachError.message", a.Status.DetachError.Message))
	if e.isPending() && verdict.Cause == DriverFailed {
		verdict.Cause, verdict.Actor = BeingDetached, Nobody
	}
	verdict.Message = fmt.Sprintf("%s is not detached from Node %s yet: %s", VolumeName(a), a.Spec.NodeName, verdict.Message)
	verdict.Next, verdict.Retried = orElse(verdict.Next, attachmentYAML(a)), cmp.Or(verdict.Retried, attacherRetries)
	return verdict
}

func orElse(next []shell.Command, other shell.Command) []shell.Command {
	if len(next) > 0 {
		return next
	}
	return []shell.Command{other}
}

// judgeAttach judges a VolumeAttachment that is not attached yet.
func judgeAttach(c *cluster, a *storagev1.VolumeAttachment) Verdict {
	volume := VolumeName(a)
	if volume != "" && c.volumes[volume] == nil && c.isRead(kindVolume, "") {
		return Verdict{
			State: Waits, Cause: VolumeNotFound, Actor: ClusterAdmin,
			Message: fmt.Sprintf("There is no PersistentVolume %s, which VolumeAttachment %s names.", volume, a.Name),
			Evidence: []Evidence{
				seen(refOf(kindAttachment, a), "spec.source.persistentVolumeName", volume),
				seen(Ref{Kind: kindVolume, Name: volume}, "metadata.name", ""),
			},
			Next: []shell.Command{attachmentYAML(a)}, Retried: attacherRetries,
		}
	}
	if dead, evidence := isDead(c, a.Spec.NodeName); dead {
		return Verdict{
			State: Waits, Cause: NodeNotReady, Actor: ClusterAdmin,
			Message: fmt.Sprintf("%s is to be attached to Node %s, which %s.",
				volume, a.Spec.NodeName, howDead(c, a.Spec.NodeName)),
			Evidence: append([]Evidence{seen(refOf(kindAttachment, a), "spec.nodeName", a.Spec.NodeName)}, evidence...),
			Next:     []shell.Command{command("describe", Ref{Kind: kindNode, Name: a.Spec.NodeName})}, Retried: attacherRetries,
		}
	}
	if a.Status.AttachError == nil {
		return judgeSilentAttach(c, a)
	}
	return judgeAttachError(c, a, readError(a.Status.AttachError.Message))
}

// judgeSilentAttach judges an attach of which nothing has been heard.
func judgeSilentAttach(c *cluster, a *storagev1.VolumeAttachment) Verdict {
	if !c.isRead(kindCSINode, "") {
		return unknown(c, fmt.Sprintf("%s is to be attached to Node %s, of which the CSINode, where its drivers are, could not be read.",
			VolumeName(a), a.Spec.NodeName), Ref{Kind: kindCSINode, Name: a.Spec.NodeName})
	}
	if driverOn(c.csiNodes[a.Spec.NodeName], c.Driver) == nil {
		return attachDriverMissing(c, a, seen(refOf(kindAttachment, a), "spec.nodeName", a.Spec.NodeName))
	}
	return Verdict{
		State: Waits, Cause: BeingAttached, Actor: Nobody,
		Message:  fmt.Sprintf("%s is being attached to Node %s%s.", VolumeName(a), a.Spec.NodeName, c.since(a.CreationTimestamp)),
		Evidence: []Evidence{seen(refOf(kindAttachment, a), "status.attached", false)},
		Next:     []shell.Command{attachmentYAML(a)}, Retried: "csi-attacher",
	}
}

// judgeAttachError judges an attach whose last try failed.
func judgeAttachError(c *cluster, a *storagev1.VolumeAttachment, e DriverError) Verdict {
	volume, node := VolumeName(a), a.Spec.NodeName
	said := seen(refOf(kindAttachment, a), "status.attachError.message", a.Status.AttachError.Message)
	verdict := errorVerdict(c, e, attaching, said)
	switch verdict.Cause {
	case WaitsInAttachQueue:
		position, busy, _ := e.queuePosition()
		verdict.Message = fmt.Sprintf("Node %s attaches one disk after the other: %s has position %d, and the instance is at work on %d.",
			node, volume, position, busy)
		verdict.Next, verdict.Retried = []shell.Command{kubectl("get", "volumeattachments")}, "csi-attacher; the position is kept"
	case AttachLimitReached:
		verdict.Message = fmt.Sprintf("Node %s takes no more disks, so ECS refuses %s.", node, volume)
		verdict.Evidence = append(verdict.Evidence, limitOn(c, node)...)
		verdict.Next, verdict.Retried = []shell.Command{podsOn(node)}, "csi-attacher, in vain as long as the node's other disks stay"
	case DiskTypeNotTaken:
		return typeRefusedVerdict(c, a, verdict)
	case VolumeInUse:
		return inUseVerdict(c, volume, node, verdict.Evidence)
	case DriverNotOnNode:
		return attachDriverMissing(c, a, said)
	case DriverFailed:
		if e.isPending() {
			verdict.Cause, verdict.Actor = BeingAttached, Nobody
			verdict.Message = fmt.Sprintf("%s is being attached to Node %s: %s", volume, node, sentence(e.Text))
		}
	}
	verdict.Next, verdict.Retried = orElse(verdict.Next, attachmentYAML(a)), cmp.Or(verdict.Retried, attacherRetries)
	return verdict
}

// attachDriverMissing is the verdict on an attach to a node without the driver, which csi-attacher refuses.
func attachDriverMissing(c *cluster, a *storagev1.VolumeAttachment, evidence Evidence) Verdict {
	v := driverMissingVerdict(c, a.Spec.NodeName, evidence)
	v.Retried = attacherRetries
	return v
}

// typeRefusedVerdict completes the verdict on a disk whose type the node can't attach.
func typeRefusedVerdict(c *cluster, a *storagev1.VolumeAttachment, verdict Verdict) Verdict {
	node := Ref{Kind: kindNode, Name: a.Spec.NodeName}
	selector := typeLabel
	verdict.Message = fmt.Sprintf("Node %s can't attach %s, for its instance type doesn't take disks of that type.", node.Name,
		VolumeName(a))
	if pv := c.volumes[VolumeName(a)]; pv != nil && len(typesOfVolume(pv)) > 0 {
		verdict.Message = fmt.Sprintf("Node %s can't attach %s, for its instance type doesn't take disks of type %s.", node.Name,
			pv.Name, typesOfVolume(pv)[0])
		selector += typesOfVolume(pv)[0] + "=" + available
	}
	if of := c.nodes[node.Name]; of != nil {
		verdict.Evidence = append(verdict.Evidence, factsSeen(of))
	}
	verdict.Actor = ClusterAdmin
	verdict.Next, verdict.Retried = []shell.Command{kubectl("get", "nodes", "--selector", selector)}, "csi-attacher, in vain on this node"
	return verdict
}

// holders returns the attachments of a volume to other nodes than the one given, by name.
func holders(c *cluster, volume, besides string) []*storagev1.VolumeAttachment {
	var others []*storagev1.VolumeAttachment
	for _, a := range c.attachmentsOfVolume[volume] {
		if a.Spec.NodeName != besides {
			others = append(others, a)
		}
	}
	return others
}

// inUseVerdict is the verdict on a volume that another node has, dead or alive.
func inUseVerdict(c *cluster, volume, node string, evidence []Evidence) Verdict {
	others := holders(c, volume, node)
	if len(others) > 0 && !c.isRead(kindNode, "") {
		return unknown(c, fmt.Sprintf("%s is attached to Node %s, and whether that is alive could not be read.", volume,
			others[0].Spec.NodeName), Ref{Kind: kindNode})
	}
	for _, other := range others {
		dead, why := isDead(c, other.Spec.NodeName)
		if !dead {
			continue
		}
		message := fmt.Sprintf("%s is attached to Node %s, which %s.",
			volume, other.Spec.NodeName, howDead(c, other.Spec.NodeName))
		held := seen(refOf(kindAttachment, other), "spec.nodeName", other.Spec.NodeName)
		return deadNodeVerdict(c, other.Spec.NodeName, message, slices.Concat([]Evidence{held}, why, evidence))
	}
	verdict := Verdict{
		State: Waits, Cause: VolumeInUse, Actor: ClusterAdmin,
		Message:  fmt.Sprintf("Something else than Node %s has %s, and it is not taken away.", node, volume),
		Evidence: evidence,
		Next:     []shell.Command{kubectl("get", "volumeattachments")}, Retried: "kube-controller-manager, when the volume is detached there",
	}
	if len(others) == 0 {
		return verdict
	}
	other := others[0]
	verdict.Message = fmt.Sprintf("%s is attached to Node %s, which is alive.", volume, other.Spec.NodeName)
	verdict.Evidence = append([]Evidence{seen(refOf(kindAttachment, other), "spec.nodeName", other.Spec.NodeName)}, evidence...)
	for _, pod := range podsWith(c, volume, other.Spec.NodeName) {
		verdict.Message = fmt.Sprintf("%s is attached to Node %s, where Pod %s/%s uses it.", volume, other.Spec.NodeName,
			pod.Namespace, pod.Name)
		verdict.Evidence = append(verdict.Evidence, seen(refOf(kindPod, pod), "spec.nodeName", pod.Spec.NodeName))
		verdict.Actor, verdict.Next = User, []shell.Command{command("delete", refOf(kindPod, pod))}
	}
	return verdict
}

// podsWith returns the Pods on a node that use a volume and have not ended.
func podsWith(c *cluster, volume, node string) []*corev1.Pod {
	pv := c.volumes[volume]
	if pv == nil || pv.Spec.ClaimRef == nil {
		return nil
	}
	var found []*corev1.Pod
	for _, pod := range c.podsUsing(Ref{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}) {
		if pod.Spec.NodeName == node {
			found = append(found, pod)
		}
	}
	return found
}

// volumesOn returns the names of the driver's volumes that are attached to a node or wanted there by Pods on it.
func volumesOn(c *cluster, node string) map[string]bool {
	on := map[string]bool{}
	for _, a := range c.attachmentsOfNode[node] {
		if a.Spec.Attacher == c.Driver && a.Spec.Source.PersistentVolumeName != nil {
			on[*a.Spec.Source.PersistentVolumeName] = true
		}
	}
	for _, pod := range c.podsOfNode[node] {
		for _, claim := range podclaims.InUse(pod) {
			if pv := c.volumeOfClaim[key(pod.Namespace, claim)]; pv != nil && isOfDriver(pv, c.Driver) {
				on[pv.Name] = true
			}
		}
	}
	return on
}

// limitOn is the evidence of how many volumes a node takes; its value is None as long as the CSINode doesn't say.
func limitOn(c *cluster, node string) []Evidence {
	if !c.isRead(kindCSINode, "") {
		return nil
	}
	return []Evidence{seen(Ref{Kind: kindCSINode, Name: node}, "spec.drivers.allocatable.count", limitOf(c, node))}
}

// limitOf returns how many volumes a node takes, nil as long as the CSINode doesn't say.
func limitOf(c *cluster, node string) *int32 {
	entry := driverOn(c.csiNodes[node], c.Driver)
	if entry == nil || entry.Allocatable == nil {
		return nil
	}
	return entry.Allocatable.Count
}

// shownAttachments is how many VolumeAttachments stand as evidence for all of a node.
const shownAttachments = 3

func attachmentsOn(c *cluster, node string) []Evidence {
	var found []Evidence
	for _, a := range c.attachmentsOfNode[node] { // sorted
		if a.Spec.Attacher == c.Driver && len(found) < shownAttachments {
			found = append(found, seen(refOf(kindAttachment, a), "spec.nodeName", a.Spec.NodeName))
		}
	}
	return found
}

// volumesSeen is the evidence of which volumes a node has or is to have: attachments, and then Pods whose volumes have none yet.
func volumesSeen(c *cluster, node string) []Evidence {
	found := attachmentsOn(c, node)
	for _, pod := range c.podsOfNode[node] {
		if len(found) >= shownAttachments {
			break
		}
		for _, claim := range podclaims.InUse(pod) {
			pv := c.volumeOfClaim[key(pod.Namespace, claim)]
			attached := pv == nil || slices.ContainsFunc(c.attachmentsOfVolume[pv.Name],
				func(a *storagev1.VolumeAttachment) bool { return a.Spec.NodeName == node })
			if !attached && isOfDriver(pv, c.Driver) {
				found = append(found, seen(refOf(kindPod, pod), "spec.nodeName", node))
				break
			}
		}
	}
	return found
}
