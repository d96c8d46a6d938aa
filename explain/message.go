package explain

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/internal/errorinfo"
	"github.com/topodisk/topodisk/internal/shell"
)

// Whatever is read out of texts of other programs is read here: of csi-attacher, csi-resizer, the kubelet, the scheduler and the
// autoscalers, and of disk-provisioner where it has not annotated an event with what is the matter, as 0.1.0 didn't.

// Reasons of events.
const (
	reasonProvisioningFailed = "ProvisioningFailed"
	reasonProvisioningHeld   = "ProvisioningHeld"
	reasonVolumeFailedDelete = "VolumeFailedDelete"
	reasonVolumeKept         = "VolumeKept"
	reasonResizeFailed       = "VolumeResizeFailed"
	reasonModifyFailed       = "VolumeModifyFailed"
	reasonFailedMount        = "FailedMount"
	reasonCapacityUnknown    = "CapacityUnknown"
	reasonFailedMapVolume    = "FailedMapVolume"
	reasonFailedBinding      = "FailedBinding"
)

var (
	grpcStatus = regexp.MustCompile(`(?:rpc error: code = |^)(Canceled|Unknown|InvalidArgument|DeadlineExceeded|NotFound|AlreadyExists|PermissionDenied|` +
		`ResourceExhausted|FailedPrecondition|Aborted|OutOfRange|Unimplemented|Internal|Unavailable|DataLoss|Unauthenticated)(?: desc = |: )`)
	ecsAnswer = regexp.MustCompile(`\b((?:Add|Assume|Attach|Cancel|Copy|Create|Delete|Describe|Detach|Modify|Remove|Reset|Resize|Tag|Untag)[A-Z]\w+)` +
		`(?: [a-z]+-[\w-]+)*: ([A-Z]\w+(?:\.\w+)*):`)
	requestID = regexp.MustCompile(`\(request ID ([\w-]+)\)`)
)

// readError reads the error of a CSI call out of the text of an event or a status.
func readError(text string) DriverError {
	e := DriverError{Text: text}
	if at := grpcStatus.FindStringSubmatchIndex(text); at != nil {
		e.Code, e.Text = text[at[2]:at[3]], text[at[1]:]
	}
	if m := ecsAnswer.FindStringSubmatch(e.Text); m != nil {
		e.Action, e.ECSCode = m[1], m[2]
	}
	if m := requestID.FindStringSubmatch(e.Text); m != nil {
		e.RequestID = m[1]
	}
	return e
}

// errorIn returns the error that an event is about: what disk-provisioner has annotated it with, and its text.
func errorIn(event *corev1.Event) DriverError {
	e := readError(event.Message)
	if info, ok := errorinfo.FromAnnotations(event.Annotations); ok {
		e.Kind, e.Action, e.ECSCode, e.RequestID, e.Zones = info.Kind, info.Action, info.Code, info.RequestID, info.Zones
	}
	return e
}

// call is what an error is the answer to.
type call int

const (
	creating call = iota
	attaching
	detaching
	resizing
	modifying
	deleting
)

// meaning is what a text says of the cause.
type meaning struct {
	cause Cause
	holds func(e DriverError, c call) bool
}

