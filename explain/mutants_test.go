package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/golden"
	"github.com/topodisk/topodisk/topology"
)

// A mutant is the facts of a case with one fact changed. What the verdict on it must be follows from a rule:
//
//   - unread: all objects of a kind but the subject could not be read. If the evidence of the case needs the kind, the verdict is Unknown
//     and names the kind, or is the old one with all of its evidence. If not, the verdict is the old one; Unknown is counted.
//   - removed: one object doesn't exist. The verdict never works, and the old cause stands only with all of its evidence. It is the old cause
//     unless removals has the new one.
//   - repaired: what holds the object up is mended. repairs has the verdict.
//   - noise: an object that has nothing to do with the case is added, or the lists are turned round. The verdict is the same to the letter.
//
// In all of them the verdict is well-formed, and each piece of evidence has the value that the facts have.
type mutant struct {
	rule, name string
	facts      *Facts
	check      func(v Verdict) error
	suffices   bool // the facts suffice for a verdict
}

func TestMutatedFacts(t *testing.T) {
	counts, wrong, sufficient, unknown := map[string]int{}, 0, 0, 0
	for _, want := range expectations(t) {
		var mutants []mutant
		for _, path := range fixturesOf(t, want.Case) {
			mutants = append(mutants, mutantsOf(t, want, path)...)
		}
		for _, m := range mutants {
			v := Why(m.facts)
			counts[m.rule]++
			problems := append(formProblems(m.facts, v), evidenceProblems(m.facts, v)...)
			if err := m.check(v); err != nil {
				problems = append(problems, err.Error()+": "+textOf(v))
			}
			if len(problems) > 0 {
				wrong++
				t.Errorf("%s, %s %s: %s", want.Case, m.rule, m.name, strings.Join(problems, "\n\t"))
			}
			if m.suffices {
				sufficient++
				if v.State == Unknown {
					unknown++
				}
			}
		}
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	t.Logf("%d mutants %v: %d wrong; the facts suffice for %d, of which %d (%.1f %%) are unknown", total, counts, wrong, sufficient, unknown,
		100*float64(unknown)/float64(sufficient))
	if total < 200 || unknown*10 > sufficient {
		t.Errorf("%d mutants, want at least 200; %d of %d are unknown, want at most a tenth", total, unknown, sufficient)
	}
}

// mutantsOf returns the mutants of a fixture. Objects are removed and causes repaired by name, so only in what was written by hand.
func mutantsOf(t *testing.T, want golden.VerdictCase, path string) []mutant {
	before := Why(readFacts(t, path))
	var all []mutant
	for _, l := range listsOf(&Facts{}) {
		all = append(all, unreadMutant(readFacts(t, path), want, before, l.kind))
	}
	for _, name := range slices.Sorted(maps.Keys(noises)) {
		f := readFacts(t, path)
		noises[name](f)
		all = append(all, mutant{"noise", name, f, func(v Verdict) error {
			if diff := cmp.Diff(before, v); diff != "" {
				return fmt.Errorf("the verdict is another: %s", diff)
			}
			return nil
		}, true})
	}
	if isByHand(path) {
		all = append(all, namedMutants(t, want, before)...)
	}
	return all
}

func namedMutants(t *testing.T, want golden.VerdictCase, before Verdict) []mutant {
	var all []mutant
	for _, object := range objectsOf(factsOf(t, want.Case)) {
		if object != before.Subject {
			all = append(all, removedMutant(t, want, object))
		}
	}
	if len(repairs[want.Case]) < 2 {
		t.Errorf("%s has %d repairs, want at least 2", want.Case, len(repairs[want.Case]))
	}
	for _, r := range repairs[want.Case] {
		f := factsOf(t, want.Case)
		r.change(f)
		all = append(all, mutant{"repaired", r.name, f, func(v Verdict) error {
			if v.Cause != r.want || v.State == Unknown {
				return fmt.Errorf("want %q", r.want)
			}
			return nil
		}, true})
	}
	return all
}

func unreadMutant(f *Facts, want golden.VerdictCase, before Verdict, kind string) mutant {
	for _, object := range objectsOf(f) {
		if object.Kind == kind && object != f.Subject {
			remove(f, object)
		}
	}
	f.Unread = append(f.Unread, Unread{Kind: kind, Reason: "forbidden"})
	needed := slices.ContainsFunc(before.Evidence, func(e Evidence) bool { return e.Object.Kind == kind && e.Object != f.Subject })
	return mutant{"unread", kind, f, func(v Verdict) error {
		missing := missingEvidence(want.Evidence, v.Evidence)
		switch {
		case v.State == Unknown && slices.ContainsFunc(v.Missing, func(u Unread) bool { return u.Kind == kind }):
			return nil
		case v.State == Waits && v.Cause == Cause(want.Cause) && len(missing) == 0:
			return nil
		case v.State == Waits && v.Cause == without[want.Case][kind]:
			return nil
		}
		return fmt.Errorf("want unknown for lack of %s, or %s with %v", kind, want.Cause, missing)
	}, !needed}
}

// without has the verdicts of cases that are judged by other facts when a kind of their evidence is not read.
var without = map[string]map[string]Cause{
	"autoscaler-would-not-help": {kindEvent: NoNodeInVolumeZone}, // what the autoscaler says comes on top
	"karpenter-would-not-help":  {kindEvent: NoNodeInVolumeZone},
	"attach-limit":              {kindAttachment: AttachLimitReached}, // the Pods on the nodes want as many volumes
	"attach-limit-on-new-node":  {kindCSINode: AttachLimitReached},    // ECS says so
	"disk-type-not-taken":       {kindNode: DiskTypeNotTaken},         // the driver says so
	"node-without-driver":       {kindCSINode: DriverNotOnNode},       // the kubelet says so
	"resize-infeasible":         {kindEvent: ResizeInfeasible},        // so does the claim's status
	"modification-cooling-down": {kindEvent: ModificationCoolingDown}, // so does the claim's condition
}

func removedMutant(t *testing.T, want golden.VerdictCase, object Ref) mutant {
	f := factsOf(t, want.Case)
	remove(f, object)
	expected := withoutObject(factsOf(t, want.Case), object)
	if exception, found := removals[want.Case][object.Kind+" "+object.Name]; found {
		expected = exception
	}
	return mutant{"removed", object.String(), f, func(v Verdict) error {
		missing := missingEvidence(want.Evidence, v.Evidence)
		stands := expected == "" && v.Cause == Cause(want.Cause) && len(missing) == 0
		if v.State != Waits || !stands && v.Cause != expected {
			return fmt.Errorf("want %s, with %v", expected, missing)
		}
		return nil
	}, true}
}

// withoutObject is the rule for a removed object that the subject needs: the cause is that it isn't there. It is empty for other objects:
// then the old cause stands.
func withoutObject(f *Facts, object Ref) Cause {
	c := newCluster(f)
	claim := c.claims[key(f.Subject.Namespace, f.Subject.Name)]
	if pod := c.pods[key(f.Subject.Namespace, f.Subject.Name)]; f.Subject.Kind == kindPod {
		if object.Kind == kindClaim && object.Namespace == pod.Namespace && slices.Contains(podclaims.Names(pod), object.Name) {
			return ClaimNotFound
		}
		claim = c.claims[key(pod.Namespace, podclaims.Names(pod)[0])]
		for _, name := range podclaims.Names(pod) {
			if object.Kind == kindVolume && object.Name == c.claims[key(pod.Namespace, name)].Spec.VolumeName {
				return VolumeNotFound
			}
		}
	}
	if a := c.attachments[f.Subject.Name]; f.Subject.Kind == kindAttachment && object.Kind == kindVolume && object.Name == VolumeName(a) &&
		a.DeletionTimestamp == nil {
		return VolumeNotFound
	}
	switch {
	case claim == nil:
		return ""
	case object.Kind == kindVolume && object.Name == claim.Spec.VolumeName:
		return VolumeNotFound
	case claim.Spec.VolumeName != "":
		return ""
	case object.Kind == kindClass && object.Name == request.ClassName(claim):
		return ClassNotFound
	case selectedNode(claim) == "":
		return ""
	case object.Kind == kindLease:
		return NoProvisioner
	case c.nodes[selectedNode(claim)] == nil:
		return ""
	case object.Kind == kindNode && object.Name == selectedNode(claim) &&
		slices.ContainsFunc(f.Leases, func(l coordinationv1.Lease) bool { return f.At.Sub(renewed(&l)) < time.Minute }):
		return SelectedNodeGone
	case object.Kind == kindCSINode && object.Name == selectedNode(claim) &&
		slices.ContainsFunc(f.Leases, func(l coordinationv1.Lease) bool { return f.At.Sub(renewed(&l)) < time.Minute }):
		return DriverNotOnNode
	}
	return ""
}

// removals has the causes where the rule doesn't hold, case by case.
var removals = map[string]map[string]Cause{
	"no-room-in-volume-zone": {
		"Pod batch-0":    BeingScheduled,   // there is room
		"Node worker-i1": PodUnschedulable, // no other zone is left: the volume takes out nothing
	},
	"zone-sold-out": {
		"Node worker-h1":                PodUnschedulable, // the affinity allows no node
		"CSINode worker-h1":             ZoneSoldOut,
		"CSIStorageCapacity topodisk-a": ZoneSoldOut, // of no zone is said that it has disks
		"CSIStorageCapacity topodisk-b": ZoneSoldOut, // nothing is said of the zone
	},
	"claims-in-different-zones": {"Node worker-h1": NoNodeInVolumeZone, "Node worker-i1": NoNodeInVolumeZone}, // one of the zones has no node
	"attach-limit": {
		"Pod db-1": BeingScheduled, "PersistentVolume d-db1": BeingScheduled, // there is an attachment left
		"CSINode worker-h1": DriverNotOnNode, "CSINode worker-i1": DriverNotOnNode,
		"VolumeAttachment csi-db0": AttachLimitReached, // its Pod wants it still
	},
	"attach-limit-on-new-node": {"Node worker-h1": NodeNotReady, "VolumeAttachment csi-a": BeingAttached},
	"autoscaler-would-not-help": {
		"Pod batch-0":          BeingScheduled,
		"Node worker-i1":       PodUnschedulable,
		"Event web-0.8a1982dc": NoNodeInVolumeZone,
	},
	"karpenter-would-not-help": {
		"Pod batch-0": BeingScheduled, "Node worker-i1": PodUnschedulable, "Event web-0.96339f51": NoNodeInVolumeZone,
	},
	"node-without-driver": {
		"Node worker-h1":    PodUnschedulable, // the selector allows no node
		"Node worker-i1":    DriverNotOnNode,  // the selector takes out nothing
		"CSINode worker-i1": DriverNotOnNode,  // no node has the driver
	},
	"disk-type-not-taken":       {"Node worker-h1": NodeNotReady, "VolumeAttachment csi-a": BeingAttached},
	"dead-node-has-disk":        {"Node worker-h1": VolumeOnDeadNode, "Node worker-h2": NodeNotReady, "VolumeAttachment csi-a": BeingAttached},
	"attach-queue":              {"Node worker-h1": NodeNotReady},
	"resize-infeasible":         {"Event data-web-0.e24890cb": ResizeInfeasible},
	"modification-cooling-down": {"Event data-web-0.44e431ac": ModificationCoolingDown},
	"credentials-refused":       {"Event data-web-0.aae6d760": BeingProvisioned},
	"quota-reached":             {"Event data-web-0.50b00a40": BeingProvisioned},
	"calls-throttled":           {"Event data-web-0.8139a4e4": BeingProvisioned},
	"parameter-refused":         {"Event data-web-0.e79e124b": BeingProvisioned},
	"snapshot-not-ready":        {"VolumeSnapshot nightly": SnapshotNotReady},
	"zone-labels-disagree":      {"CSINode worker-h1": DriverNotOnNode},
}

// list is the objects of a kind in the facts.
type list struct {
	kind    string
	objects func() []metav1.Object
	remove  func(object Ref)
	reverse func()
}

func listOf[T any, P interface {
	*T
	metav1.Object
}](kind string, all *[]T) list {
	return list{
		kind: kind,
		objects: func() (found []metav1.Object) {
			for i := range *all {
				found = append(found, P(&(*all)[i]))
			}
			return found
		},
		remove: func(object Ref) {
			*all = slices.DeleteFunc(*all, func(o T) bool { return refOf(kind, P(&o)) == object })
		},
		reverse: func() { slices.Reverse(*all) },
	}
}

func listsOf(f *Facts) []list {
	driver := list{
		kind: kindCSIDriver,
		objects: func() []metav1.Object {
			if f.CSIDriver == nil {
				return nil
			}
			return []metav1.Object{f.CSIDriver}
		},
		remove:  func(Ref) { f.CSIDriver = nil },
		reverse: func() {},
	}
	return []list{
		listOf(kindPod, &f.Pods), listOf(kindClaim, &f.Claims), listOf(kindVolume, &f.Volumes), listOf(kindNode, &f.Nodes),
		listOf(kindCSINode, &f.CSINodes), driver, listOf(kindClass, &f.Classes), listOf(kindCapacity, &f.Capacities),
		listOf(kindAttachment, &f.Attachments), listOf(kindSnapshot, &f.Snapshots), listOf(kindEvent, &f.Events), listOf(kindLease, &f.Leases),
		listOf("VolumeAttributesClass", &f.Attributes),
	}
}

// objectsOf returns all objects of the facts.
func objectsOf(f *Facts) []Ref {
	var all []Ref
	for _, l := range listsOf(f) {
		for _, object := range l.objects() {
			all = append(all, refOf(l.kind, object))
		}
	}
	return all
}

// remove takes one object out of the facts.
func remove(f *Facts, object Ref) {
	for _, l := range listsOf(f) {
		if l.kind == object.Kind {
			l.remove(object)
		}
	}
}

// evidenceProblems returns the evidence whose value is not what the facts have.
func evidenceProblems(f *Facts, v Verdict) []string {
	var problems []string
	for _, e := range v.Evidence {
		value, exists := objectIn(f, e.Object)
		if !exists && !newCluster(f).isRead(e.Object.Kind, e.Object.Namespace) {
			problems = append(problems, "evidence of what was not read: "+textOf(e))
			continue
		}
		if exists {
			value = fieldOf(value, e.Field, f.Driver)
		}
		if !equalValue(e.Value, value) {
			problems = append(problems, fmt.Sprintf("evidence %s: the facts have %s", textOf(e), textOf(value)))
		}
	}
	return problems
}

// objectIn returns an object of the facts as the API server has it.
func objectIn(f *Facts, object Ref) (any, bool) {
	for _, l := range listsOf(f) {
		for _, found := range l.objects() {
			if refOf(l.kind, found) != object {
				continue
			}
			if s, is := found.(*Snapshot); is {
				return plain(map[string]any{"metadata": s.ObjectMeta, "status": map[string]any{"readyToUse": s.Ready, "error": map[string]any{"message": s.Error}}}), true
			}
			return plain(found), true
		}
	}
	return nil, false
}

// plain returns a value as maps, lists and scalars.
func plain(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var found any
	if err := json.Unmarshal(text, &found); err != nil {
		panic(err)
	}
	return found
}

// fieldOf follows a path. In brackets is the key of a map, or the name or type of an element of a list; a list without them stands for
// the driver's element.
func fieldOf(value any, path, driver string) any {
	for path != "" {
		end := strings.IndexAny(path, ".[")
		name := path
		switch {
		case end == 0 && path[0] == '[':
			end = strings.Index(path, "]")
			name, path = path[1:end], path[end+1:]
		case end >= 0:
			name, path = path[:end], path[end:]
		default:
			path = ""
		}
		value = member(value, name, driver)
		path = strings.TrimPrefix(path, ".")
	}
	return value
}

func member(value any, name, driver string) any {
	switch of := value.(type) {
	case map[string]any:
		return of[name]
	case []any:
		for _, element := range of {
			fields, _ := element.(map[string]any)
			if fields["name"] == name || fields["type"] == name {
				return element
			}
		}
		for _, element := range of {
			if fields, _ := element.(map[string]any); fields["name"] == driver {
				return fields[name]
			}
		}
	}
	return nil
}

// equalValue compares the text of a value with the value.
func equalValue(text string, value any) bool {
	if s, ok := value.(string); ok && s != "" {
		return s == text
	} else if ok || value == nil {
		return text == None
	}
	var parsed any
	return json.Unmarshal([]byte(text), &parsed) == nil && cmp.Equal(parsed, value)
}

type repair struct {
	name   string
	change func(f *Facts)
	want   Cause // "" if it works
}

func noUnschedulable(f *Facts) { f.Pods[0].Status.Conditions = nil }

func endPod(name string) func(f *Facts) {
	return func(f *Facts) {
		for i := range f.Pods {
			if f.Pods[i].Name == name {
				f.Pods[i].Status.Phase = corev1.PodSucceeded
			}
		}
	}
}

func noEvents(f *Facts) { f.Events = nil }

func say(message string) func(f *Facts) {
	return func(f *Facts) { f.Events[0].Message = message }
}

// bind binds the first claim to a volume of its own.
func bind(f *Facts) {
	claim := &f.Claims[0]
	claim.Spec.VolumeName, claim.Status.Phase = "d-new", corev1.ClaimBound
	claim.Status.Capacity = claim.Spec.Resources.Requests
	f.Volumes = append(f.Volumes,
		corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "d-new"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
			Spec: corev1.PersistentVolumeSpec{Capacity: claim.Spec.Resources.Requests,
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: f.Driver, VolumeHandle: "d-new"}}}})
}

