package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/provisioner/request"
)

func judgeClaim(c *cluster, claim *corev1.PersistentVolumeClaim) Verdict {
	switch {
	case claim.DeletionTimestamp != nil:
		return judgeDeletedClaim(c, claim)
	case claim.Spec.VolumeName != "":
		return judgeClaimOfVolume(c, claim)
	}
	return judgeUnboundClaim(c, claim)
}

func describe(object Ref) shell.Command { return command("describe", object) }

// heldByFinalizer begins the verdict on an object that is being deleted and stays as long as it has finalizers.
func heldByFinalizer(c *cluster, kind string, of Ref, object metav1.Object) Verdict {
	return Verdict{
		State: Waits, Cause: HeldByFinalizer, Actor: User,
		Message: fmt.Sprintf("%s %s has been going%s, and stays as long as it has the finalizer %s.",
			kind, object.GetName(), c.since(*object.GetDeletionTimestamp()), strings.Join(object.GetFinalizers(), ", ")),
		Evidence: []Evidence{
			seen(of, "metadata.finalizers", object.GetFinalizers()),
			seen(of, "metadata.deletionTimestamp", object.GetDeletionTimestamp()),
		},
	}
}

// judgeDeletedClaim judges a claim that is going.
func judgeDeletedClaim(c *cluster, claim *corev1.PersistentVolumeClaim) Verdict {
	of := refOf(kindClaim, claim)
	verdict := heldByFinalizer(c, "Claim", of, claim)
	verdict.Next, verdict.Retried = []shell.Command{command("get", of, "--output", "yaml")}, "by whoever owns the finalizer"
	if !slices.Contains(claim.Finalizers, "kubernetes.io/pvc-protection") {
		return verdict
	}
	pods := c.podsKeeping(claim)
	if areRead := c.isRead(kindPod, claim.Namespace); len(pods) == 0 && !areRead {
		return unknown(c, fmt.Sprintf("Claim %s has been going%s, and whether Pods use it could not be read.", claim.Name,
			c.since(*claim.DeletionTimestamp)), Ref{Kind: kindPod, Namespace: claim.Namespace})
	}
	if len(pods) > 0 {
		keptByPods(c, &verdict, claim, pods)
	}
	return verdict
}

// podsKeeping returns the Pods for which a claim that is being deleted stays: those that have a node, even if they have ended.
func (c *cluster) podsKeeping(claim *corev1.PersistentVolumeClaim) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(c.podsOfClaim[key(claim.Namespace, claim.Name)]), func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" })
}

// keptByPods turns the verdict on a claim that is being deleted into one about the Pods for which it stays.
func keptByPods(c *cluster, verdict *Verdict, claim *corev1.PersistentVolumeClaim, pods []*corev1.Pod) {
	var names []string
	verdict.Next = nil
	for _, pod := range pods {
		of := refOf(kindPod, pod)
		names = append(names, pod.Name)
		verdict.Evidence = append(verdict.Evidence, seen(of, "status.phase", string(pod.Status.Phase)))
		verdict.Next = append(verdict.Next, command("delete", of))
	}
	verdict.Message = fmt.Sprintf("Claim %s has been going%s, and stays until these Pods, which use it, are deleted: %s.", claim.Name,
		c.since(*claim.DeletionTimestamp), strings.Join(names, ", "))
	verdict.Retried = "kube-controller-manager, when the Pods are deleted"
	warnOfData(c, verdict, claim)
}

// warnOfData says that the data of a claim that is being deleted go with it, before the commands that let it go.
func warnOfData(c *cluster, verdict *Verdict, claim *corev1.PersistentVolumeClaim) {
	pv := c.boundTo(claim)
	switch {
	case claim.Spec.VolumeName == "", pv != nil && !mayBeBound(pv, claim):
		return
	case pv == nil && c.isRead(kindVolume, ""):
		return
	case pv == nil:
		verdict.Message += fmt.Sprintf(" Whether PersistentVolume %s then goes with all its data could not be read.", claim.Spec.VolumeName)
	case !isDeletedWithDisk(pv):
		return
	default:
		verdict.Message += fmt.Sprintf(" Then PersistentVolume %s goes, too, with all its data: its reclaim policy is Delete. To keep them, have an administrator set Retain first.",
			pv.Name)
		verdict.Evidence = append(verdict.Evidence, policyOf(pv))
	}
	verdict.Next = append([]shell.Command{describe(refOf(kindClaim, claim))}, verdict.Next...)
}

