package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/internal/shell"
)

func judgePod(c *cluster, pod *corev1.Pod) Verdict {
	if podclaims.HasEnded(pod) {
		return works("Pod %s has ended: it is %s.", pod.Name, pod.Status.Phase)
	}
	if pod.DeletionTimestamp != nil {
		return judgeDeletedPod(c, pod)
	}
	if v, found := judgeUnusableClaims(c, pod); found {
		return v
	}
	if pod.Spec.NodeName != "" {
		return judgePlacedPod(c, pod)
	}
	return judgeUnplacedPod(c, pod)
}

// judgeDeletedPod judges a Pod that is going.
func judgeDeletedPod(c *cluster, pod *corev1.Pod) Verdict {
	of := refOf(kindPod, pod)
	v := Verdict{
		State: Waits, Cause: BeingDeleted, Actor: Nobody,
		Message: fmt.Sprintf("Pod %s has been going%s: its containers end and its volumes are unmounted.",
			pod.Name, c.since(*pod.DeletionTimestamp)),
		Evidence: []Evidence{seen(of, "metadata.deletionTimestamp", pod.DeletionTimestamp)},
		Next:     []shell.Command{describe(of)}, Retried: "kubelet",
	}
	if dead, evidence := isDead(c, pod.Spec.NodeName); dead && pod.Spec.NodeName != "" {
		v.Cause, v.Evidence = NodeNotReady, slices.Concat(v.Evidence, []Evidence{seen(of, "spec.nodeName", pod.Spec.NodeName)}, evidence)
		v.Message = fmt.Sprintf("Pod %s has been going%s, and Node %s, which must end it, %s.", pod.Name,
			c.since(*pod.DeletionTimestamp), pod.Spec.NodeName, howDead(c, pod.Spec.NodeName))
		v.Retried = "kube-controller-manager, which deletes the Pods of a node that is gone or out of service"
		if node := c.nodes[pod.Spec.NodeName]; node != nil && !isOutOfService(node) {
			v.Retried = "kubelet, when the node is back; kube-controller-manager, when the node is out of service"
			mayBeOff(&v, node.Name)
		}
		return v
	}
	if len(pod.Finalizers) > 0 {
		v.Cause, v.Actor, v.Retried = HeldByFinalizer, ClusterAdmin, "by whoever owns the finalizer"
		v.Message = fmt.Sprintf("Pod %s has been going%s, and stays as long as it has the finalizer %s.", pod.Name,
			c.since(*pod.DeletionTimestamp), strings.Join(pod.Finalizers, ", "))
		v.Evidence = append(v.Evidence, seen(of, "metadata.finalizers", pod.Finalizers))
	}
	return v
}

// judgeUnusableClaims says whether a claim that the Pod names isn't there or is going, or the volume that it names isn't its own.
func judgeUnusableClaims(c *cluster, pod *corev1.Pod) (Verdict, bool) {
	of := refOf(kindPod, pod)
	for volume, name := range podclaims.ByVolume(pod) {
		ref := Ref{Kind: kindClaim, Namespace: pod.Namespace, Name: name}
		claim := c.claims[key(pod.Namespace, name)]
		switch {
		case claim == nil && !c.isRead(kindClaim, pod.Namespace):
			return unknown(c, fmt.Sprintf("Claim %s of Pod %s could not be read.", name, pod.Name), ref), true
		case claim == nil && volume.Ephemeral != nil:
			return ephemeralClaimMissing(c, pod, volume, ref), true
		case claim == nil:
			return Verdict{
				State: Waits, Cause: ClaimNotFound, Actor: User,
				Message:  fmt.Sprintf("There is no claim %s, which Pod %s names.", name, pod.Name),
				Evidence: []Evidence{seen(of, "spec.volumes["+volume.Name+"]", volume), seen(ref, "metadata.name", "")},
				Next:     []shell.Command{kubectl("get", "pvc", "--namespace", pod.Namespace)},
				Retried:  "scheduler, when there is such a claim",
			}, true
		case pod.Spec.NodeName == "" && claim.DeletionTimestamp != nil:
			return judgeDeletedClaim(c, claim), true
		case volume.Ephemeral != nil && !metav1.IsControlledBy(claim, pod):
			return ephemeralClaimTaken(pod, volume, claim), true
		case claim.Spec.VolumeName != "" && !c.isBound(claim):
			return judgeClaimOfVolume(c, claim), true
		}
	}
	return Verdict{}, false
}