func attach(name string) func(f *Facts) {
	return func(f *Facts) {
		for i := range f.Attachments {
			if f.Attachments[i].Name == name {
				f.Attachments[i].Status = storagev1.VolumeAttachmentStatus{Attached: true}
			}
		}
	}
}

func noError(f *Facts) {
	for i := range f.Attachments {
		f.Attachments[i].Status.AttachError = nil
	}
}

func limit(n int32) func(f *Facts) {
	return func(f *Facts) {
		for i := range f.CSINodes {
			f.CSINodes[i].Spec.Drivers[0].Allocatable.Count = &n
		}
	}
}

func moveVolume(i int, zone string) func(f *Facts) {
	return func(f *Facts) {
		f.Volumes[i].Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{zone}
	}
}

func storageStatus(status corev1.ClaimResourceStatus) func(f *Facts) {
	return func(f *Facts) {
		f.Claims[0].Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: status}
	}
}

func askFor(size string) func(f *Facts) {
	return func(f *Facts) { f.Claims[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size) }
}

func register(f *Facts) {
	f.CSINodes[0].Spec.Drivers = []storagev1.CSINodeDriver{{Name: f.Driver, NodeID: "i-1", TopologyKeys: []string{topology.WellKnownZoneKey}}}
}

func renew(f *Facts) { f.Leases[0].Spec.RenewTime = &metav1.MicroTime{Time: f.At.Add(-time.Second)} }

