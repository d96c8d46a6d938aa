package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/internal/shell"
)

const (
	resizerRetries = "csi-resizer, with growing pauses"
	resizerInVain  = "csi-resizer, rarely, in vain"
)

// isResizing says whether a claim asks for more than it has. What it has may not be told yet.
func isResizing(claim *corev1.PersistentVolumeClaim) bool {
	wants := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	has, told := claim.Status.Capacity[corev1.ResourceStorage]
	return told && wants.Cmp(has) > 0
}

// judgeResize judges a claim that asks for more than it has.
func judgeResize(c *cluster, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) Verdict {
	of := refOf(kindClaim, claim)
	wants, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	state := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	sizes := []Evidence{seen(of, "spec.resources.requests.storage", wants.String()),
		seen(of, "status.capacity.storage", has.String())}
	stateSeen := seen(of, "status.allocatedResourceStatuses.storage", string(state))

	e, event := errorOf(c, of, reasonResizeFailed)
	switch {
	case state == corev1.PersistentVolumeClaimControllerResizeInfeasible, state == corev1.PersistentVolumeClaimNodeResizeInfeasible:
		verdict := Verdict{
			State: Waits, Cause: ResizeInfeasible, Actor: User,
			Message:  fmt.Sprintf("Claim %s can't have %s.", claim.Name, wants.String()),
			Evidence: append([]Evidence{stateSeen}, sizes...),
			Next:     []shell.Command{patchSize(of, has.String())}, Retried: resizerInVain,
		}
		said := []Evidence{}
		if event != nil {
			said = append(said, eventSeen(event))
		} else if condition, text := conditionSaid(claim, corev1.PersistentVolumeClaimNodeResizeError); text != "" {
			said, e = condition, readError(text)
		}
		if len(said) > 0 {
			verdict.Message = fmt.Sprintf("Claim %s can't have %s: %s", claim.Name, wants.String(), sentence(e.Text))
			verdict.Evidence, verdict.Error = append(verdict.Evidence, said...), &e
		}
		return verdict
	case state == corev1.PersistentVolumeClaimControllerResizeInProgress && event != nil && !e.isPending():
		verdict := errorVerdict(c, e, resizing, eventSeen(event))
		if verdict.Cause == ResizeInfeasible {
			break // an earlier try's; csi-resizer is at work on another
		}
		verdict.Message = fmt.Sprintf("Claim %s has %s and not yet %s. %s", claim.Name, has.String(), wants.String(),
			verdict.Message)
		verdict.Evidence = slices.Concat(verdict.Evidence, sizes, []Evidence{stateSeen})
		verdict.Next, verdict.Retried = orElse(verdict.Next, describe(of)), resizerRetries
		return verdict
	}
	if said, text := conditionSaid(claim, corev1.PersistentVolumeClaimNodeResizeError); text != "" {
		return nodeResizeFailed(claim, text, append(said, sizes...))
	}
	return resizePending(claim, pv, append(sizes, resizeEvidence(claim, stateSeen)))
}

// conditionSaid returns the message of a condition of a claim that is true, and its evidence; nothing if there is none.
func conditionSaid(claim *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) ([]Evidence, string) {
	for _, condition := range claim.Status.Conditions {
		if condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return []Evidence{seen(refOf(kindClaim, claim), "status.conditions["+string(kind)+"].message", condition.Message)}, condition.Message
		}
	}
	return nil, ""
}

// nodeResizeFailed is the verdict on a claim whose disk has grown, and whose file system the node could not grow yet.
func nodeResizeFailed(claim *corev1.PersistentVolumeClaim, text string, evidence []Evidence) Verdict {
	e := readError(text)
	verdict := Verdict{
		State: Waits, Cause: DriverFailed, Actor: ClusterAdmin,
		Message:  fmt.Sprintf("The disk of claim %s has grown, and the node can't grow its file system: %s", claim.Name, sentence(e.Text)),
		Evidence: evidence, Error: &e,
		Next: []shell.Command{describe(refOf(kindClaim, claim))}, Retried: "kubelet, with growing pauses",
	}
	if e.Code == "" {
		verdict.Error = nil
	}
	return verdict
}

// resizeEvidence is the evidence of how far a resize has got.
func resizeEvidence(claim *corev1.PersistentVolumeClaim, state Evidence) Evidence {
	for _, condition := range claim.Status.Conditions {
		if condition.Type == corev1.PersistentVolumeClaimFileSystemResizePending ||
			condition.Type == corev1.PersistentVolumeClaimResizing {
			return seen(refOf(kindClaim, claim), "status.conditions["+string(condition.Type)+"].message", condition.Message)
		}
	}
	return state
}

