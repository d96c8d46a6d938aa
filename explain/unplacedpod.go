package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/topology"
)

// judgeUnplacedPod judges a Pod that has no node.
func judgeUnplacedPod(c *cluster, pod *corev1.Pod) Verdict {
	of := refOf(kindPod, pod)
	if gates := pod.Spec.SchedulingGates; len(gates) > 0 {
		return Verdict{
			State: Waits, Cause: PodUnschedulable, Actor: User,
			Message:  fmt.Sprintf("Pod %s has the scheduling gate %s.", pod.Name, gates[0].Name),
			Evidence: []Evidence{seen(of, "spec.schedulingGates", gates)},
			Next:     []shell.Command{describe(of)}, Retried: "scheduler, when whoever set the gate removes it",
		}
	}
	for _, need := range c.storageOf(pod) {
		if need.volume != nil || need.class != nil && waitsForNode(need.class) && selectedNode(need.claim) == "" {
			continue
		}
		if v := judgeClaim(c, need.claim); v.State != Works {
			return withWishes(v, pod)
		}
	}
	hasNode := func(other *corev1.Pod) bool { return other.Spec.NodeName != "" }
	if v, found := judgeSinglePodClaims(c, pod, hasNode); found {
		return v
	}
	if !c.isRead(kindNode, "") {
		v := unknown(c, fmt.Sprintf("Pod %s has no node, and the nodes could not be read.", pod.Name), Ref{Kind: kindNode})
		v.Evidence = schedulerSaid(pod)
		return v
	}
	if len(c.Nodes) == 0 {
		return Verdict{
			State: Waits, Cause: PodUnschedulable, Actor: ClusterAdmin,
			Message:  "The cluster has no nodes.",
			Evidence: append([]Evidence{seen(of, "spec.nodeName", "")}, schedulerSaid(pod)...),
			Next:     []shell.Command{kubectl("get", "nodes")}, Retried: "scheduler, when there is a node",
		}
	}
	return judgeFeasible(c, pod)
}

// withWishes adds what ties the Pod to nodes to the verdict on a claim that the selected node can't have.
func withWishes(v Verdict, pod *corev1.Pod) Verdict {
	if v.Cause != ZoneSoldOut && v.Cause != DriverNotOnNode && v.Cause != DiskTypeNotTaken {
		return v
	}
	of := refOf(kindPod, pod)
	if len(pod.Spec.NodeSelector) > 0 {
		v.Evidence = append(v.Evidence, seen(of, "spec.nodeSelector", pod.Spec.NodeSelector))
	}
	if pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
		v.Evidence = append(v.Evidence, seen(of, "spec.affinity.nodeAffinity", pod.Spec.Affinity.NodeAffinity))
	}
	return v
}

