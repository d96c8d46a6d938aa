package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

const (
	provisionerRetries = "disk-provisioner, with growing pauses"
	capacityRetries    = "scheduler, when the capacity changes; disk-provisioner asks again within a minute"
)

// judgeProvisioning judges a claim whose volume can be made at once.
func judgeProvisioning(c *cluster, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) Verdict {
	if v, found := judgeLeader(c, class); found {
		return v
	}
	if v, found := judgeObstacle(c, claim, class); found {
		return v
	}
	if v, found := judgeSiblings(c, claim); found {
		return v
	}
	if !c.isRead(kindEvent, claim.Namespace) {
		return unknown(c, fmt.Sprintf("Claim %s has no volume yet, and its events, which say why, could not be read.", claim.Name),
			Ref{Kind: kindEvent, Namespace: claim.Namespace})
	}
	if needed := c.unreadOf(kindNode, kindCSINode); selectedNode(claim) != "" && len(needed) > 0 {
		return unknown(c, fmt.Sprintf("Claim %s has no volume yet, and whether Node %s can have one could not be read.",
			claim.Name, selectedNode(claim)), needed...)
	}
	if !c.isRead(kindLease, "") {
		return unknown(c, fmt.Sprintf("Claim %s has no volume yet, and whether a disk-provisioner leads could not be read.",
			claim.Name), Ref{Kind: kindLease})
	}
	return beingProvisioned(c, claim)
}

// beingProvisioned is the verdict on a claim that nothing speaks against. Its volume is being made if the journal has the request: without
// that, all that is known is who is to make it.
func beingProvisioned(c *cluster, claim *corev1.PersistentVolumeClaim) Verdict {
	lease, _ := c.leader()
	verdict := Verdict{
		State: Waits, Cause: BeingProvisioned, Actor: Nobody,
		Message: fmt.Sprintf("The volume of claim %s is being made%s, and disk-provisioner's journal has the request.", claim.Name,
			c.since(claim.CreationTimestamp)),
		Evidence: []Evidence{seen(refOf(kindClaim, claim), "status.phase", string(claim.Status.Phase)), selectedEvidence(claim)},
		Next:     []shell.Command{describe(refOf(kindClaim, claim))}, Retried: provisionerRetries,
	}
	if slices.ContainsFunc(c.Journal, func(r Request) bool { return r.ClaimUID == string(claim.UID) }) {
		if held := c.latest(refOf(kindClaim, claim), reasonProvisioningHeld); held != nil {
			verdict.Message = fmt.Sprintf("Claim %s waits for another claim of its Pod: %s", claim.Name, sentence(held.Message))
			verdict.Evidence = append(verdict.Evidence, eventSeen(held))
		}
		return verdict
	}
	verdict.Evidence = append(verdict.Evidence, seen(refOf(kindLease, lease), "spec.renewTime", lease.Spec.RenewTime))
	begun := "has no request for it yet"
	if !c.isRead(kindConfigMap, lease.Namespace) {
		begun = "could not be read"
	}
	verdict.Message = fmt.Sprintf("Claim %s has no volume yet%s: a disk-provisioner leads, and its journal %s.", claim.Name,
		c.since(claim.CreationTimestamp), begun)
	return verdict
}