// judgeClaimOfVolume judges a claim that has a volume, or names one.
func judgeClaimOfVolume(c *cluster, claim *corev1.PersistentVolumeClaim) Verdict {
	of, volume := refOf(kindClaim, claim), Ref{Kind: kindVolume, Name: claim.Spec.VolumeName}
	pv := c.boundTo(claim)
	switch {
	case pv == nil && !c.isRead(kindVolume, ""):
		return unknown(c, fmt.Sprintf("%s of claim %s could not be read.", volume, claim.Name), volume)
	case pv == nil:
		verdict := Verdict{
			State: Waits, Cause: VolumeNotFound, Actor: User,
			Message:  fmt.Sprintf("%s of claim %s doesn't exist.", volume, claim.Name),
			Evidence: []Evidence{seen(of, "spec.volumeName", claim.Spec.VolumeName), seen(volume, "metadata.name", "")},
			Next:     []shell.Command{describe(of)}, Retried: "never",
		}
		if claim.Status.Phase == corev1.ClaimPending { // it was never bound
			verdict.Retried = "kube-controller-manager, when there is such a PersistentVolume"
		}
		return verdict
	case !mayBeBound(pv, claim):
		return volumeTaken(claim, pv)
	case claim.Status.Phase != corev1.ClaimBound:
		return Verdict{
			State: Unknown,
			Message: fmt.Sprintf("Claim %s names %s, which is %s, and is not bound to it: its events say why.",
				claim.Name, volume, pv.Status.Phase),
			Next: []shell.Command{describe(of)},
		}
	}
	if isResizing(claim) {
		return judgeResize(c, claim, pv)
	}
	if claim.Status.ModifyVolumeStatus != nil {
		return judgeModification(c, claim)
	}
	return works("Claim %s is bound to PersistentVolume %s in %s.", claim.Name, pv.Name, PlaceOf(pv))
}

// mayBeBound says whether a volume is free or the claim's. One of an earlier claim of the same name, with another UID, is neither.
func mayBeBound(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref == nil || isNamed(ref, claim) && (ref.UID == "" || ref.UID == claim.UID)
}

func isNamed(ref *corev1.ObjectReference, claim *corev1.PersistentVolumeClaim) bool {
	return ref.Namespace == claim.Namespace && ref.Name == claim.Name
}

// volumeTaken is the verdict on a claim that names a volume of another claim.
func volumeTaken(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) Verdict {
	of, ref := refOf(kindVolume, pv), pv.Spec.ClaimRef
	v := Verdict{
		State: Waits, Cause: VolumeOfOtherClaim, Actor: User,
		Message: fmt.Sprintf("Claim %s names PersistentVolume %s, which is %s and belongs to claim %s/%s.",
			claim.Name, pv.Name, pv.Status.Phase, ref.Namespace, ref.Name),
		Evidence: []Evidence{
			seen(refOf(kindClaim, claim), "spec.volumeName", claim.Spec.VolumeName),
			seen(of, "spec.claimRef", ref),
			phaseOf(pv),
		},
		Next: []shell.Command{describe(refOf(kindClaim, claim))}, Retried: "kube-controller-manager, when the PersistentVolume is free",
	}
	if isNamed(ref, claim) {
		v.Message = fmt.Sprintf("Claim %s names PersistentVolume %s, which is %s and belongs to an earlier claim of the same name.",
			claim.Name, pv.Name, pv.Status.Phase)
		v.Evidence = append(v.Evidence, seen(refOf(kindClaim, claim), "metadata.uid", string(claim.UID)))
	}
	if isNamed(ref, claim) && !isDeletedWithDisk(pv) && pv.DeletionTimestamp == nil {
		v.Message += " Without the earlier claim's UID the volume, with its data, is bound to this one."
		v.Actor, v.Next = ClusterAdmin, []shell.Command{describe(of)}
		v.Next = append(v.Next, command("patch", of, "--patch", `{"spec":{"claimRef":{"uid":null}}}`))
	}
	return v
}

// judgeUnboundClaim judges a claim that has no volume: is there a class, whose is it, may it be provisioned, does somebody do so, and
// what has become of it.
func judgeUnboundClaim(c *cluster, claim *corev1.PersistentVolumeClaim) Verdict {
	name := request.ClassName(claim)
	class := c.classes[name]
	switch {
	case request.HasLostVolume(claim):
		return volumeLost(claim)
	case class == nil && name != "" && !c.isRead(kindClass, ""):
		return unknown(c, fmt.Sprintf("StorageClass %s of claim %s could not be read.", name, claim.Name),
			Ref{Kind: kindClass, Name: name})
	case class == nil:
		return classNotFound(claim, name)
	case class.Provisioner != c.Driver:
		return Verdict{
			State: Waits, Cause: OtherDriver, Actor: ClusterAdmin,
			Message: fmt.Sprintf("Class %s of claim %s is served by %s, not by %s.",
				class.Name, claim.Name, class.Provisioner, c.Driver),
			Evidence: []Evidence{seen(refOf(kindClass, class), "provisioner", class.Provisioner)},
			Next:     []shell.Command{kubectl("get", "storageclasses")}, Retried: "by that provisioner",
		}
	case waitsForNode(class) && selectedNode(claim) == "":
		return judgeUnselected(c, claim, class)
	case request.HasPopulator(claim):
		return leftToPopulator(claim)
	}
	return judgeProvisioning(c, claim, class)
}