// meanings are tried in order: ECS's own code says more than gRPC's, which several causes share.
var meanings = []meaning{
	{WaitsInAttachQueue, func(e DriverError, _ call) bool { _, _, ok := e.queuePosition(); return ok }},
	{CredentialsRefused, func(e DriverError, _ call) bool {
		return e.refusesKeys() || e.Code == "Unauthenticated"
	}},
	{CallsThrottled, func(e DriverError, _ call) bool {
		return e.ecs("Throttling", "Rejected.Throttling") || strings.Contains(e.Text, "because ECS throttles")
	}},
	{ZoneLabelsDisagree, func(e DriverError, _ call) bool {
		return strings.Contains(e.Text, "name different zones; they must agree")
	}},
	{SnapshotNotReady, func(e DriverError, _ call) bool { return snapshotUnready.MatchString(e.Text) }},
	{DriverNotOnNode, func(e DriverError, _ call) bool { return driverMissing.MatchString(e.Text) }},
	{AttachLimitReached, func(e DriverError, c call) bool {
		return e.ecs("InstanceDiskLimitExceeded", "InstanceDiskNumber.Exceed", "InvalidOperation.DiskQueueNumberNotEnough") ||
			c == attaching && e.Code == "ResourceExhausted"
	}},
	{DiskTypeNotTaken, func(e DriverError, _ call) bool {
		return e.ecs("InvalidInstanceType.NotSupportDiskCategory", "NotSupportDiskCategory") ||
			strings.Contains(e.Text, "can't attach disks of type ") ||
			strings.Contains(e.Text, "the node takes none of the disk types")
	}},
	{ModificationCoolingDown, func(e DriverError, _ call) bool { return e.ecs("DiskInCoolingPeriod") }},
	{VolumeInUse, func(e DriverError, c call) bool {
		return c == attaching && strings.Contains(e.Text, "the disk is attached to ") &&
			strings.Contains(e.Text, "is not taken away")
	}},
	{QuotaReached, func(e DriverError, _ call) bool {
		return e.Code == "FailedPrecondition" &&
			e.ecs("QuotaExceed", "OperationDenied.QuotaExceed", "Account.Arrearage", "InsufficientBalance",
				"InvalidAccountStatus.NotEnoughBalance", "DiskInArrears", "InstanceExpiredOrInArrears", "OperationDenied.NotEnoughCapacity") &&
			!e.ecs("QuotaExceed.ConcurrentSnapshotQuota")
	}},
	{ZoneSoldOut, func(e DriverError, c call) bool { return c == creating && e.Code == "ResourceExhausted" }},
	{PermissionDenied, func(e DriverError, _ call) bool {
		return e.Code == "PermissionDenied" || strings.Contains(e.Text, "a permission that the credentials lack")
	}},
	{ResizeInfeasible, func(e DriverError, c call) bool {
		return c == resizing && slices.Contains([]string{"InvalidArgument", "OutOfRange", "NotFound"}, e.Code)
	}},
	{ModificationInfeasible, func(e DriverError, c call) bool { return c == modifying && e.Code == "InvalidArgument" }},
	{ParameterRefused, func(e DriverError, c call) bool {
		return c == creating && (e.Code == "InvalidArgument" || e.Code == "OutOfRange" || e.Code == "" &&
			(refusedParameter.MatchString(e.Text) || refusedSource.MatchString(e.Text)))
	}},
}

var (
	snapshotUnready  = regexp.MustCompile(`is not ready to use|is not bound to a VolumeSnapshotContent yet|has no snapshotHandle yet|snapshot \S+ can't be used yet`)
	driverMissing    = regexp.MustCompile(`CSINode \S+ does not contain driver|not found in the list of registered CSI drivers`)
	refusedParameter = regexp.MustCompile(`\bparameter \S|parameters \S+ and |claim\.spec\.|(annotation|label) \S+ of the claim|allowedTopologies|names the file system more than once`)
	refusedSource    = regexp.MustCompile(`is of driver \S+; \S+ can't make a volume of it|is not of driver \S+, which can't copy it`)
)

// ecs says whether ECS's code is one of those, or begins with one.
func (e DriverError) ecs(codes ...string) bool {
	return slices.ContainsFunc(codes, func(code string) bool { return strings.HasPrefix(e.ECSCode, code) })
}

// refusesKeys says whether ECS has answered and refuses the keys.
func (e DriverError) refusesKeys() bool {
	return e.ecs("InvalidAccessKeyId", "SignatureDoesNotMatch", "IncompleteSignature", "InvalidSignatureMethod", "InvalidSecurityToken", "MissingSecurityToken",
		"Forbidden.AccessKeyDisabled", "InvalidTimeStamp", "IllegalTimestamp")
}

// kinds are the causes of the Kinds that say one (docs/errors.md, package topology).
var kinds = map[string]Cause{
	"UNAUTHENTICATED": CredentialsRefused, "DENIED": PermissionDenied, "THROTTLED": CallsThrottled, "QUOTA": QuotaReached,
	"OUT_OF_STOCK": ZoneSoldOut, errorinfo.Invalid: ParameterRefused, "OUT_OF_RANGE": ParameterRefused, "UNFIT": ParameterRefused,
	"NODE_MISLABELLED": ZoneLabelsDisagree, errorinfo.SnapshotNotReady: SnapshotNotReady,
}

// cause returns what an error says of the cause, and DriverFailed if it says no more than that.
func (e DriverError) cause(c call) Cause {
	if cause, decided := e.causeOfKind(c); decided {
		return cause
	}
	for _, m := range meanings {
		if m.holds(e, c) {
			return m.cause
		}
	}
	return DriverFailed
}

// causeOfKind returns the cause that the Kind says, and whether it says one: of what is pending or blocked, ECS's code and the text say more,
// and a refusal for want of stock that no zone has given is about the node's disk types.
func (e DriverError) causeOfKind(c call) (cause Cause, decided bool) {
	cause, decided = kinds[e.Kind]
	switch {
	case cause == ZoneSoldOut && len(e.Zones) == 0:
		return "", false
	case c != creating && (cause == ZoneSoldOut || cause == ParameterRefused):
		return DriverFailed, true
	}
	return cause, decided
}

