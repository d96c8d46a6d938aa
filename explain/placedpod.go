package explain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/internal/shell"
)

// judgePlacedPod judges a Pod that has a node: its claims, its node, its attachments, and then the kubelet.
func judgePlacedPod(c *cluster, pod *corev1.Pod) Verdict {
	needs := c.storageOf(pod)
	for _, need := range needs {
		if need.volume != nil {
			continue
		}
		if need.class != nil && waitsForNode(need.class) && selectedNode(need.claim) == "" {
			return schedulerBypassed(pod, need)
		}
		if v := judgeClaim(c, need.claim); v.State != Works {
			return v
		}
	}
	if isReady(pod) {
		return works("Pod %s runs on Node %s.", pod.Name, pod.Spec.NodeName)
	}
	for _, need := range needs {
		if need.volume == nil || !isOfDriver(need.volume, c.Driver) {
			continue
		}
		if v, waits := judgeAttachmentOf(c, pod, need.volume); waits {
			return v
		}
	}
	runsThere := func(other *corev1.Pod) bool { return other.Spec.NodeName == pod.Spec.NodeName && hasStarted(other) }
	if v, found := judgeSinglePodClaims(c, pod, runsThere); found && !hasStarted(pod) {
		return v
	}
	return judgeOnNode(c, pod, needs)
}

// schedulerBypassed is the verdict on a Pod that names its node, so that nobody selects one for its claim.
func schedulerBypassed(pod *corev1.Pod, need storage) Verdict {
	of := refOf(kindPod, pod)
	return Verdict{
		State: Waits, Cause: NodeNameBypassesScheduler, Actor: User,
		Message: fmt.Sprintf("Pod %s names its node, %s, so the scheduler passes it by and selects no node for claim %s, whose class %s waits for that. Use nodeSelector instead.",
			pod.Name, pod.Spec.NodeName, need.claim.Name, need.class.Name),
		Evidence: []Evidence{
			seen(of, "spec.nodeName", pod.Spec.NodeName),
			selectedEvidence(need.claim),
			seen(refOf(kindClass, need.class), "volumeBindingMode", bindingMode(need.class)),
		},
		Next: []shell.Command{command("delete", of)}, Retried: "never, as long as spec.nodeName is set",
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// judgeAttachmentOf says whether a volume of the Pod isn't attached to its node.
func judgeAttachmentOf(c *cluster, pod *corev1.Pod, pv *corev1.PersistentVolume) (Verdict, bool) {
	of, node := refOf(kindPod, pod), pod.Spec.NodeName
	placed := seen(of, "spec.nodeName", node)
	for _, a := range c.attachmentsOfVolume[pv.Name] {
		if a.Spec.NodeName != node {
			continue
		}
		v := judgeAttachment(c, a)
		if v.State == Works {
			return v, false
		}
		v.Evidence = append(v.Evidence, placed)
		if v.Cause == AttachLimitReached {
			v.Actor, v.Next = User, []shell.Command{command("delete", of)}
		}
		return v, true
	}
	if !c.isRead(kindAttachment, "") {
		return unknown(c, fmt.Sprintf("Whether %s is attached to Node %s could not be read.", pv.Name, node),
			Ref{Kind: kindAttachment}), true
	}
	if dead, evidence := isDead(c, node); dead {
		return onDeadNode(c, pod, append([]Evidence{placed}, evidence...)), true
	}
	if len(holders(c, pv.Name, node)) > 0 && !isShared(pv) {
		return inUseVerdict(c, pv.Name, node, []Evidence{placed}), true
	}
	if c.isRead(kindCSINode, "") && driverOn(c.csiNodes[node], c.Driver) == nil {
		return driverMissingVerdict(c, node, placed), true
	}
	return Verdict{
		State: Waits, Cause: BeingAttached, Actor: Nobody,
		Message:  fmt.Sprintf("%s is to be attached to Node %s, and has no VolumeAttachment yet.", pv.Name, node),
		Evidence: []Evidence{placed, seen(refOf(kindVolume, pv), "status.phase", string(pv.Status.Phase))},
		Next:     []shell.Command{kubectl("get", "volumeattachments")}, Retried: "kube-controller-manager",
	}, true
}

// isShared says whether several nodes may have the volume at a time.
func isShared(pv *corev1.PersistentVolume) bool {
	return slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany) || slices.Contains(pv.Spec.AccessModes, corev1.ReadOnlyMany)
}

func onDeadNode(c *cluster, pod *corev1.Pod, evidence []Evidence) Verdict {
	return Verdict{
		State: Waits, Cause: NodeNotReady, Actor: ClusterAdmin,
		Message: fmt.Sprintf("Node %s of Pod %s %s.",
			pod.Spec.NodeName, pod.Name, howDead(c, pod.Spec.NodeName)),
		Evidence: evidence,
		Next:     []shell.Command{command("describe", Ref{Kind: kindNode, Name: pod.Spec.NodeName})},
		Retried:  "kube-controller-manager evicts the Pod after its tolerations' time",
	}
}

// recentMount is for how long an event of the kubelet stands for the state of a mount: it tries again within two minutes.
const (
	recentMount  = 5 * time.Minute
	mountRetries = "kubelet, within 2 minutes"
)

// judgeOnNode judges a Pod whose volumes are attached, and which is not ready.
func judgeOnNode(c *cluster, pod *corev1.Pod, needs []storage) Verdict {
	of, node := refOf(kindPod, pod), pod.Spec.NodeName
	placed := seen(of, "spec.nodeName", node)
	if dead, evidence := isDead(c, node); dead {
		return onDeadNode(c, pod, append([]Evidence{placed}, evidence...))
	}
	usesDriver := slices.ContainsFunc(needs, func(s storage) bool { return s.isOurs(c.Driver) })
	if usesDriver && c.isRead(kindCSINode, "") && driverOn(c.csiNodes[node], c.Driver) == nil {
		return driverMissingVerdict(c, node, placed)
	}
	started := hasStarted(pod)
	if event, isOurs := c.mountFailure(pod, needs); event != nil && usesDriver && !started {
		if !isOurs {
			return otherMountFailed(pod, event, placed)
		}
		e := errorIn(event)
		v := errorVerdict(c, e, attaching, eventSeen(event))
		if v.Cause == DriverNotOnNode {
			return driverMissingVerdict(c, node, placed, eventSeen(event))
		}
		v.Cause, v.Actor = DriverFailed, ClusterAdmin
		v.Message = fmt.Sprintf("Node %s can't mount a volume of Pod %s: %s", node, pod.Name, sentence(e.Text))
		v.Evidence, v.Next, v.Retried = append(v.Evidence, placed), []shell.Command{describe(of)}, mountRetries
		return v
	}
	if usesDriver && !c.isRead(kindCSINode, "") && !started && !slices.ContainsFunc(statusesOf(pod), waitsMounted) {
		return unknown(c, fmt.Sprintf("Pod %s is on Node %s, and whether driver %s is registered there could not be read.", pod.Name, node, c.Driver),
			Ref{Kind: kindCSINode, Name: node})
	}
	return notStarted(pod, placed)
}

func statusesOf(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// hasStarted says whether a container of the Pod has run, for which its volumes were mounted.
func hasStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(statusesOf(pod), func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
	})
}