// volumeLost is the verdict on a claim that was bound and names no volume any more.
func volumeLost(claim *corev1.PersistentVolumeClaim) Verdict {
	of := refOf(kindClaim, claim)
	return Verdict{
		State: Waits, Cause: VolumeNotFound, Actor: User,
		Message:  fmt.Sprintf("Claim %s has lost its volume, and Kubernetes binds it to no other: a claim that was bound once gets no second volume.", claim.Name),
		Evidence: []Evidence{seen(of, "status.phase", string(claim.Status.Phase)), seen(of, "spec.volumeName", "")},
		Next:     []shell.Command{describe(of)}, Retried: "never",
	}
}

// leftToPopulator is the verdict on a claim whose source is neither a snapshot nor a claim.
func leftToPopulator(claim *corev1.PersistentVolumeClaim) Verdict {
	of := refOf(kindClaim, claim)
	field, value, source := SourceOf(claim)
	return Verdict{
		State: Waits, Cause: WaitsForPopulator, Actor: ClusterAdmin,
		Message: fmt.Sprintf("Claim %s is filled from %s, and disk-provisioner leaves such a claim to the volume populator of that kind, which must be installed.",
			claim.Name, source),
		Evidence: []Evidence{seen(of, field, value)},
		Next:     []shell.Command{describe(of)}, Retried: "by that populator",
	}
}

func classNotFound(claim *corev1.PersistentVolumeClaim, name string) Verdict {
	of, field := refOf(kindClaim, claim), "spec.storageClassName"
	if _, old := claim.Annotations[corev1.BetaStorageClassAnnotation]; old {
		field = "metadata.annotations[" + corev1.BetaStorageClassAnnotation + "]"
	}
	verdict := Verdict{
		State: Waits, Cause: ClassNotFound, Actor: User,
		Message:  fmt.Sprintf("Claim %s names no StorageClass, so no volume is made for it.", claim.Name),
		Evidence: []Evidence{seen(of, field, name)},
		Next:     []shell.Command{kubectl("get", "storageclasses")}, Retried: "kube-controller-manager, when a PersistentVolume fits",
	}
	if name != "" {
		verdict.Message = fmt.Sprintf("There is no StorageClass %s, which claim %s names.", name, claim.Name)
		verdict.Retried = "as soon as there is one"
		verdict.Evidence = append(verdict.Evidence, seen(Ref{Kind: kindClass, Name: name}, "metadata.name", ""))
	}
	return verdict
}

// judgeUnselected judges a claim that waits until the scheduler has selected a node for a Pod that uses it.
func judgeUnselected(c *cluster, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) Verdict {
	if pod := c.consumerOf(refOf(kindClaim, claim)); pod != nil {
		return judgeConsumer(c, claim, class, pod)
	}
	if !c.isRead(kindPod, claim.Namespace) {
		return unknown(c, fmt.Sprintf("Claim %s waits until a node is selected, and its Pods could not be read.", claim.Name),
			Ref{Kind: kindPod, Namespace: claim.Namespace})
	}
	return Verdict{
		State: Waits, Cause: WaitsForConsumer, Actor: User,
		Message:  fmt.Sprintf("No Pod uses claim %s, and its class %s makes volumes when one does.", claim.Name, class.Name),
		Evidence: []Evidence{seen(refOf(kindClass, class), "volumeBindingMode", bindingMode(class)), selectedEvidence(claim)},
		Next:     []shell.Command{describe(refOf(kindClaim, claim))}, Retried: "scheduler, when a Pod uses the claim",
	}
}

// judgeConsumer judges a claim by the Pod that it waits for, if the Facts have what the Pod needs: a claim needs no nodes.
func judgeConsumer(c *cluster, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, pod *corev1.Pod) Verdict {
	if pod.Spec.NodeName != "" || len(c.Nodes) > 0 || !c.isRead(kindNode, "") {
		return judgePod(c, pod)
	}
	of := refOf(kindPod, pod)
	return Verdict{
		State: Waits, Cause: WaitsForConsumer, Actor: User,
		Message: fmt.Sprintf("Claim %s waits until the scheduler has selected a node for Pod %s, which has none.",
			claim.Name, pod.Name),
		Evidence: []Evidence{
			seen(refOf(kindClass, class), "volumeBindingMode", bindingMode(class)),
			selectedEvidence(claim),
			seen(of, "spec.nodeName", ""),
		},
		Next:    []shell.Command{kubectl("topodisk", "why", "pod", pod.Name, "--namespace", pod.Namespace)},
		Retried: "scheduler, when a node or another Pod changes",
	}
}

func bindingMode(class *storagev1.StorageClass) string {
	if class.VolumeBindingMode == nil {
		return string(storagev1.VolumeBindingImmediate)
	}
	return string(*class.VolumeBindingMode)
}