// isPending says whether the driver says that the operation goes on.
func (e DriverError) isPending() bool { return e.Code == "Aborted" || e.Code == "DeadlineExceeded" }

var queue = regexp.MustCompile(`position (\d+) in the queue of the instance, which is at work on (\d+) disks`)

// queuePosition returns the position in the queue of an instance, and on how many disks it is at work.
func (e DriverError) queuePosition() (position, busy int, ok bool) {
	m := queue.FindStringSubmatch(e.Text)
	if m == nil {
		return 0, 0, false
	}
	position, _ = strconv.Atoi(m[1])
	busy, _ = strconv.Atoi(m[2])
	return position, busy, true
}

var soldOut = regexp.MustCompile(`\b(cloud\w*)(?: PL\d)? of \d+ GiB in ([\w-]+):`)

// soldOut returns the zones that had no disk to give.
func (e DriverError) soldOut() []string {
	if len(e.Zones) > 0 {
		return e.Zones
	}
	var zones []string
	for _, m := range soldOut.FindAllStringSubmatch(e.Text, -1) {
		if !slices.Contains(zones, m[2]) {
			zones = append(zones, m[2])
		}
	}
	return zones
}

var until = regexp.MustCompile(`can't be changed before (\S+?)\.? `)

// coolsUntil returns when ECS takes another change of the disk, if it says so.
func (e DriverError) coolsUntil() (time.Time, bool) {
	m := until.FindStringSubmatch(e.Text + " ")
	if m == nil {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, m[1])
	return t, err == nil
}

var parameter = regexp.MustCompile(`\bparameter ([\w./-]+?)(?::|=| of | \(value | needs )`)

// parameter returns the name of the class's parameter that an error is about, or "".
func (e DriverError) parameter() string {
	if m := parameter.FindStringSubmatch(e.Text); m != nil {
		return m[1]
	}
	return ""
}

var (
	failedVolume   = regexp.MustCompile(` for volume "([^"]+)"`)
	unmountedLists = regexp.MustCompile(`(?:unmounted volumes|failed to process volumes)=\[([^\]]*)\]`)
)

// volumesNamed returns the volumes that the kubelet says it can't mount: PersistentVolumes by their own name, others by that in the Pod; of
// a time-out all by that in the Pod.
func volumesNamed(message string) []string {
	if m := failedVolume.FindStringSubmatch(message); m != nil {
		return m[1:]
	}
	var names []string
	for _, m := range unmountedLists.FindAllStringSubmatch(message, -1) {
		names = append(names, strings.Fields(m[1])...)
	}
	return names
}

// exclusion is one of the scheduler's reasons: why it takes so many nodes out.
type exclusion struct {
	nodes int
	text  string
}

var (
	nodesAvailable = regexp.MustCompile(`^\d+/(\d+) nodes are available: (.*)$`)
	counted        = regexp.MustCompile(`^(\d+) (.+)$`)
)

// readScheduler returns the reasons of a PodScheduled condition's message. A reason that the scheduler gives for all nodes at once
// has the count of all nodes.
func readScheduler(message string) []exclusion {
	m := nodesAvailable.FindStringSubmatch(message)
	if m == nil {
		return nil
	}
	all, _ := strconv.Atoi(m[1])
	filters, _, _ := strings.Cut(m[2]+" ", ". ") // what follows is about preemption
	var found []exclusion
	for _, part := range strings.Split(filters, ", ") {
		if n := counted.FindStringSubmatch(part); n != nil {
			nodes, _ := strconv.Atoi(n[1])
			found = append(found, exclusion{nodes, n[2]})
		} else if part != "" {
			found = append(found, exclusion{all, part})
		}
	}
	return found
}

// recomputed are beginnings of the scheduler's reasons that feasible.go works out from the facts. For the others there is its word alone.
var recomputed = []string{
	"node(s) didn't match PersistentVolume's node affinity", "node(s) had volume node affinity conflict",
	"node(s) had untolerated taint", "node(s) had taints that the pod didn't tolerate", "node(s) were unschedulable",
	"node(s) didn't match Pod's node affinity/selector", "pod has unbound immediate PersistentVolumeClaims", "persistentvolumeclaim ",
}

// recomputedOfDriver are those that it works out of the driver's volumes alone.
var recomputedOfDriver = []string{
	"node(s) did not have enough free storage", "node(s) didn't find available persistent volumes to bind", "node(s) exceed max volume count",
}

// isRoom says whether a reason is about room on nodes, which is worked out from the Pods on them if these were read.
func (x exclusion) isRoom() bool {
	return strings.HasPrefix(x.text, "Insufficient ") || x.text == "Too many pods"
}

// isLimit says whether a reason is about the number of volumes of nodes, which is worked out from the Pods on them, too.
func (x exclusion) isLimit() bool { return x.text == "node(s) exceed max volume count" }