// judgeSinglePodClaims says whether another Pod has a claim of the Pod that only one Pod may use at a time.
func judgeSinglePodClaims(c *cluster, pod *corev1.Pod, has func(other *corev1.Pod) bool) (Verdict, bool) {
	for _, need := range c.storageOf(pod) {
		of := refOf(kindClaim, need.claim)
		if !slices.Contains(need.claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			continue
		}
		for _, other := range c.podsUsing(of) {
			if other.Name != pod.Name && has(other) {
				return Verdict{
					State: Waits, Cause: VolumeInUse, Actor: User,
					Message: fmt.Sprintf("Pod %s on Node %s uses claim %s, whose access mode %s allows one Pod at a time.", other.Name,
						other.Spec.NodeName, need.claim.Name, corev1.ReadWriteOncePod),
					Evidence: []Evidence{seen(of, "spec.accessModes", need.claim.Spec.AccessModes),
						seen(refOf(kindPod, other), "spec.nodeName", other.Spec.NodeName)},
					Next:    []shell.Command{describe(refOf(kindPod, other)), command("delete", refOf(kindPod, other))},
					Retried: "scheduler or kubelet, when that Pod has ended",
				}, true
			}
		}
	}
	return Verdict{}, false
}

// ephemeralClaimMissing is the verdict on a Pod whose generic ephemeral volume has no claim yet.
func ephemeralClaimMissing(c *cluster, pod *corev1.Pod, volume *corev1.Volume, claim Ref) Verdict {
	of := refOf(kindPod, pod)
	v := Verdict{
		State: Waits, Cause: ClaimNotFound, Actor: User,
		Message:  fmt.Sprintf("Claim %s, which is to be made for the ephemeral volume %s of Pod %s, doesn't exist yet.", claim.Name, volume.Name, pod.Name),
		Evidence: []Evidence{seen(of, "spec.volumes["+volume.Name+"]", volume), seen(claim, "metadata.name", "")},
		Next:     []shell.Command{describe(of)}, Retried: "kube-controller-manager, which makes the claim",
	}
	c.isRead(kindEvent, pod.Namespace)
	if event := c.latest(of, reasonFailedBinding); event != nil {
		v.Message = fmt.Sprintf("Claim %s, which is to be made for the ephemeral volume %s of Pod %s, can't be made: %s", claim.Name, volume.Name,
			pod.Name, sentence(event.Message))
		v.Evidence = append(v.Evidence, eventSeen(event))
	}
	return v
}

// ephemeralClaimTaken is the verdict on a Pod whose generic ephemeral volume is to have the name of a claim that isn't the Pod's.
func ephemeralClaimTaken(pod *corev1.Pod, volume *corev1.Volume, claim *corev1.PersistentVolumeClaim) Verdict {
	of, ref := refOf(kindPod, pod), refOf(kindClaim, claim)
	return Verdict{
		State: Waits, Cause: ClaimNotFound, Actor: User,
		Message: fmt.Sprintf("Claim %s has the name that the claim of the ephemeral volume %s of Pod %s must have, and was not made for this Pod, so the Pod can't use it. "+
			"Give the volume another name.", claim.Name, volume.Name, pod.Name),
		Evidence: []Evidence{seen(of, "spec.volumes["+volume.Name+"]", volume), seen(of, "metadata.uid", string(pod.UID)),
			seen(ref, "metadata.ownerReferences", claim.OwnerReferences)},
		Next: []shell.Command{describe(ref)}, Retried: "kube-controller-manager, when no claim has the name",
	}
}
