package explain

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/topodisk/topodisk/internal/errorinfo"
)

// The transcripts of the driver's stories hold every kind of error that it answers with.
func TestErrorsOfTheDriversStories(t *testing.T) {
	line := regexp.MustCompile(`(?m)^  ((?:[A-Z]\w+): .*)$`)
	action := regexp.MustCompile(`\b(CreateDisk|DescribeDisks|AttachDisk|ResizeDisk|ModifyDiskSpec|CreateSnapshot|TagResources)(?: [ds]-\w+)*(?: i-\w+)*: [A-Z]\w+\.?[\w.]*: `)
	errors, withID, withCode := 0, 0, 0
	for _, file := range glob(t, "../diskdriver/testdata/*.txt") {
		for _, m := range line.FindAllStringSubmatch(read(t, file), -1) {
			code, _, _ := strings.Cut(m[1], ":")
			if code == "ECS" || code == "OK" || !grpcStatus.MatchString(m[1]) {
				continue
			}
			errors++
			for _, text := range []string{m[1], "rpc error: code = " + code + " desc = " + strings.TrimPrefix(m[1], code+": ")} {
				e := readError(text)
				if e.Code != code {
					t.Errorf("code %q of %q", e.Code, text)
				}
				if strings.Contains(text, "(request ID R)") && e.RequestID != "R" {
					t.Errorf("no request ID in %q", text)
				}
				if action.MatchString(text) && (e.Action == "" || e.ECSCode == "") {
					t.Errorf("no action or code of ECS in %q", text)
				}
				withID, withCode = withID+len(e.RequestID), withCode+min(len(e.ECSCode), 1)
			}
		}
	}
	if errors < 100 || withID < 100 || withCode < 100 {
		t.Errorf("%d errors, %d with a request ID, %d with ECS's code: these are too few", errors, withID, withCode)
	}
}

// Each code of ECS that the driver knows has a Kind, and each Kind a cause.
func TestCodesOfECS(t *testing.T) {
	source := read(t, "../diskdriver/ecs/transport/codes.go")
	_, source, _ = strings.Cut(source, "var codes = ")
	source, _, _ = strings.Cut(source, "var codesOf")
	causes := map[string]struct {
		code  string
		call  call
		cause Cause
	}{
		"Unauthenticated": {"Unauthenticated", creating, CredentialsRefused},
		"Throttled":       {"Unavailable", creating, CallsThrottled},
		"Denied":          {"PermissionDenied", creating, PermissionDenied},
		"OutOfStock":      {"ResourceExhausted", creating, ZoneSoldOut},
		"Quota":           {"FailedPrecondition", creating, QuotaReached},
		"Invalid":         {"InvalidArgument", creating, ParameterRefused},
		"Unfit":           {"InvalidArgument", creating, ParameterRefused},
		"OutOfRange":      {"OutOfRange", resizing, ResizeInfeasible},
		"NodeFull":        {"ResourceExhausted", attaching, AttachLimitReached},
		"Unexpected":      {"Internal", creating, DriverFailed},
	}
	rows := regexp.MustCompile(`"([\w.*]+)": +disk\.(\w+)`).FindAllStringSubmatch(source, -1)
	seen := map[string]int{}
	for _, row := range rows {
		want, ok := causes[row[2]]
		if !ok {
			continue
		}
		seen[row[2]]++
		ecs := strings.ReplaceAll(row[1], "*", "X")
		text := "rpc error: code = " + want.code + " desc = cloud_essd of 20 GiB in cn-hangzhou-h: CreateDisk: " + ecs + ": ECS says so. (request ID R-1)"
		if e := readError(text); e.ECSCode != strings.TrimSuffix(ecs, ".") || e.cause(want.call) != want.cause {
			t.Errorf("%s is %s, want %s (ECS's code %q)", ecs, e.cause(want.call), want.cause, e.ECSCode)
		}
	}
	capital := regexp.MustCompile(`([a-z])([A-Z])`)
	for kind, want := range causes {
		if seen[kind] == 0 {
			t.Errorf("no code has kind %s", kind)
		}
		e := DriverError{Kind: errorinfo.KindOf(capital.ReplaceAllString(kind, "$1 $2")), Zones: []string{"cn-a"}}
		if got := e.cause(want.call); want.call == creating && got != want.cause {
			t.Errorf("an event of the kind %s is %s, want %s", e.Kind, got, want.cause)
		}
	}
}