// mountFailure returns the latest recent event of a mount that failed, of a volume of the driver if there is one, and whether it is that.
func (c *cluster) mountFailure(pod *corev1.Pod, needs []storage) (latest *corev1.Event, isOurs bool) {
	for _, event := range c.eventsOf(refOf(kindPod, pod)) {
		if event.Reason != reasonFailedMount && event.Reason != reasonFailedMapVolume || c.At.Sub(timeOf(event)) >= recentMount {
			continue
		}
		if slices.ContainsFunc(volumesNamed(event.Message), func(name string) bool { return c.isOurVolume(pod, needs, name) }) {
			return event, true
		}
		if latest == nil {
			latest = event
		}
	}
	return latest, false
}

// isOurVolume says whether a name that the kubelet uses is that of a PersistentVolume of the driver, or of the Pod's volume with its claim.
func (c *cluster) isOurVolume(pod *corev1.Pod, needs []storage, name string) bool {
	return slices.ContainsFunc(needs, func(need storage) bool {
		if !need.isOurs(c.Driver) {
			return false
		}
		if need.volume != nil && need.volume.Name == name {
			return true
		}
		for volume, claim := range podclaims.ByVolume(pod) {
			if claim == need.claim.Name && volume.Name == name {
				return true
			}
		}
		return false
	})
}

// otherMountFailed is the verdict on a Pod that waits for a volume that is not the driver's, such as a ConfigMap that doesn't exist.
func otherMountFailed(pod *corev1.Pod, event *corev1.Event, placed Evidence) Verdict {
	return Verdict{
		State: Waits, Cause: PodNotStarted, Actor: User,
		Message: fmt.Sprintf("Node %s can't mount a volume of Pod %s that is none of the driver's: %s", pod.Spec.NodeName, pod.Name,
			sentence(event.Message)),
		Evidence: []Evidence{placed, eventSeen(event)},
		Next:     []shell.Command{describe(refOf(kindPod, pod))}, Retried: mountRetries,
	}
}

// waitsMounted says whether a container waits for something that comes after the mounting of the Pod's volumes, such as its image.
func waitsMounted(s corev1.ContainerStatus) bool {
	return s.State.Waiting != nil && s.State.Waiting.Reason != "ContainerCreating" && s.State.Waiting.Reason != "PodInitializing"
}

// notStarted is the verdict on a Pod whose storage is as it should be.
func notStarted(pod *corev1.Pod, placed Evidence) Verdict {
	of := refOf(kindPod, pod)
	v := Verdict{
		State: Waits, Cause: PodNotStarted, Actor: User,
		Message: fmt.Sprintf("Pod %s is on Node %s and its volumes are there; it is not ready for another reason.",
			pod.Name, pod.Spec.NodeName),
		Evidence: []Evidence{placed, seen(of, "status.phase", string(pod.Status.Phase))},
		Next:     []shell.Command{describe(of)}, Retried: "kubelet",
	}
	field := "status.initContainerStatuses["
	for i, status := range statusesOf(pod) {
		if i >= len(pod.Status.InitContainerStatuses) {
			field = "status.containerStatuses["
		}
		if waiting := status.State.Waiting; waiting != nil {
			v.Message = fmt.Sprintf("Pod %s is on Node %s and its volumes are there; container %s waits: %s.", pod.Name,
				pod.Spec.NodeName, status.Name, waiting.Reason)
			v.Evidence = append(v.Evidence, seen(of, field+status.Name+"].state.waiting.reason", waiting.Reason))
			break
		}
	}
	return v
}