// judgeObstacle says whether the claim's own node, source or latest error keeps it from a volume.
func judgeObstacle(c *cluster, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (Verdict, bool) {
	if node := selectedNode(claim); node != "" {
		if v, found := judgeSelectedNode(c, claim, node); found {
			return v, true
		}
	}
	if v, found := judgeSource(c, claim); found {
		return v, true
	}
	return judgeProvisioningError(c, claim, class)
}

// judgeSiblings says whether another claim of the Pod can't have a volume: disk-provisioner saves the volumes of a Pod's claims together.
func judgeSiblings(c *cluster, claim *corev1.PersistentVolumeClaim) (Verdict, bool) {
	using := c.podsUsing(refOf(kindClaim, claim))
	if selectedNode(claim) == "" || len(using) != 1 {
		return Verdict{}, false
	}
	pod := using[0]
	for _, need := range c.storageOf(pod) {
		other, class := need.claim, need.class
		if need.volume != nil || other == nil || other.UID == claim.UID || other.Spec.VolumeName != "" || other.DeletionTimestamp != nil ||
			class == nil || class.Provisioner != c.Driver || !waitsForNode(class) {
			continue
		}
		if v, found := judgeObstacle(c, other, class); found && v.State == Waits {
			v.Message = fmt.Sprintf("Claim %s waits for claim %s of Pod %s, because the volumes of a Pod are saved together. %s", claim.Name, other.Name, pod.Name, v.Message)
			v.Evidence = append([]Evidence{seen(refOf(kindPod, pod), "spec.volumes", pod.Spec.Volumes), selectedEvidence(claim)}, v.Evidence...)
			return v, true
		}
	}
	return Verdict{}, false
}

// judgeLeader says whether nobody provisions the claims of the driver.
func judgeLeader(c *cluster, class *storagev1.StorageClass) (Verdict, bool) {
	lease, led := c.leader()
	switch {
	case !c.isRead(kindLease, "") || led == leads:
		return Verdict{}, false
	case led == mayLead:
		return doubtedLeader(c, lease), true
	}
	verdict := noLeader(c, lease, fmt.Sprintf("No disk-provisioner leads for driver %s: it has no Lease.", c.Driver),
		seen(refOf(kindClass, class), "provisioner", class.Provisioner))
	if lease == nil {
		return verdict, true
	}
	says := "its Lease was not renewed"
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder == "" {
		says = "nobody has held its Lease"
	}
	verdict.Message = fmt.Sprintf("No disk-provisioner leads for driver %s: %s%s.", c.Driver, says, c.since(metav1.NewTime(renewed(lease))))
	verdict.Evidence = append(verdict.Evidence, seen(refOf(kindLease, lease), "spec.holderIdentity", lease.Spec.HolderIdentity))
	return verdict, true
}

// doubtedLeader is the verdict on what waits for a disk-provisioner that leads by its Lease and may be gone.
func doubtedLeader(c *cluster, lease *coordinationv1.Lease) Verdict {
	when := fmt.Sprintf("was renewed last%s ago, which is long", strings.Replace(c.since(metav1.NewTime(renewed(lease))), " for", "", 1))
	if renewed(lease).After(c.At) {
		when = fmt.Sprintf("says that it was renewed at %s, which is in the future", renewed(lease).UTC().Format(time.RFC3339))
	}
	return Verdict{
		State: Unknown,
		Message: fmt.Sprintf("Whether a disk-provisioner leads for driver %s can't be told: its Lease %s. Nobody else leads before it ends, so see whether its holder is alive.",
			c.Driver, when),
		Evidence: []Evidence{seen(refOf(kindLease, lease), "spec.renewTime", lease.Spec.RenewTime),
			seen(refOf(kindLease, lease), "spec.holderIdentity", lease.Spec.HolderIdentity),
			seen(refOf(kindLease, lease), "spec.leaseDurationSeconds", lease.Spec.LeaseDurationSeconds)},
		Next: []shell.Command{kubectl("--namespace", c.controllerNamespace(), "get", "pods")},
	}
}

// noLeader is the verdict on what waits for a disk-provisioner that leads; nil stands for no Lease.
func noLeader(c *cluster, lease *coordinationv1.Lease, message string, evidence Evidence) Verdict {
	renewal := seen(Ref{Kind: kindLease, Name: request.ObjectName(c.Driver)}, "spec.renewTime", "")
	if lease != nil {
		renewal = seen(refOf(kindLease, lease), "spec.renewTime", lease.Spec.RenewTime)
	}
	return Verdict{
		State: Waits, Cause: NoProvisioner, Actor: ClusterAdmin,
		Message:  message,
		Evidence: []Evidence{evidence, renewal},
		Next:     []shell.Command{kubectl("--namespace", c.controllerNamespace(), "get", "pods")},
		Retried:  "as soon as a disk-provisioner leads",
	}
}

// judgeSelectedNode says whether the claim's selected node can't have the volume.
func judgeSelectedNode(c *cluster, claim *corev1.PersistentVolumeClaim, name string) (Verdict, bool) {
	node := c.nodes[name]
	switch {
	case node == nil && !c.isRead(kindNode, ""):
		return Verdict{}, false // an error of the driver tells as much
	case node == nil:
		return Verdict{
			State: Waits, Cause: SelectedNodeGone, Actor: Nobody,
			Message:  fmt.Sprintf("Node %s, which is selected for claim %s, doesn't exist.", name, claim.Name),
			Evidence: []Evidence{selectedEvidence(claim), seen(Ref{Kind: kindNode, Name: name}, "metadata.name", "")},
			Next:     []shell.Command{describe(refOf(kindClaim, claim))},
			Retried:  "disk-provisioner removes the annotation after --node-grace (1m), then the scheduler chooses again",
		}, true
	case c.isRead(kindCSINode, "") && driverOn(c.csiNodes[name], c.Driver) == nil:
		v := driverMissingVerdict(c, name, selectedEvidence(claim))
		v.Retried = "disk-provisioner, when the driver registers; after --node-grace (1m) the scheduler chooses again"
		return v, true
	case !c.isRead(kindCSINode, ""):
		return Verdict{}, false
	}
	switch topologyProblem(c, node) {
	case topology.NodeMislabelled:
		v := zoneLabelsVerdict(node)
		v.Evidence = append(v.Evidence, selectedEvidence(claim))
		return v, true
	case topology.NodeUnready:
		v := labelMissingVerdict(c, node)
		v.Evidence = append(v.Evidence, selectedEvidence(claim))
		return v, true
	}
	return Verdict{}, false
}

// judgeSource says whether the snapshot or claim that the claim is to be filled from is not ready.
func judgeSource(c *cluster, claim *corev1.PersistentVolumeClaim) (Verdict, bool) {
	field, value, source := SourceOf(claim)
	named := seen(refOf(kindClaim, claim), field, value)
	next := []shell.Command{lookAt(source, refOf(kindClaim, claim))}
	switch source.Kind {
	case kindSnapshot:
		v, found := judgeSnapshot(c, claim, source)
		v.Evidence, v.Next = append([]Evidence{named}, v.Evidence...), next
		return v, found
	case kindClaim:
		v, found := judgeClonedClaim(c, claim, source)
		v.Evidence, v.Next = append([]Evidence{named}, v.Evidence...), next
		return v, found
	}
	return Verdict{}, false
}

// judgeSnapshot says whether the snapshot that the claim is to be filled from is not ready.
func judgeSnapshot(c *cluster, claim *corev1.PersistentVolumeClaim, source Ref) (Verdict, bool) {
	verdict := Verdict{State: Waits, Cause: SnapshotNotReady, Actor: Nobody, Retried: "disk-provisioner, when the snapshot is ready"}
	at := slices.IndexFunc(c.Snapshots, func(s Snapshot) bool { return s.Namespace == source.Namespace && s.Name == source.Name })
	switch {
	case at < 0 && !c.isRead(kindSnapshot, source.Namespace):
		return sourceUnread(c, claim, source), true
	case at < 0:
		return sourceMissing(verdict, claim, source), true
	}
	snapshot := c.Snapshots[at]
	switch {
	case snapshot.DeletionTimestamp != nil:
		return sourceGoing(verdict, claim, source, snapshot.DeletionTimestamp), true
	case snapshot.Ready:
		return Verdict{}, false
	}
	verdict.Message = fmt.Sprintf("%s, which claim %s is to be filled from, is not ready%s.", source, claim.Name,
		c.since(snapshot.CreationTimestamp))
	verdict.Evidence = append(verdict.Evidence, seen(source, "status.readyToUse", snapshot.Ready))
	if snapshot.Error != "" {
		e := readError(snapshot.Error)
		verdict.Actor, verdict.Error = ClusterAdmin, &e
		verdict.Message = fmt.Sprintf("%s, which claim %s is to be filled from, has failed: %s", source, claim.Name,
			sentence(e.Text))
		verdict.Evidence = append(verdict.Evidence, seen(source, "status.error.message", snapshot.Error))
	}
	return verdict, true
}

// judgeClonedClaim says whether the claim that the claim is to be filled from is not bound.
func judgeClonedClaim(c *cluster, claim *corev1.PersistentVolumeClaim, source Ref) (Verdict, bool) {
	verdict := Verdict{State: Waits, Cause: SourceNotReady, Actor: User, Retried: "disk-provisioner, when that claim is bound"}
	from := c.claims[key(source.Namespace, source.Name)]
	switch {
	case from == nil && !c.isRead(kindClaim, source.Namespace):
		return sourceUnread(c, claim, source), true
	case from == nil:
		return sourceMissing(verdict, claim, source), true
	case from.DeletionTimestamp != nil:
		return sourceGoing(verdict, claim, source, from.DeletionTimestamp), true
	case from.Status.Phase == corev1.ClaimBound && from.Spec.VolumeName != "":
		return Verdict{}, false
	}
	verdict.Message = fmt.Sprintf("%s, which claim %s is to be filled from, is not bound.", source, claim.Name)
	verdict.Evidence = []Evidence{seen(source, "status.phase", string(from.Status.Phase))}
	return verdict, true
}

func sourceUnread(c *cluster, claim *corev1.PersistentVolumeClaim, source Ref) Verdict {
	return unknown(c, fmt.Sprintf("%s, which claim %s is to be filled from, could not be read.", source, claim.Name), source)
}

// sourceMissing completes the verdict on a claim whose source doesn't exist.
func sourceMissing(verdict Verdict, claim *corev1.PersistentVolumeClaim, source Ref) Verdict {
	verdict.Actor, verdict.Retried = User, "disk-provisioner, when there is such a "+sourceWords[source.Kind]
	verdict.Message = fmt.Sprintf("There is no %s, which claim %s is to be filled from.", source, claim.Name)
	verdict.Evidence = []Evidence{seen(source, "metadata.name", "")}
	return verdict
}

// sourceGoing completes the verdict on a claim whose source is being deleted, so that no volume is made from it any more.
func sourceGoing(verdict Verdict, claim *corev1.PersistentVolumeClaim, source Ref, since *metav1.Time) Verdict {
	verdict.Actor, verdict.Retried = User, "disk-provisioner, when there is another "+sourceWords[source.Kind]+" of the name"
	verdict.Message = fmt.Sprintf("%s, which claim %s is to be filled from, is being deleted, so no volume is made from it.", source, claim.Name)
	verdict.Evidence = []Evidence{seen(source, "metadata.deletionTimestamp", since)}
	return verdict
}

var sourceWords = map[string]string{kindSnapshot: "snapshot", kindClaim: "claim"}

// lookAt is the command that shows an object that may not be there; of a name that no object can have it shows who names it.
func lookAt(object, by Ref) shell.Command {
	if len(validation.IsDNS1123Subdomain(object.Name)) > 0 || object.Namespace != "" && len(validation.IsDNS1123Label(object.Namespace)) > 0 {
		return describe(by)
	}
	return command("get", object)
}

// SourceOf returns the field that says what a claim is to be filled from, its value, and the source.
func SourceOf(claim *corev1.PersistentVolumeClaim) (string, any, Ref) {
	if s := claim.Spec.DataSourceRef; s != nil && s.Namespace != nil && *s.Namespace != "" {
		return "spec.dataSourceRef", s, Ref{Kind: s.Kind, Namespace: *s.Namespace, Name: s.Name}
	}
	if s := claim.Spec.DataSource; s != nil {
		return "spec.dataSource", s, Ref{Kind: s.Kind, Namespace: claim.Namespace, Name: s.Name}
	}
	if s := claim.Spec.DataSourceRef; s != nil {
		return "spec.dataSourceRef", s, Ref{Kind: s.Kind, Namespace: claim.Namespace, Name: s.Name}
	}
	return "", nil, Ref{}
}

// judgeProvisioningError judges by the claim's latest event of a failure.
func judgeProvisioningError(c *cluster, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (Verdict, bool) {
	of := refOf(kindClaim, claim)
	e, event := errorOf(c, of, reasonProvisioningFailed)
	if event == nil || timeOf(event).Before(class.CreationTimestamp.Time) {
		return Verdict{}, false // a class that was replaced is tried at once
	}
	verdict := errorVerdict(c, e, creating, eventSeen(event))
	verdict.Message = fmt.Sprintf("Claim %s has no volume yet. %s", claim.Name, verdict.Message)
	verdict.Next, verdict.Retried = orElse(verdict.Next, describe(of)), provisionerRetries
	switch verdict.Cause {
	case ParameterRefused:
		return parameterRefused(claim, class, e, verdict), true
	case CallsThrottled:
		verdict.Retried = "disk-provisioner, within seconds"
	case ZoneSoldOut:
		verdict.Evidence = append(verdict.Evidence, typeEvidence(class)...)
		verdict.Next = []shell.Command{otherClasses()}
		verdict.Retried = capacityRetries
		pod := &corev1.Pod{} // without wishes
		if using := c.podsUsing(of); len(using) > 0 {
			pod = using[0]
		}
		verdict.Message = fmt.Sprintf("%s has no disk of class %s to give: %s%s",
			cmp.Or(strings.Join(e.soldOut(), " and "), "No zone that is allowed"), class.Name, sentence(e.Text), soldOutAdvice(pod))
		capacityUnknown(c, &verdict)
	case SnapshotNotReady:
		return Verdict{}, false // of an earlier try: the snapshot has been judged
	case DriverFailed:
		if e.isPending() {
			verdict.Cause, verdict.Actor = BeingProvisioned, Nobody
			verdict.Message = fmt.Sprintf("The volume of claim %s is being made: %s", claim.Name, sentence(e.Text))
		}
	}
	return verdict, true
}

// parameterRefused completes the verdict on a claim or class that the driver refuses.
func parameterRefused(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, e DriverError,
	verdict Verdict) Verdict {
	ofClass := refOf(kindClass, class)
	if strings.Contains(e.Text, "claim.spec.") || strings.Contains(e.Text, " of the claim ") || refusedSource.MatchString(e.Text) {
		verdict.Actor = User
		verdict.Evidence = append(verdict.Evidence, seen(refOf(kindClaim, claim), "spec", claim.Spec))
		verdict.Message = fmt.Sprintf("Claim %s is refused: %s", claim.Name, sentence(e.Text))
		verdict.Retried = "disk-provisioner, at once when the claim is replaced"
		return verdict
	}
	field, value := "parameters", textOf(class.Parameters)
	if name := e.parameter(); name != "" {
		field, value = "parameters."+name, class.Parameters[name]
	}
	verdict.Message = fmt.Sprintf("Class %s of claim %s is refused: %s", class.Name, claim.Name, sentence(e.Text))
	verdict.Evidence = append([]Evidence{seen(ofClass, field, value)}, verdict.Evidence...)
	verdict.Next = []shell.Command{command("get", ofClass, "--output", "yaml")}
	verdict.Retried = "disk-provisioner, at once when the class is replaced"
	return verdict
}