// What an event is annotated with counts, and not its text, in which a tenant's words may be; the text counts where there is no annotation.
func TestAnnotationsOfEvents(t *testing.T) {
	const misleading = `failed to provision volume with StorageClass "fast": rpc error: code = Unauthenticated desc = cloud_essd of 20 GiB in cn-x: CreateDisk: Throttling: no (request ID R-0)`
	event := &corev1.Event{Message: misleading}
	if e := errorIn(event); e.cause(creating) != CredentialsRefused || e.ECSCode != "Throttling" || !slices.Equal(e.soldOut(), []string{"cn-x"}) {
		t.Errorf("the text says %+v", e)
	}
	event.Annotations = errorinfo.Info{Kind: "OUT_OF_STOCK", Action: "CreateDisk", Code: "OperationDenied.NoStock", RequestID: "R-1", Zones: []string{"cn-a"}}.Annotations()
	e := errorIn(event)
	if e.cause(creating) != ZoneSoldOut || e.cause(deleting) != DriverFailed || e.ECSCode != "OperationDenied.NoStock" || e.RequestID != "R-1" || !slices.Equal(e.soldOut(), []string{"cn-a"}) {
		t.Errorf("the annotations say %+v", e)
	}
}

// Where the Kind of an event says no cause, what a program writes beside it does.
func TestKindsWithoutACause(t *testing.T) {
	for _, test := range []struct {
		kind, text string
		want       Cause
	}{
		{"PENDING", "rpc error: code = Aborted desc = it may have been made before, and looking for it needs a permission that the credentials lack: DescribeDisks: Forbidden.RAM: no", PermissionDenied},
		{"OUT_OF_STOCK", "rpc error: code = ResourceExhausted desc = the node takes none of the disk types: cloud_essd (its labels node.csi.alibabacloud.com/disktype.* say what it takes)", DiskTypeNotTaken},
		{"OUT_OF_STOCK", "rpc error: code = ResourceExhausted desc = no zone and disk type allowed has a disk to give: cloud_regional_disk_auto of 20 GiB: CreateDisk: OperationDenied.NoStock: no", ZoneSoldOut},
		{"PENDING", "rpc error: code = Aborted desc = snapshot s-1 can't be used yet: it is accomplished to 10 %", SnapshotNotReady},
		{"NODE_NOT_ALLOWED", `node "n1": it is in zone "a" and outside of the class's allowedTopologies: zone in [b]`, ParameterRefused},
		{"UNREACHABLE", "rpc error: code = Unavailable desc = dial tcp: no route to host", DriverFailed},
		{"NEW_KIND", "rpc error: code = PermissionDenied desc = no", PermissionDenied},
	} {
		text := `failed to provision volume with StorageClass "fast": ` + test.text
		annotated := &corev1.Event{Message: text}
		annotated.Annotations = errorinfo.Info{Kind: test.kind}.Annotations()
		if got := errorIn(annotated).cause(creating); got != test.want || readError(text).cause(creating) != test.want {
			t.Errorf("%s, %s is %s, and by its text %s; want %s", test.kind, test.text, got, readError(text).cause(creating), test.want)
		}
	}
}

// What is looked for in texts is what the programs write.
func TestTextsAreInTheCode(t *testing.T) {
	for file, texts := range map[string][]string{
		"../diskdriver/ecs/instancequeue/queue.go": {"position %d in the queue of the instance, which is at work on %d disks"},
		"../diskdriver/ecs/ratelimit/limiter.go":   {"held back because ECS throttles %s"},
		"../diskdriver/disk/error.go":              {"(request ID "},
		"../diskdriver/disk/instance.go":           {"can't attach disks of type %s"},
		"../diskdriver/disk/plan.go":               {"the node takes none of the disk types"},
		"../diskdriver/attachment/plan.go":         {"the disk is attached to %s, and is not taken away"},
		"../diskdriver/creation":                   {"a permission that the credentials lack"},
		"../diskdriver/disk":                       {"of %d GiB"},
		"../diskdriver/volume":                     {"can't be used yet"},
		"../topology/node.go":                      {"name different zones; they must agree"},
		"../provisioner/source/content.go":         {"is not ready to use", "is not bound to a VolumeSnapshotContent yet", "has no snapshotHandle yet"},
		"../provisioner/claim":                     {"failed to provision volume with StorageClass %q: %v"},
		"../provisioner/claim/report.go":           {reasonProvisioningFailed},
		"../provisioner/deletion/controller.go":    {reasonVolumeFailedDelete, reasonVolumeKept},
		"../diskdriver/nodefacts":                  {factsAnnotation, StartupTaint},
		"../diskdriver/disk/category.go":           {typeLabel},
	} {
		source := ""
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			for _, name := range glob(t, filepath.Join(file, "*.go")) {
				source += read(t, name)
			}
		} else {
			source = read(t, file)
		}
		for _, text := range texts {
			if !strings.Contains(source, text) {
				t.Errorf("%s doesn't write %q", file, text)
			}
		}
	}
}

