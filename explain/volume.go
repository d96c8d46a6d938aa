package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/provisioner/request"
)

func judgeVolume(c *cluster, pv *corev1.PersistentVolume) Verdict {
	isReleased := pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed
	switch {
	case !isOfDriver(pv, c.Driver):
		return otherDriversVolume(c, pv)
	case isReleased && (isDeletedWithDisk(pv) || pv.DeletionTimestamp == nil):
		return judgeReleased(c, pv)
	case pv.DeletionTimestamp != nil:
		return volumeHeld(c, pv, isReleased)
	case pv.Status.Phase == corev1.VolumeBound && pv.Spec.ClaimRef != nil:
		return works("PersistentVolume %s is bound to claim %s/%s.", pv.Name, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
	}
	return works("PersistentVolume %s is %s.", pv.Name, cmp.Or(string(pv.Status.Phase), "new"))
}

// isDeletedWithDisk says whether disk-provisioner deletes a volume with its disk once it is released. The disk goes first, so such a
// volume may be being deleted, too.
func isDeletedWithDisk(pv *corev1.PersistentVolume) bool {
	return pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// volumeHeld is the verdict on a volume that is being deleted, and whose disk stays.
func volumeHeld(c *cluster, pv *corev1.PersistentVolume, isReleased bool) Verdict {
	of := refOf(kindVolume, pv)
	v := heldByFinalizer(c, "PersistentVolume", of, pv)
	v.Evidence = append(v.Evidence, phaseOf(pv))
	v.Next, v.Retried = []shell.Command{describe(of)}, "kube-controller-manager, when its claim is gone"
	if ref := pv.Spec.ClaimRef; ref != nil {
		v.Next = []shell.Command{describe(Ref{Kind: kindClaim, Namespace: ref.Namespace, Name: ref.Name})}
	}
	if isReleased {
		v.Actor, v.Next, v.Retried = ClusterAdmin, []shell.Command{describe(of)}, "by whoever owns the finalizer"
	}
	return v
}

func phaseOf(pv *corev1.PersistentVolume) Evidence {
	return seen(refOf(kindVolume, pv), "status.phase", string(pv.Status.Phase))
}

func policyOf(pv *corev1.PersistentVolume) Evidence {
	return seen(refOf(kindVolume, pv), "spec.persistentVolumeReclaimPolicy", string(pv.Spec.PersistentVolumeReclaimPolicy))
}

func otherDriversVolume(c *cluster, pv *corev1.PersistentVolume) Verdict {
	driver := ""
	if pv.Spec.CSI != nil {
		driver = pv.Spec.CSI.Driver
	}
	if pv.Status.Phase == corev1.VolumeBound || pv.Status.Phase == corev1.VolumeAvailable {
		return works("PersistentVolume %s is %s, and not of driver %s.", pv.Name, pv.Status.Phase, c.Driver)
	}
	return Verdict{
		State: Waits, Cause: OtherDriver, Actor: ClusterAdmin,
		Message:  fmt.Sprintf("PersistentVolume %s is not of driver %s.", pv.Name, c.Driver),
		Evidence: []Evidence{seen(refOf(kindVolume, pv), "spec.csi.driver", driver), phaseOf(pv)},
		Next:     []shell.Command{describe(refOf(kindVolume, pv))}, Retried: "by that driver's provisioner",
	}
}

// judgeReleased judges a volume whose claim is gone.
func judgeReleased(c *cluster, pv *corev1.PersistentVolume) Verdict {
	of := refOf(kindVolume, pv)
	if claim := c.claimStillBound(pv); claim != nil {
		return claimedVerdict(c, pv, claim)
	}
	if !isDeletedWithDisk(pv) {
		message := fmt.Sprintf("The claim of PersistentVolume %s is gone, and its reclaim policy %s keeps the disk. "+
			"Setting the policy Delete deletes the disk with all its data.", pv.Name, pv.Spec.PersistentVolumeReclaimPolicy)
		return volumeKept(pv, message, describe(of), patchPolicy(of, corev1.PersistentVolumeReclaimDelete))
	}
	if pv.Status.Phase == corev1.VolumeFailed {
		message := fmt.Sprintf("PersistentVolume %s is Failed, and disk-provisioner deletes the disks of Released ones alone, so its disk is kept.", pv.Name)
		verdict := volumeKept(pv, message, describe(of))
		verdict.Evidence, verdict.Retried = append(verdict.Evidence, seen(of, "status.message", pv.Status.Message)), "never, as long as it is Failed"
		return verdict
	}
	if other := sharer(c, pv); other != nil {
		message := fmt.Sprintf("The claim of PersistentVolume %s is gone, and PersistentVolume %s names the same disk, so it is kept. "+
			"To delete %s and keep the disk for the other, set its policy to Retain first.", pv.Name, other.Name, pv.Name)
		verdict := volumeKept(pv, message, patchPolicy(of, corev1.PersistentVolumeReclaimRetain), command("delete", of))
		verdict.Evidence = append(verdict.Evidence,
			seen(refOf(kindVolume, other), "spec.csi.volumeHandle", other.Spec.CSI.VolumeHandle))
		if event := c.latest(of, reasonVolumeKept); event != nil {
			verdict.Evidence = append(verdict.Evidence, eventSeen(event))
		}
		return verdict
	}
	if !c.isRead(kindVolume, "") {
		return unknown(c, fmt.Sprintf("PersistentVolume %s is being deleted, and whether another one names its disk could not be read.", pv.Name),
			Ref{Kind: kindVolume})
	}
	return judgeDeletion(c, pv)
}

// claimStillBound returns the claim that is bound to a volume although the volume's status says that it is not, or nil.
func (c *cluster) claimStillBound(pv *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	if pv.Spec.ClaimRef == nil {
		return nil
	}
	claim := c.claims[key(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)]
	if claim == nil || !mayBeBound(pv, claim) || claim.Spec.VolumeName != pv.Name {
		return nil
	}
	return claim
}

// claimedVerdict is the verdict on a released volume that a claim is bound to: disk-provisioner keeps its disk.
func claimedVerdict(c *cluster, pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) Verdict {
	of, owner := refOf(kindVolume, pv), refOf(kindClaim, claim)
	v := volumeKept(pv, fmt.Sprintf("PersistentVolume %s is %s, but claim %s is bound to it, so its disk is kept.", pv.Name, pv.Status.Phase, owner.FullName()),
		describe(of), describe(owner))
	v.Evidence = append(v.Evidence, seen(owner, "spec.volumeName", claim.Spec.VolumeName))
	v.Retried = "kube-controller-manager, which says what is bound to what"
	if event := c.latest(of, reasonVolumeKept); event != nil {
		v.Evidence = append(v.Evidence, eventSeen(event))
	}
	return v
}

func volumeKept(pv *corev1.PersistentVolume, message string, next ...shell.Command) Verdict {
	return Verdict{
		State: Waits, Cause: VolumeKept, Actor: ClusterAdmin,
		Message:  message,
		Evidence: []Evidence{phaseOf(pv), policyOf(pv)},
		Next:     next, Retried: "never with Retain; else when the other PersistentVolume goes",
	}
}

func patchPolicy(volume Ref, policy corev1.PersistentVolumeReclaimPolicy) shell.Command {
	return command("patch", volume, "--patch", fmt.Sprintf(`{"spec":{"persistentVolumeReclaimPolicy":"%s"}}`, policy))
}

// sharer returns another PersistentVolume that keeps the disk: one of the same disk that is not itself being deleted with it.
func sharer(c *cluster, pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	var first *corev1.PersistentVolume
	for i := range c.Volumes {
		other := &c.Volumes[i]
		goes := other.Status.Phase == corev1.VolumeReleased &&
			other.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
		if other.Name != pv.Name && isOfDriver(other, c.Driver) && other.Spec.CSI.VolumeHandle == pv.Spec.CSI.VolumeHandle &&
			!goes &&
			(first == nil || other.Name < first.Name) {
			first = other
		}
	}
	return first
}

// judgeDeletion judges a volume that is to be deleted with its disk.
func judgeDeletion(c *cluster, pv *corev1.PersistentVolume) Verdict {
	of := refOf(kindVolume, pv)
	if foreign := foreignFinalizers(pv, c.Driver); pv.DeletionTimestamp != nil && len(foreign) > 0 && len(foreign) == len(pv.Finalizers) {
		v := volumeHeld(c, pv, true)
		v.Message = fmt.Sprintf("PersistentVolume %s has been going%s, and stays as long as it has the finalizer %s, which is of another program.",
			pv.Name, c.since(*pv.DeletionTimestamp), strings.Join(foreign, ", "))
		return v
	}
	if attached := c.attachmentsOfVolume[pv.Name]; len(attached) > 0 {
		return stillAttached(c, pv, attached[0])
	}
	if e, event := errorOf(c, of, reasonVolumeFailedDelete); event != nil {
		verdict := errorVerdict(c, e, deleting, eventSeen(event))
		if verdict.Cause == DriverFailed && e.isPending() {
			verdict.Cause, verdict.Actor = BeingDeleted, Nobody
		}
		verdict.Message = fmt.Sprintf("The disk of PersistentVolume %s is not deleted yet: %s", pv.Name, verdict.Message)
		verdict.Evidence = append(verdict.Evidence, phaseOf(pv))
		verdict.Next, verdict.Retried = orElse(verdict.Next, describe(of)), provisionerRetries
		return verdict
	}
	lease, led := c.leader()
	if led == mayLead && c.isRead(kindLease, "") {
		return doubtedLeader(c, lease)
	}
	if led == nobodyLeads && c.isRead(kindLease, "") {
		return noLeader(c, lease, fmt.Sprintf("No disk-provisioner leads, so the disk of PersistentVolume %s is not deleted.", pv.Name), phaseOf(pv))
	}
	if needed := c.unreadOf(kindEvent, kindAttachment, kindLease); len(needed) > 0 {
		return unknown(c, fmt.Sprintf("PersistentVolume %s is being deleted, and what holds it could not be read.", pv.Name),
			needed...)
	}
	return Verdict{
		State: Waits, Cause: BeingDeleted, Actor: Nobody,
		Message:  fmt.Sprintf("The disk of PersistentVolume %s is being deleted.", pv.Name),
		Evidence: []Evidence{phaseOf(pv), policyOf(pv)},
		Next:     []shell.Command{describe(of)}, Retried: provisionerRetries,
	}
}

// foreignFinalizers returns the finalizers that neither disk-provisioner, csi-attacher nor Kubernetes removes.
func foreignFinalizers(pv *corev1.PersistentVolume, driver string) []string {
	own := []string{request.Finalizer, attacherFinalizer(driver), "kubernetes.io/pv-protection"}
	return slices.DeleteFunc(slices.Clone(pv.Finalizers), func(f string) bool { return slices.Contains(own, f) })
}

// stillAttached is the verdict on a volume that is to be deleted and has a VolumeAttachment.
func stillAttached(c *cluster, pv *corev1.PersistentVolume, a *storagev1.VolumeAttachment) Verdict {
	node := a.Spec.NodeName
	evidence := []Evidence{phaseOf(pv), seen(refOf(kindAttachment, a), "spec.nodeName", node)}
	if dead, why := isDead(c, node); dead {
		message := fmt.Sprintf("PersistentVolume %s is attached to Node %s, which %s, so its disk is not deleted.",
			pv.Name, node, howDead(c, node))
		return deadNodeVerdict(c, node, message, slices.Concat(evidence, why))
	}
	if a.DeletionTimestamp != nil {
		verdict := judgeDetach(c, a)
		verdict.Evidence = append(verdict.Evidence, evidence...)
		return verdict
	}
	return Verdict{
		State: Waits, Cause: BeingDetached, Actor: Nobody,
		Message:  fmt.Sprintf("PersistentVolume %s is still attached to Node %s, so its disk is not deleted.", pv.Name, node),
		Evidence: evidence,
		Next:     []shell.Command{attachmentYAML(a)}, Retried: "disk-provisioner, when the volume is detached",
	}
}