// scheduled returns the Pod's PodScheduled condition, nil if the scheduler hasn't said anything.
func scheduled(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func schedulerSaid(pod *corev1.Pod) []Evidence {
	if condition := scheduled(pod); condition != nil && condition.Status != corev1.ConditionTrue {
		return []Evidence{seen(refOf(kindPod, pod), "status.conditions[PodScheduled].message", condition.Message)}
	}
	return nil
}

// judgeFeasible judges by the Pod's feasible set.
func judgeFeasible(c *cluster, pod *corev1.Pod) Verdict {
	x := c.feasible(pod)
	if left := x.left(); len(left) > 0 {
		if said := schedulersOwn(c, x, left); said != nil {
			x.reasons = append(x.reasons, said)
		} else {
			return someNodeLeft(c, x, left)
		}
	}
	return noNodeLeft(c, x, minimal(x.reasons, len(x.all)))
}

// schedulersOwn returns the reason that takes out most nodes of those that the scheduler alone can judge, or that the facts don't suffice
// for. Which nodes it takes out isn't known, so they are taken to be those that are left.
func schedulersOwn(c *cluster, x *feasibility, left []int) *reason {
	condition := scheduled(x.pod)
	if condition == nil || condition.Status == corev1.ConditionTrue {
		return nil
	}
	allOurs := !slices.ContainsFunc(x.needs, func(s storage) bool { return !s.isOurs(c.Driver) })
	var most *reason
	for _, said := range readScheduler(condition.Message) {
		r := &reason{cause: PodUnschedulable, message: "the scheduler says of them: " + said.text, nodes: left, count: said.nodes,
			evidence: func(*corev1.Node) []Evidence { return nil }}
		switch podsAreRead := c.isRead(kindPod, ""); {
		case said.isLimit() && !podsAreRead && len(c.unreadOf(kindCSINode, kindAttachment)) == 0:
			r.cause = AttachLimitReached
			r.evidence = func(n *corev1.Node) []Evidence {
				return append(limitOn(c, n.Name), volumesSeen(c, n.Name)...)
			}
		case said.isRoom() && !podsAreRead:
			r.evidence = allocatable
		case said.isRoom() || said.isRecomputed(c.Driver, allOurs):
			continue
		}
		if most == nil || r.count > most.count {
			most = r
		}
	}
	return most
}

// someNodeLeft judges a Pod that has no node though, by the facts, some node would do.
func someNodeLeft(c *cluster, x *feasibility, left []int) Verdict {
	if needed := undecided(c, x.needs); len(needed) > 0 {
		v := unknown(c, fmt.Sprintf("Pod %s has no node, and what keeps it off %s could not be read.", x.pod.Name,
			namesOf(x.all, left)), needed...)
		v.Evidence = schedulerSaid(x.pod)
		return v
	}
	of, evidence := refOf(kindPod, x.pod), schedulerSaid(x.pod)
	message := fmt.Sprintf("%s would do for Pod %s as things are now, and the scheduler has yet to try again.", namesOf(x.all, left),
		x.pod.Name)
	if len(evidence) == 0 {
		evidence = []Evidence{seen(of, "spec.schedulerName", x.pod.Spec.SchedulerName),
			seen(of, "status.conditions[PodScheduled]", "")}
		message = fmt.Sprintf("Scheduler %s hasn't looked at Pod %s yet; %s would do.",
			cmp.Or(x.pod.Spec.SchedulerName, corev1.DefaultSchedulerName), x.pod.Name, namesOf(x.all, left))
	}
	return Verdict{
		State: Waits, Cause: BeingScheduled, Actor: Nobody,
		Message:  message,
		Evidence: evidence,
		Next:     []shell.Command{describe(of)}, Retried: "scheduler, when something changes, and within 5 minutes",
	}
}

// undecided returns what was not read and may take nodes out.
func undecided(c *cluster, needs []storage) []Ref {
	kinds := []string{}
	if slices.ContainsFunc(needs, func(s storage) bool { return s.isOurs(c.Driver) || s.volume == nil && s.class == nil }) {
		kinds = append(kinds, kindCSINode, kindAttachment, kindVolume)
	}
	for _, need := range needs {
		if need.volume == nil {
			kinds = append(kinds, kindClass, kindCapacity)
		}
	}
	return c.unreadOf(append(kinds, kindPod)...)
}

// namesOf returns some nodes in words.
func namesOf(all []*corev1.Node, nodes []int) string {
	var names []string
	for _, i := range nodes {
		if len(names) == 3 {
			return fmt.Sprintf("%s and %d other nodes", strings.Join(names, ", "), len(nodes)-len(names))
		}
		names = append(names, all[i].Name)
	}
	return "Node " + strings.Join(names, ", ")
}

// noNodeLeft judges a Pod that no node can have, by a minimal set of reasons.
func noNodeLeft(c *cluster, x *feasibility, set []*reason) Verdict {
	sole := alone(set, len(x.all))
	cause := mainCause(x, set, sole)
	v := Verdict{State: Waits, Cause: cause, Message: sentenceOf(x.pod, len(x.all), cause, set),
		Evidence: append(evidenceOf(x.all, set, sole), schedulerSaid(x.pod)...)}
	for _, r := range set {
		v.Reasons = append(v.Reasons, Reason{Cause: r.cause, Message: r.message, Nodes: cmp.Or(r.count, len(r.nodes))})
	}
	of := refOf(kindPod, x.pod)
	v.Actor, v.Next, v.Retried = User, []shell.Command{describe(of)}, "scheduler, when a node or another Pod changes"
	switch cause {
	case NoNodeInVolumeZone:
		v.Actor, v.Retried = ClusterAdmin, "scheduler, when a node of the zone is added or has room"
		v.Next = []shell.Command{nodesOfZone(set)}
		if event := autoscalerRefusal(c, of); event != nil {
			autoscalerVerdict(&v, x.pod, event)
		}
	case VolumesInDifferentZones:
		words := slices.Concat([]string{"get", "pvc"}, claimsIn(set), []string{"--namespace", x.pod.Namespace})
		v.Retried, v.Next = "scheduler, in vain", []shell.Command{kubectl(words...)}
	case ZoneSoldOut:
		v.Retried, v.Next = capacityRetries, []shell.Command{otherClasses()}
		v.Message += soldOutAdvice(x.pod)
		capacityUnknown(c, &v)
	case AttachLimitReached:
		v.Actor, v.Retried, v.Next = ClusterAdmin, "scheduler, when a volume is detached or a node is added", []shell.Command{kubectl("get", "csinodes")}
	case DriverNotOnNode, DriverNotReadyOnNode:
		v.Actor, v.Retried = ClusterAdmin, "scheduler or kubelet, when the driver registers"
		for _, r := range set {
			if r.cause == cause {
				v.Next = []shell.Command{podsOn(x.all[sole[r][0]].Name)}
			}
		}
	case ZoneLabelsDisagree:
		for _, r := range set {
			if r.cause == cause {
				mislabelled := zoneLabelsVerdict(x.all[sole[r][0]])
				v.Actor, v.Next, v.Retried = mislabelled.Actor, mislabelled.Next, mislabelled.Retried
			}
		}
	case DiskTypeNotTaken:
		v.Retried, v.Next = "scheduler, when a node that takes the type is added", []shell.Command{otherClasses()}
	case AllowedTopologiesTooSmall:
		v.Actor = ClusterAdmin
		for _, r := range set {
			if r.cause == cause {
				v.Next = []shell.Command{command("get", r.evidence(nil)[0].Object, "--output", "yaml")}
			}
		}
	}
	return v
}

// evidenceOf returns the evidence of a set of reasons, each by a node that it alone takes out.
func evidenceOf(all []*corev1.Node, set []*reason, sole map[*reason][]int) []Evidence {
	var found []Evidence
	for _, r := range set {
		found = append(found, r.evidence(all[sole[r][0]])...)
	}
	return found
}

// mainCause returns the cause to name: of what closes the nodes that the Pod's volumes and wishes leave it, that which closes most.
func mainCause(x *feasibility, set []*reason, sole map[*reason][]int) Cause {
	most, cause := 0, Cause("")
	for _, r := range set {
		isPlace := r.cause == NoNodeInVolumeZone || r.cause == AllowedTopologiesTooSmall
		if n := len(sole[r]); !isPlace && r.cause != PodUnschedulable && n > most {
			most, cause = n, r.cause
		}
	}
	volumes := volumesIn(set)
	closed := 0 // by room and taints, which a Pod's own wishes are not
	for _, r := range set {
		if r.cause == PodUnschedulable && r != x.byKey["selector"] && r != x.byKey["affinity"] {
			closed += len(sole[r])
		}
	}
	switch {
	case cause != "" && most >= closed:
		return cause
	case len(volumes) > 1 && areApart(set, len(x.all)):
		return VolumesInDifferentZones
	case len(volumes) > 0:
		return NoNodeInVolumeZone
	case slices.ContainsFunc(set, func(r *reason) bool { return r.cause == AllowedTopologiesTooSmall }):
		return AllowedTopologiesTooSmall
	}
	return PodUnschedulable
}

// areApart says whether none of n nodes is in the zones of all volumes of the set.
func areApart(set []*reason, n int) bool {
	var places []*reason
	for _, r := range set {
		if r.volume != nil {
			places = append(places, r)
		}
	}
	return minimal(places, n) != nil
}

// claimsIn returns the claims of the volumes that are tied to places.
func claimsIn(set []*reason) []string {
	var names []string
	for _, r := range set {
		if r.volume != nil {
			names = append(names, r.claim.Name)
		}
	}
	return names
}

// otherClasses is the command that lists the classes with their disk types, for whoever may choose another one.
func otherClasses() shell.Command {
	return kubectl("get", "storageclasses", "--output", "custom-columns=CLASS:.metadata.name,DRIVER:.provisioner,TYPES:.parameters.type")
}

// soldOutAdvice says what the owner of a Pod can do about a zone without disks.
func soldOutAdvice(pod *corev1.Pod) string {
	advice := " A class with other disk types may have disks there"
	wishes := ""
	if len(pod.Spec.NodeSelector) > 0 {
		wishes = "nodeSelector"
	} else if pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
		wishes = "node affinity"
	}
	if wishes != "" {
		advice += fmt.Sprintf(", and without its %s Pod %s may go to a zone that has", wishes, pod.Name)
	}
	return advice + "."
}