const quotaText = `failed to provision volume with StorageClass "disk": rpc error: code = FailedPrecondition desc = cloud_essd of 20 GiB in cn-hangzhou-h: ` +
	`CreateDisk: Account.Arrearage: Your account has an outstanding payment. (request ID R-1)`

const throttledText = `failed to provision volume with StorageClass "disk": rpc error: code = Unavailable desc = cloud_essd of 20 GiB in cn-hangzhou-h: ` +
	`CreateDisk: held back because ECS throttles CreateDisk: context deadline exceeded`

// repairs mend what a case waits for.
var repairs = map[string][]repair{
	"unschedulable-without-storage": {
		{"the Pod asks for less", func(f *Facts) {
			f.Pods[0].Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
		}, BeingScheduled},
		{"a node has more", func(f *Facts) { f.Nodes[1].Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("96") }, BeingScheduled},
		{"the Pod has ended", endPod("web-0"), ""},
	},
	"node-name-set": {
		{"no nodeName", func(f *Facts) { f.Pods[0].Spec.NodeName = ""; noUnschedulable(f) }, BeingScheduled},
		{"binds at once", func(f *Facts) { f.Classes[0].VolumeBindingMode = nil }, BeingProvisioned},
		{"a node is selected", func(f *Facts) { f.Claims[0].Annotations = map[string]string{request.AnnSelectedNode: "worker-h1"} }, BeingProvisioned},
	},
	"no-room-in-volume-zone": {
		{"no taint", func(f *Facts) { f.Nodes[1].Spec.Taints = nil }, BeingScheduled},
		{"room", endPod("batch-0"), BeingScheduled},
		{"the volume is elsewhere", moveVolume(0, "cn-hangzhou-i"), BeingScheduled},
		{"the Pod tolerates the taint", func(f *Facts) {
			f.Pods[0].Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
		}, BeingScheduled},
	},
	"zone-sold-out": {
		{"in stock again", func(f *Facts) {
			noEvents(f)
			f.Capacities[1].MaximumVolumeSize, f.Capacities[1].Capacity = f.Capacities[0].MaximumVolumeSize, f.Capacities[0].Capacity
		}, BeingScheduled},
		{"no affinity", func(f *Facts) { f.Pods[0].Spec.Affinity = nil }, BeingScheduled},
		{"the affinity allows another zone", func(f *Facts) {
			terms := f.Pods[0].Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			terms[0].MatchExpressions[0].Values = append(terms[0].MatchExpressions[0].Values, "cn-hangzhou-i")
		}, BeingScheduled},
	},
	"claims-in-different-zones": {
		{"in one zone", moveVolume(1, "cn-hangzhou-h"), BeingScheduled},
		{"one volume is regional", func(f *Facts) { f.Volumes[1].Spec.NodeAffinity = nil }, BeingScheduled},
		{"one claim alone", func(f *Facts) { f.Pods[0].Spec.Volumes = f.Pods[0].Spec.Volumes[:1] }, BeingScheduled},
	},
	"selected-node-gone": {
		{"the node is there", func(f *Facts) { f.Claims[0].Annotations[request.AnnSelectedNode] = "worker-h1" }, BeingProvisioned},
		{"the claim has been returned", func(f *Facts) { f.Claims[0].Annotations = nil }, BeingScheduled},
		{"nobody leads", func(f *Facts) { f.Leases = nil }, NoProvisioner},
	},
	"attach-limit": {
		{"a higher limit", limit(5), BeingScheduled},
		{"a Pod ends that has no attachment", endPod("db-1"), BeingScheduled},
		{"no limit", func(f *Facts) { f.CSINodes[1].Spec.Drivers[0].Allocatable = nil }, BeingScheduled},
		{"a volume is detached", func(f *Facts) { endPod("db-2")(f); remove(f, Ref{Kind: kindAttachment, Name: "csi-db2"}) }, BeingScheduled},
	},
	"attach-limit-on-new-node": {
		{"attached", attach("csi-a"), PodNotStarted},
		{"tried anew", noError, BeingAttached},
		{"attached and ready", func(f *Facts) {
			attach("csi-a")(f)
			f.Pods[0].Status.Conditions = append(f.Pods[0].Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		}, ""},
	},
	"autoscaler-would-not-help": {
		{"the autoscaler says nothing", noEvents, NoNodeInVolumeZone},
		{"the autoscaler adds a node", func(f *Facts) { f.Events[0].Reason = reasonTriggeredScaleUp }, NoNodeInVolumeZone},
		{"room", endPod("batch-0"), BeingScheduled},
	},
	"karpenter-would-not-help": {
		{"Karpenter says nothing", noEvents, NoNodeInVolumeZone},
		{"Karpenter nominates the Pod", func(f *Facts) { f.Events[0].Reason = reasonNominated }, NoNodeInVolumeZone},
		{"room", endPod("batch-0"), BeingScheduled},
	},
	"node-without-driver": {
		{"the driver registers", register, BeingScheduled},
		{"another node will do", func(f *Facts) { f.Pods[0].Spec.NodeSelector = nil }, BeingScheduled},
	},
	"node-with-startup-taint": {
		{"ready", func(f *Facts) { register(f); f.Nodes[0].Spec.Taints = nil }, ""},
		{"no taint and no driver", func(f *Facts) { f.Nodes[0].Spec.Taints = nil }, DriverNotOnNode},
		{"the node is not ready", func(f *Facts) { f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse }, NodeNotReady},
	},
	"disk-type-not-taken": {
		{"attached", attach("csi-a"), PodNotStarted},
		{"tried anew", noError, BeingAttached},
	},
	"dead-node-has-disk": {
		{"the node is alive", func(f *Facts) { f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionTrue }, VolumeInUse},
		{"detached", func(f *Facts) { f.Attachments = nil }, BeingAttached},
		{"attached to the new node", func(f *Facts) { f.Attachments[0].Spec.NodeName = "worker-h2" }, PodNotStarted},
	},
	"attach-queue": {
		{"attached", attach("csi-c"), ""},
		{"its turn", noError, BeingAttached},
	},
	"attachment-held-by-finalizer": {
		{"it isn't deleted", func(f *Facts) { f.Attachments[0].DeletionTimestamp = nil }, ""},
		{"the finalizer is csi-attacher's", func(f *Facts) { f.Attachments[0].Finalizers = []string{attacherFinalizer(f.Driver)} }, BeingDetached},
	},
	"resize-pending": {
		{"grown", func(f *Facts) { f.Claims[0].Status.Capacity = f.Claims[0].Spec.Resources.Requests }, ""},
		{"infeasible", storageStatus(corev1.PersistentVolumeClaimControllerResizeInfeasible), ResizeInfeasible},
	},
	"resize-infeasible": {
		{"asks for what it has", askFor("20Gi"), ""},
		{"another try", storageStatus(corev1.PersistentVolumeClaimControllerResizeInProgress), ResizePending},
	},
	"modification-cooling-down": {
		{"modified", func(f *Facts) { f.Claims[0].Status.ModifyVolumeStatus = nil }, ""},
		{"infeasible", func(f *Facts) {
			f.Claims[0].Status.ModifyVolumeStatus.Status = corev1.PersistentVolumeClaimModifyVolumeInfeasible
		}, ModificationInfeasible},
		{"no error", func(f *Facts) { noEvents(f); f.Claims[0].Status.Conditions = nil }, ModificationPending},
		{"throttled", say("rpc error: code = Unavailable desc = ModifyDiskSpec d-1: Throttling: Request was denied. (request ID R). Still modifying to VAC fast"),
			CallsThrottled},
	},
	"credentials-refused": {{"no error", noEvents, BeingProvisioned}, {"quota", say(quotaText), QuotaReached}, {"bound", bind, ""}},
	"quota-reached":       {{"no error", noEvents, BeingProvisioned}, {"throttled", say(throttledText), CallsThrottled}},
	"calls-throttled":     {{"no error", noEvents, BeingProvisioned}, {"quota", say(quotaText), QuotaReached}},
	"parameter-refused": {
		{"the class is replaced", func(f *Facts) { f.Classes[0].CreationTimestamp.Time = f.At }, BeingProvisioned},
		{"no error", noEvents, BeingProvisioned},
		{"quota", say(quotaText), QuotaReached},
	},
	"released-volume-kept": {
		{"bound", func(f *Facts) { f.Volumes[0].Status.Phase = corev1.VolumeBound }, ""},
		{"policy Delete", func(f *Facts) { f.Volumes[0].Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete }, BeingDeleted},
		{"policy Delete and another PersistentVolume", func(f *Facts) {
			f.Volumes[0].Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			other := f.Volumes[0].DeepCopy()
			other.Name, other.Status.Phase = "restored", corev1.VolumeBound
			f.Volumes = append(f.Volumes, *other)
		}, VolumeKept},
	},
	"snapshot-not-ready": {
		{"ready", func(f *Facts) { f.Snapshots[0].Ready = true }, BeingProvisioned},
		{"no source", func(f *Facts) { f.Claims[0].Spec.DataSource = nil }, BeingProvisioned},
	},
	"other-provisioner": {
		{"the driver's", func(f *Facts) { f.Classes[0].Provisioner = f.Driver }, BeingScheduled},
		{"another class", func(f *Facts) { none := ""; f.Claims[0].Spec.StorageClassName = &none }, ClassNotFound},
	},
	"nobody-provisions": {
		{"renewed", renew, BeingProvisioned},
		{"renewed, and an error", both(renew, oneEvent(dataWeb0, reasonProvisioningFailed, quotaText)), QuotaReached},
	},
	"zone-labels-disagree": {
		{"the labels agree", func(f *Facts) { f.Nodes[0].Labels[topology.ZoneKey] = f.Nodes[0].Labels[topology.WellKnownZoneKey] }, ""},
		{"the driver reports one of them", func(f *Facts) { f.CSINodes[0].Spec.Drivers[0].TopologyKeys = []string{topology.ZoneKey} }, ""},
		{"a label is missing", func(f *Facts) { delete(f.Nodes[0].Labels, topology.ZoneKey) }, DriverNotOnNode},
	},
}

// noises add what has nothing to do with any case, or turn lists round.
var noises = map[string]func(f *Facts){
	"a claim and a volume of another namespace": func(f *Facts) {
		f.Claims = append(f.Claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-web-0", Namespace: "other"}})
		f.Volumes = append(f.Volumes, corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "d-other"}})
	},
	"a Pod of the same name elsewhere": func(f *Facts) {
		f.Pods = append(f.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "other"}})
	},
	"a Pod that has ended": func(f *Facts) {
		f.Pods = append(f.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "shop"}, Spec: corev1.PodSpec{NodeName: "worker-h1"},
			Status: corev1.PodStatus{Phase: corev1.PodSucceeded}})
	},
	"an attachment of another driver": func(f *Facts) {
		f.Attachments = append(f.Attachments, attachmentOf("csi-0", "nas.example.com", "nas-1", "worker-h1"))
	},
	"capacity of another class": func(f *Facts) {
		f.Capacities = append(f.Capacities,
			storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "kube-system"}, StorageClassName: "other",
				NodeTopology: &metav1.LabelSelector{}})
	},
	"another class": func(f *Facts) {
		f.Classes = append(f.Classes, storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nas"}, Provisioner: "nas.example.com"})
	},
	"another Lease": func(f *Facts) {
		f.Leases = append(f.Leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "kube-scheduler", Namespace: "kube-system"}})
	},
	"events of other objects": func(f *Facts) {
		for _, kind := range []string{kindClaim, kindPod, kindVolume} {
			f.Events = append(f.Events, corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "other"}, Reason: reasonProvisioningFailed,
				InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "other",
					Name: f.Subject.Name}, Message: quotaText, LastTimestamp: metav1.NewTime(f.At)})
		}
	},
	"an old event of the subject": func(f *Facts) {
		f.Events = append(f.Events, corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "old", Namespace: f.Subject.Namespace}, Reason: "Scheduled",
			InvolvedObject: corev1.ObjectReference{Kind: f.Subject.Kind, Namespace: f.Subject.Namespace, Name: f.Subject.Name}, Message: "assigned"})
	},
	"the lists the other way round": func(f *Facts) {
		for _, l := range listsOf(f) {
			l.reverse()
		}
	},
}