func TestCausesOfTexts(t *testing.T) {
	for _, test := range []struct {
		text string
		call call
		want Cause
	}{
		{`resize volume "d-1" by resizer "d" failed: rpc error: code = FailedPrecondition desc = ResizeDisk d-1: QuotaExceeded.PostpaidDataDiskCapacity: refused. (request ID R)`,
			resizing, QuotaReached},
		{`rpc error: code = FailedPrecondition desc = CreateSnapshot d-1: QuotaExceed.ConcurrentSnapshotQuota: wait. (request ID R)`, creating, DriverFailed},
		{`Unavailable: it may have been made before, and looking for it failed: DescribeDisks: SignatureDoesNotMatch: not matched. (request ID R)`, creating,
			CredentialsRefused},
		{`rpc error: code = Aborted desc = it may have been made before, and looking for it needs a permission that the credentials lack: DescribeDisks: ECS shows these credentials no disk at all`,
			creating, PermissionDenied},
		{`node "n1": labels a="x" and b="y" name different zones; they must agree`, creating, ZoneLabelsDisagree},
		{`claim.spec.selector is set: a selector picks an existing volume`, creating, ParameterRefused},
		{`parameter csi.storage.k8s.io/provisioner-secret-name: "a b" becomes "a b", which is no name of a Secret`, creating, ParameterRefused},
		{`VolumeSnapshot shop/nightly is not ready to use: snapshot failed`, creating, SnapshotNotReady},
		{`rpc error: code = Aborted desc = snapshot s-1 can't be used yet: being made, 40% done`, creating, SnapshotNotReady},
		{`CSINode n1 does not contain driver diskplugin.csi.alibabacloud.com`, attaching, DriverNotOnNode},
		{`MountVolume.MountDevice failed for volume "d-1" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name diskplugin.csi.alibabacloud.com not found in the list of registered CSI drivers`,
			attaching, DriverNotOnNode},
		{`rpc error: code = FailedPrecondition desc = d-1: the disk is attached to i-2, and is not taken away`, attaching, VolumeInUse},
		{`rpc error: code = FailedPrecondition desc = the disk is attached to i-2, and is not deleted: DeleteDisk d-1: IncorrectDiskStatus: In_use. (request ID R)`,
			deleting, DriverFailed},
		{`rpc error: code = InvalidArgument desc = AttachDisk d-1 i-1: ResourcesNotInSameZone: The specified instance and disk are not in the same zone. (request ID R)`,
			attaching, DriverFailed},
		{`rpc error: code = InvalidArgument desc = ModifyDiskSpec d-1: Downgrade.NotSupported: can't be changed. (request ID R)`, modifying,
			ModificationInfeasible},
		{`rpc error: code = Aborted desc = ModifyDiskSpec d-2: task t-2 is not over yet`, modifying, DriverFailed},
		{`dial unix /csi/csi.sock: connect: connection refused`, creating, DriverFailed},
		{``, creating, DriverFailed},
	} {
		if got := readError(test.text).cause(test.call); got != test.want {
			t.Errorf("%q is %s, want %s", test.text, got, test.want)
		}
	}
}

// Keys that ECS refuses are for who administers the account, and keys that aren't there for who administers the cluster.
func TestWhoMustActUponCredentials(t *testing.T) {
	for _, test := range []struct {
		text, message string
		want          Actor
	}{
		{`CreateDisk: InvalidAccessKeyId.NotFound: Specified access key is not found. (request ID R)`, "ECS refuses the driver's keys: ", CloudAdmin},
		{`CreateDisk: no keys: /credentials/access-key-id: no such file or directory`, "The driver has no usable keys: ", ClusterAdmin},
		{`CreateDisk: STS at https://sts refused the role r: AuthenticationFail.NoPermission: no. (request ID R)`, "The driver has no usable keys: ",
			ClusterAdmin},
	} {
		f := factsOf(t, "credentials-refused")
		say(`failed to provision volume with StorageClass "disk": rpc error: code = Unauthenticated desc = ` + test.text)(f)
		v := Why(f)
		if v.Cause != CredentialsRefused || v.Actor != test.want || !strings.Contains(v.Message, test.message+test.text) {
			t.Errorf("%s: %s", test.text, textOf(v))
		}
		if isAnswer := test.want == CloudAdmin; isAnswer != (v.Error.ECSCode != "") {
			t.Errorf("%s: ECS's code is %q", test.text, v.Error.ECSCode)
		}
	}
}