func volumesIn(set []*reason) []string {
	var names []string
	for _, r := range set {
		if r.volume != nil {
			names = append(names, r.volume.Name)
		}
	}
	return names
}

// nodesOfZone is the command that lists the nodes of the zone that a set's first volume is in.
func nodesOfZone(set []*reason) shell.Command {
	for _, r := range set {
		if r.volume == nil {
			continue
		}
		if zones := topology.ZonesOfVolume(r.volume); len(zones) > 0 {
			return kubectl("get", "nodes", "--selector", topology.WellKnownZoneKey+"="+zones[0])
		}
	}
	return kubectl("get", "nodes")
}

// autoscalerVerdict turns a verdict about a full zone into one about the autoscaler that would not help.
func autoscalerVerdict(v *Verdict, pod *corev1.Pod, event *corev1.Event) {
	v.Cause, v.Retried = AutoscalerWouldNotHelp, "autoscaler, at each of its rounds"
	v.Message = strings.TrimSuffix(v.Message, ".") + "; the autoscaler adds no node: " + sentence(event.Message)
	v.Evidence = append([]Evidence{eventSeen(event)}, v.Evidence...)
	v.Next = []shell.Command{kubectl("get", "events", "--field-selector", "involvedObject.name="+pod.Name, "--namespace", pod.Namespace)}
}