func resizePending(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, evidence []Evidence) Verdict {
	wants, size := claim.Spec.Resources.Requests[corev1.ResourceStorage], pv.Spec.Capacity[corev1.ResourceStorage]
	message := fmt.Sprintf("The disk of claim %s is being grown to %s.", claim.Name, wants.String())
	if size.Cmp(wants) >= 0 {
		message = fmt.Sprintf("The disk of claim %s has %s, and its file system is grown when a Pod on a node uses it.",
			claim.Name, size.String())
	}
	return Verdict{
		State: Waits, Cause: ResizePending, Actor: Nobody,
		Message:  message,
		Evidence: evidence,
		Next:     []shell.Command{describe(refOf(kindClaim, claim))}, Retried: "csi-resizer, or the kubelet when a Pod uses the claim",
	}
}

func patchSize(claim Ref, size string) shell.Command {
	return command("patch", claim, "--patch", fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":"%s"}}}}`, size))
}

// judgeModification judges a claim whose VolumeAttributesClass is being applied.
func judgeModification(c *cluster, claim *corev1.PersistentVolumeClaim) Verdict {
	of, status := refOf(kindClaim, claim), claim.Status.ModifyVolumeStatus
	e, said := modificationError(c, claim)
	verdict := Verdict{
		State: Waits, Cause: ModificationPending, Actor: Nobody,
		Message: fmt.Sprintf("Claim %s is being changed to VolumeAttributesClass %s.",
			claim.Name, status.TargetVolumeAttributesClassName),
		Evidence: []Evidence{seen(of, "status.modifyVolumeStatus", status)},
		Next:     []shell.Command{describe(of)}, Retried: resizerRetries,
	}
	if said != nil {
		verdict.Evidence, verdict.Error = append(verdict.Evidence, *said), &e
	}
	switch {
	case status.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible:
		verdict.Cause, verdict.Actor, verdict.Retried = ModificationInfeasible, User, resizerInVain
		verdict.Message = fmt.Sprintf("Claim %s can't be changed to VolumeAttributesClass %s: %s", claim.Name,
			status.TargetVolumeAttributesClassName, sentence(cmp.Or(e.Text, "its events say why")))
	case status.Status == corev1.PersistentVolumeClaimModifyVolumePending && c.isRead("VolumeAttributesClass", "") &&
		!hasAttributes(c, status.TargetVolumeAttributesClassName):
		verdict.Cause, verdict.Actor, verdict.Retried = ClassNotFound, User, "csi-resizer, when there is one"
		verdict.Message = fmt.Sprintf("There is no VolumeAttributesClass %s, which claim %s names.",
			status.TargetVolumeAttributesClassName, claim.Name)
	case said == nil || e.isPending():
	default:
		failed := errorVerdict(c, e, modifying, *said)
		if failed.Cause == ModificationInfeasible {
			break // an earlier try's; csi-resizer is at work on another
		}
		verdict.Cause, verdict.Actor, verdict.Next = failed.Cause, failed.Actor, orElse(failed.Next, describe(of))
		verdict.Message = fmt.Sprintf("Claim %s is not changed to VolumeAttributesClass %s yet: %s", claim.Name,
			status.TargetVolumeAttributesClassName, failed.Message)
	}
	if t, ok := e.coolsUntil(); ok && verdict.Cause == ModificationCoolingDown {
		verdict.Message = fmt.Sprintf("The disk of claim %s was changed lately: ECS takes the next change after %s.", claim.Name,
			t.Format(time.RFC3339))
	}
	return verdict
}

// modificationError returns the error of the claim's last modification, and what says so: the event or else the condition; nil if nothing
// does.
func modificationError(c *cluster, claim *corev1.PersistentVolumeClaim) (DriverError, *Evidence) {
	of := refOf(kindClaim, claim)
	if e, event := errorOf(c, of, reasonModifyFailed); event != nil {
		said := eventSeen(event)
		return e, &said
	}
	for _, condition := range claim.Status.Conditions {
		if condition.Type == corev1.PersistentVolumeClaimVolumeModifyVolumeError && condition.Status == corev1.ConditionTrue {
			said := seen(of, "status.conditions["+string(condition.Type)+"].message", condition.Message)
			return readError(condition.Reason + ": " + condition.Message), &said
		}
	}
	return DriverError{}, nil
}

func hasAttributes(c *cluster, name string) bool {
	return slices.ContainsFunc(c.Attributes, func(a storagev1.VolumeAttributesClass) bool { return a.Name == name })
}