// The command that shows the driver's log is for Pods and a container that an installation has.
func TestTheDriversLogIsWhereTheChartHasIt(t *testing.T) {
	for _, manifest := range strings.Split(read(t, "../deploy/topodisk.yaml"), "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(manifest), &d); err != nil {
			t.Fatal(err)
		}
		selector, err := labels.Parse(ControllerSelector)
		if err != nil {
			t.Fatal(err)
		}
		hasDriver := func(c corev1.Container) bool { return c.Name == driverContainer }
		if d.Kind == "Deployment" && selector.Matches(labels.Set(d.Spec.Template.Labels)) && slices.ContainsFunc(d.Spec.Template.Spec.Containers, hasDriver) {
			return
		}
	}
	t.Errorf("no Deployment has Pods with %s and a container %s", ControllerSelector, driverContainer)
}

func TestPartsOfErrors(t *testing.T) {
	e := readError(`failed to provision volume with StorageClass "disk": CreateVolume disk-1: rpc error: code = ResourceExhausted desc = no zone and disk type allowed has a disk to give: ` +
		`cloud_essd PL1 of 20 GiB in cn-hangzhou-h: CreateDisk: OperationDenied.NoStock: none. (request ID A-1); cloud_auto of 20 GiB in cn-hangzhou-i: CreateDisk: Zone.NotOnSale: none. (request ID A-2)`)
	if e.Code != "ResourceExhausted" || e.Action != "CreateDisk" || e.ECSCode != "OperationDenied.NoStock" || e.RequestID != "A-1" {
		t.Errorf("%+v", e)
	}
	if got := strings.Join(e.soldOut(), " "); got != "cn-hangzhou-h cn-hangzhou-i" {
		t.Errorf("sold out in %s", got)
	}
	if position, busy, ok := readError("position 12 in the queue of the instance, which is at work on 3 disks; x").queuePosition(); position != 12 ||
		busy != 3 || !ok {
		t.Errorf("position %d, %d", position, busy)
	}
	cools := readError("rpc error: code = FailedPrecondition desc = ModifyDiskSpec d-2: DiskInCoolingPeriod: The disk d-2 was changed lately and can't be changed before 2000-01-01T06:01:07Z. (request ID R)")
	if at, ok := cools.coolsUntil(); !ok || !at.Equal(time.Date(2000, 1, 1, 6, 1, 7, 0, time.UTC)) {
		t.Errorf("cools until %s", at)
	}
	for text, want := range map[string]string{
		`InvalidArgument: parameter type: "x" is not allowed`:                                 "type",
		`InvalidArgument: parameter encripted (value "true") is unknown`:                      "encripted",
		`InvalidArgument: parameter kmsKeyId: "key-1" needs parameter encrypted to be "true"`: "kmsKeyId",
		`parameter csi.storage.k8s.io/fstype of class disk is unknown`:                        "csi.storage.k8s.io/fstype",
		`no such class`: "",
	} {
		if got := readError(text).parameter(); got != want {
			t.Errorf("parameter of %q is %q, want %q", text, got, want)
		}
	}
}

func TestReadScheduler(t *testing.T) {
	for text, want := range map[string][]exclusion{
		"0/5 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 3 node(s) didn't match PersistentVolume's node affinity. preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling.": {
			{1, "Insufficient cpu"}, {1, "node(s) had untolerated taint(s)"}, {3, "node(s) didn't match PersistentVolume's node affinity"}},
		"0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) exceed max volume count. no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.": {
			{1, "node(s) were unschedulable"}, {3, "node(s) exceed max volume count"}},
		"0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found": {{3, "pod has unbound immediate PersistentVolumeClaims"}},
		"0/2 nodes are available: 2 Too many pods.":                                            {{2, "Too many pods"}},
		"no nodes available to schedule pods":                                                  nil,
		"":                                                                                     nil,
	} {
		if diff := cmp.Diff(want, readScheduler(text), cmp.AllowUnexported(exclusion{})); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func FuzzReadError(f *testing.F) {
	f.Add("rpc error: code = Aborted desc = position 3 in the queue of the instance, which is at work on 1 disks")
	f.Add("CreateDisk: A.B: c (request ID R)")
	f.Fuzz(func(t *testing.T, text string) {
		e := readError(text)
		if !strings.HasSuffix(text, e.Text) {
			t.Errorf("text %q of %q", e.Text, text)
		}
		for _, c := range []call{creating, attaching, detaching, resizing, modifying, deleting} {
			if cause := e.cause(c); actors[cause] == "" {
				t.Errorf("nobody acts upon %s", cause)
			}
		}
		readScheduler(text)
	})
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