// openings begin the sentence of a verdict about a Pod that no node can have.
var openings = map[Cause]string{
	NoNodeInVolumeZone:      "No node of the volume's zone takes Pod %s",
	VolumesInDifferentZones: "No node takes Pod %s, whose volumes are in different zones",
	ZoneSoldOut:             "No node that Pod %s may run on can have a disk",
	AttachLimitReached:      "No node that Pod %s could run on has an attachment left",
	DriverNotOnNode:         "No node that Pod %s could run on has the driver",
	DriverNotReadyOnNode:    "The driver is not ready on any node that Pod %s could run on",
	DiskTypeNotTaken:        "No node that Pod %s could run on takes the disk type",
	ZoneLabelsDisagree:      "No node that Pod %s could run on can have a volume",
}

func sentenceOf(pod *corev1.Pod, n int, cause Cause, set []*reason) string {
	opening := openings[cause]
	if opening == "" {
		opening = "No node takes Pod %s"
	}
	var parts []string
	for _, r := range set {
		parts = append(parts, fmt.Sprintf("%s (takes out %d)", r.message, cmp.Or(r.count, len(r.nodes))))
	}
	return fmt.Sprintf(opening, pod.Name) + fmt.Sprintf(", of %d in the cluster: ", n) + strings.Join(parts, "; ") +
		"."
}