// isRecomputed says whether a reason is worked out from the facts, for a Pod of which all volumes are the driver's or not all.
func (x exclusion) isRecomputed(driver string, all bool) bool {
	begins := func(begin string) bool { return strings.HasPrefix(x.text, begin) }
	return x.text == driver+" CSI driver is not installed on the node" || slices.ContainsFunc(recomputed, begins) ||
		all && slices.ContainsFunc(recomputedOfDriver, begins)
}

// Reasons of the autoscalers' events. Karpenter's FailedScheduling is the scheduler's, too.
const (
	reasonNotTriggerScaleUp = "NotTriggerScaleUp"
	reasonTriggeredScaleUp  = "TriggeredScaleUp"
	reasonFailedScheduling  = "FailedScheduling"
	reasonNominated         = "Nominated"
)

// autoscalerRefusal returns the autoscaler's latest word on the Pod if it is that no node group would help. That events could not be read
// stands in the verdict.
func autoscalerRefusal(c *cluster, pod Ref) *corev1.Event {
	c.isRead(kindEvent, pod.Namespace)
	for _, e := range c.eventsOf(pod) {
		byKarpenter := e.Source.Component == "karpenter" || e.ReportingController == "karpenter"
		switch {
		case e.Reason == reasonNotTriggerScaleUp, e.Reason == reasonFailedScheduling && byKarpenter:
			return e
		case e.Reason == reasonTriggeredScaleUp, e.Reason == reasonNominated && byKarpenter:
			return nil
		}
	}
	return nil
}

// actors are those who must act upon an error.
var actors = map[Cause]Actor{
	WaitsInAttachQueue: Nobody, CredentialsRefused: CloudAdmin, CallsThrottled: CloudAdmin, ZoneLabelsDisagree: ClusterAdmin, SnapshotNotReady: Nobody,
	DriverNotOnNode: ClusterAdmin, AttachLimitReached: ClusterAdmin, DiskTypeNotTaken: User, ModificationCoolingDown: Nobody, VolumeInUse: User,
	QuotaReached: CloudAdmin, ZoneSoldOut: User, PermissionDenied: CloudAdmin, ResizeInfeasible: User, ModificationInfeasible: User,
	ParameterRefused: ClusterAdmin, DriverFailed: ClusterAdmin,
}

// errorVerdict is the verdict that an error alone allows. Its message is a sentence; what is done next is for the caller, but where the
// error says it.
func errorVerdict(c *cluster, e DriverError, of call, said Evidence) Verdict {
	cause := e.cause(of)
	verdict := Verdict{
		State: Waits, Cause: cause, Actor: actors[cause], Message: sentence(e.Text), Evidence: []Evidence{said}, Error: &e,
	}
	switch cause {
	case CredentialsRefused:
		verdict.Message = "ECS refuses the driver's keys: " + sentence(e.Text)
		if !e.refusesKeys() {
			verdict.Message, verdict.Actor = "The driver has no usable keys: "+sentence(e.Text), ClusterAdmin
		}
		verdict.Next = []shell.Command{driverLog(c)}
	case PermissionDenied:
		verdict.Message = "ECS doesn't allow the driver's keys to do this: " + sentence(e.Text)
	case QuotaReached:
		verdict.Message = "A limit of the account is reached: " + sentence(e.Text)
	case CallsThrottled:
		verdict.Message = "ECS takes no more calls of the account for the moment: " + sentence(e.Text)
	case DriverFailed:
		if e.Code == "" {
			verdict.Error = nil
		}
	}
	return verdict
}

// ControllerSelector selects the controller's Pods by the labels that the chart gives them, whatever its release is called.
const ControllerSelector = "app.kubernetes.io/name=topodisk,app.kubernetes.io/component=controller"

// driverContainer is the container of disk-driver in the controller's Pods.
const driverContainer = "disk-driver"

// driverLog is the command that shows the logs of disk-driver in the controller's Pods.
func driverLog(c *cluster) shell.Command {
	return kubectl("--namespace", c.controllerNamespace(), "logs", "--selector", ControllerSelector, "--container", driverContainer,
		"--prefix", "--tail=20")
}

// sentence ends a text with a full stop.
func sentence(text string) string {
	text = strings.TrimRight(strings.TrimSpace(text), ".")
	return text + "."
}

// errorOf returns the error of the object's latest event of a reason; the event is nil if there is none.
func errorOf(c *cluster, object Ref, reasons ...string) (DriverError, *corev1.Event) {
	event := c.latest(object, reasons...)
	if event == nil {
		return DriverError{}, nil
	}
	return errorIn(event), event
}

func eventSeen(e *corev1.Event) Evidence { return seen(refOf(kindEvent, e), "message", e.Message) }
