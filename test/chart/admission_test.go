package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// rule is a rule of files/admission.json.
type rule struct {
	Message       string
	Refuses       map[string]string
	RefusesMounts []string
}

// judge is one rendered policy, compiled as the API server compiles it.
type judge struct {
	kind       string
	conditions admissioncel.ConditionEvaluator
	rules      admissioncel.ConditionEvaluator
	messages   []string
	examples   []rule
}

func judges(t *testing.T, values map[string]any) map[string]judge {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, chartDir, "files/admission.json"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []struct {
		Kind, Resource string
		Unknown        rule
		Rules          []rule
	}
	if err := json.Unmarshal(text, &kinds); err != nil {
		t.Fatal(err)
	}
	all := map[string]judge{}
	for _, policy := range decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, values, "ValidatingAdmissionPolicy") {
		if policy.Spec.MatchConstraints.ResourceRules[0].APIGroups[0] == "" {
			continue // about Nodes: dryrun tries it with tokens of real Pods
		}
		// As of the oldest Kubernetes that the chart is for.
		compiler, err := admissioncel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 31)))
		if err != nil {
			t.Fatal(err)
		}
		var none admissioncel.OptionalVariableDeclarations
		for _, v := range policy.Spec.Variables {
			result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, none, environment.NewExpressions)
			if result.Error != nil {
				t.Fatalf("%s: variable %s: %v", policy.Name, v.Name, result.Error)
			}
		}
		j := judge{}
		var conditions, rules []admissioncel.ExpressionAccessor
		for _, c := range policy.Spec.MatchConditions {
			conditions = append(conditions, &validating.ValidationCondition{Expression: c.Expression})
		}
		for _, v := range policy.Spec.Validations {
			rules = append(rules, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
			j.messages = append(j.messages, v.Message)
		}
		j.conditions = compiler.CompileCondition(conditions, none, environment.NewExpressions)
		j.rules = compiler.CompileCondition(rules, none, environment.NewExpressions)
		for _, errs := range [][]error{j.conditions.CompilationErrors(), j.rules.CompilationErrors()} {
			for _, err := range errs {
				t.Errorf("%s: %v", policy.Name, err)
			}
		}
		for _, k := range kinds {
			if slices.Contains(policy.Spec.MatchConstraints.ResourceRules[0].Resources, k.Resource) {
				j.kind, j.examples = k.Kind, append(k.Rules, k.Unknown)
			}
		}
		all[j.kind] = j
	}
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// refuses returns the messages of the rules that a class breaks; none if the policy isn't about it.
func (j judge) refuses(t *testing.T, class, old *unstructured.Unstructured) []string {
	t.Helper()
	operation := admission.Create
	gvk := class.GroupVersionKind()
	attributes := &admission.VersionedAttributes{VersionedObject: admission.NewLazyObject(class), VersionedKind: gvk}
	var before runtime.Object // nil at creation
	if old != nil {
		operation, before = admission.Update, old
		attributes.VersionedOldObject = admission.NewLazyObject(old)
	}
	resource := gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "es")
	attributes.Attributes = admission.NewAttributesRecord(class, before, gvk, "", class.GetName(), resource, "", operation, nil, false, nil)
	request := admissioncel.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(gvk))
	evaluate := func(evaluator admissioncel.ConditionEvaluator) []bool {
		results, _, err := evaluator.ForInput(t.Context(), attributes, request, admissioncel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
		if err != nil {
			t.Fatal(err)
		}
		var holds []bool
		for _, r := range results {
			if r.Error != nil {
				t.Fatalf("%v: %v", class.Object, r.Error)
			}
			holds = append(holds, r.EvalResult.Value() == true)
		}
		return holds
	}
	if slices.Contains(evaluate(j.conditions), false) {
		return nil
	}
	var broken []string
	for n, holds := range evaluate(j.rules) {
		if !holds {
			broken = append(broken, j.messages[n])
		}
	}
	return broken
}

// drivers are the fields that name the driver of a class.
var drivers = map[string]struct{ field, version string }{
	"StorageClass": {"provisioner", "storage.k8s.io/v1"}, "VolumeAttributesClass": {"driverName", "storage.k8s.io/v1"},
	"VolumeSnapshotClass": {"driver", "snapshot.storage.k8s.io/v1"}, "VolumeGroupSnapshotClass": {"driver", "groupsnapshot.storage.k8s.io/v1"},
}

func classOf(kind, driver string, parameters map[string]string) *unstructured.Unstructured {
	object := map[string]any{"apiVersion": drivers[kind].version, "kind": kind, "metadata": map[string]any{"name": "c"}, drivers[kind].field: driver}
	if parameters != nil {
		values := map[string]any{}
		for key, value := range parameters {
			values[key] = value
		}
		object["parameters"] = values
	}
	return &unstructured.Unstructured{Object: object}
}

// withMounts returns a class with mountOptions.
func withMounts(class *unstructured.Unstructured, options ...string) *unstructured.Unstructured {
	if len(options) == 0 {
		return class
	}
	var list []any
	for _, option := range options {
		list = append(list, option)
	}
	class = class.DeepCopy()
	class.Object["mountOptions"] = list
	return class
}

const ourDriver = "diskplugin.csi.alibabacloud.com"

func TestAdmissionRefusesWhatTheDriverRefuses(t *testing.T) {
	all := judges(t, preset(t, "minimal", "{admissionPolicy: {enabled: true}}"))
	if len(all) != len(drivers) {
		t.Fatalf("%d policies", len(all))
	}
	for kind, j := range all {
		for _, example := range j.examples {
			wrong := withMounts(classOf(kind, ourDriver, example.Refuses), example.RefusesMounts...)
			if broken := j.refuses(t, wrong, nil); !slices.Equal(broken, []string{example.Message}) {
				t.Errorf("%s with %v breaks %q, want %q alone", kind, example.Refuses, broken, example.Message)
			}
			if broken := j.refuses(t, withMounts(classOf(kind, "nas.example.com", example.Refuses), example.RefusesMounts...), nil); broken != nil {
				t.Errorf("%s of another driver is refused: %q", kind, broken)
			}
			labelled := wrong.DeepCopy()
			labelled.SetLabels(map[string]string{"a": "b"})
			if broken := j.refuses(t, labelled, wrong); broken != nil {
				t.Errorf("%s that is there already can't get a label: %q", kind, broken)
			}
		}
		if broken := j.refuses(t, classOf(kind, ourDriver, nil), nil); broken != nil {
			t.Errorf("%s without parameters is refused: %q", kind, broken)
		}
	}
	for _, good := range []map[string]string{
		{"type": "cloud_essd, cloud_auto", "performanceLevel": "PL1,PL0", "encrypted": "Yes", "kmsKeyId": "k",
			"diskTags": "a:b", "diskTags/c": "d", "provisionedIops": "100"},
		{"type": "available", "fsType": "xfs", "zoneId": "cn-hangzhou-h,ap-southeast-1a", "encrypted": "", "dataCacheSize": ""},
		{"csi.storage.k8s.io/secret-name": "a", "csi.storage.k8s.io/secret-namespace": "b", "csi.storage.k8s.io/node-stage-secret-name": "c",
			"topodisk.io/strict-topology": "true", "readOnly": "no"},
	} {
		if broken := all["StorageClass"].refuses(t, classOf("StorageClass", ourDriver, good), nil); broken != nil {
			t.Errorf("%v is refused: %q", good, broken)
		}
	}
	seen := 0
	manifests, err := Manifests(repo)
	if err != nil {
		t.Fatal(err)
	}
	presets, err := Presets(repo)
	if err != nil {
		t.Fatal(err)
	}
	for name := range presets {
		objects, err := Objects(render(t, preset(t, name, "{driverName: "+ourDriver+"}")))
		if err != nil {
			t.Fatal(err)
		}
		manifests["preset "+name] = objects
	}
	for from, objects := range manifests {
		for _, o := range objects {
			if j, ok := all[o.GetKind()]; ok {
				seen++
				if broken := j.refuses(t, o, nil); broken != nil {
					t.Errorf("%s %s of %s is refused: %q", o.GetKind(), o.GetName(), from, broken)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d classes were tried", seen)
	}
}

// Where the driver passes unknown parameters over, so does the policy; a change of a volume names none.
func TestAdmissionGoesByUnknownParameters(t *testing.T) {
	all := judges(t, preset(t, "minimal", "{admissionPolicy: {enabled: true, action: Warn}, diskDriver: {unknownParameters: warn}}"))
	unknown := map[string]string{"no-such-parameter": "x"}
	for kind, j := range all {
		if refused := j.refuses(t, classOf(kind, ourDriver, unknown), nil) != nil; refused != (kind == "VolumeAttributesClass") {
			t.Errorf("%s with an unknown parameter: refused is %v", kind, refused)
		}
	}
	for _, b := range decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, preset(t, "full", "nodePlugin: {patchNode: false}"), "ValidatingAdmissionPolicyBinding") {
		if fmt.Sprint(b.Spec.ValidationActions) != "[Warn]" {
			t.Errorf("%s: actions %v", b.Name, b.Spec.ValidationActions)
		}
	}
}

// refusesOptions says whether a StorageClass with options of mkfs and mount is refused.
func (j judge) refusesOptions(t *testing.T, filesystem, mkfs string, mount ...string) bool {
	t.Helper()
	parameters := map[string]string{"mkfsOptions": mkfs}
	if filesystem != "" {
		parameters["csi.storage.k8s.io/fstype"] = filesystem
	}
	return j.refuses(t, withMounts(classOf("StorageClass", ourDriver, parameters), mount...), nil) != nil
}

func TestAdmissionRefusesOptionsThatNameDevices(t *testing.T) {
	j := judges(t, preset(t, "minimal", "{admissionPolicy: {enabled: true}}"))["StorageClass"]
	for _, mkfs := range []string{
		"-l logdev=/dev/vdx,size=64m", "-l logdev=vdx", "-llogdev=vdx", "-d name=vdx", "-d /var/lib/kubelet/pods", "-d pods", "-c options=/tmp/x", "-c options=x", "-p proto",
		"-J device=/dev/vdx", "-J device=LABEL=x", "-r rtdev=/dev/vdx", "-z undo", "-l blocks", "-e panic", "-U random", "-O journal_dev", "-O ^has_journal", "/dev/vdx", "-m 1 vdx",
		"-q -- vdx", "-E packed_meta_blocks=1", strings.Repeat(" ", 300000) + "-m 1",
	} {
		for _, filesystem := range []string{"", "ext3", "ext4", "xfs"} {
			if !j.refusesOptions(t, filesystem, mkfs) {
				t.Errorf("%s %.40q is taken", filesystem, mkfs)
			}
		}
	}
	for _, option := range []string{
		"logdev=/dev/vdx", "rtdev=vdx", "journal_path=/dev/vdx", "errors=panic", "abort", "loop", "offset=1", "bind", "remount", "X-mount.mkdir", "no_such_option", "noatime,logdev=vdx",
		`context="a:b:c:s0,logdev=/dev/vdx,c1"`, strings.Repeat("a", 300000),
	} {
		if !j.refusesOptions(t, "", "", "noatime", option) {
			t.Errorf("%.40q is taken", option)
		}
	}
	for filesystem, mkfs := range map[string]string{"ext4": "-F -m0 -O project,quota -E lazy_itable_init=0,stride=4", "xfs": "-f -K -m reflink=1 -d su=64k,sw=4", "": "-i size=1024 -L data", "ext3": "-I 256"} {
		if j.refusesOptions(t, filesystem, mkfs, "noatime", "discard", "data=ordered", "barrier=0", "logbsize=256k", `context="system_u:object_r:container_file_t:s0:c1,c2"`) {
			t.Errorf("%s %s is refused", filesystem, mkfs)
		}
	}
	if !j.refusesOptions(t, "xfs", "-O quota") || !j.refusesOptions(t, "ext4", "-d su=64k") {
		t.Error("options of another file system are taken")
	}
	old, changed := classOf("StorageClass", ourDriver, nil), withMounts(classOf("StorageClass", ourDriver, nil), "logdev=/dev/vdx")
	if broken := j.refuses(t, changed, old); len(broken) != 1 {
		t.Errorf("mountOptions that are changed break %q", broken)
	}
}

func TestAdmissionTakesWhatTheOperatorAllows(t *testing.T) {
	j := judges(t, preset(t, "minimal", "{admissionPolicy: {enabled: true}, allowMkfsOptions: [-E packed_meta_blocks, -g, -O ^has_journal, -D, -U random, -E num=1], allowMountOptions: [norecovery, jqfmt=vfsv1, errors=panic]}"))["StorageClass"]
	for _, mkfs := range []string{"-E packed_meta_blocks=1,stride=4", "-E stride=4,packed_meta_blocks", "-g 8192 -m 1", "-qg8192", "-O quota,^has_journal", "-D -m 1", "-qD", "-U random", "-E num=1"} {
		if j.refusesOptions(t, "ext4", mkfs) {
			t.Errorf("%s is refused", mkfs)
		}
	}
	for _, mkfs := range []string{"-E packed_meta_blocks=/dev/vdx", "-g /dev/vdx", "-E offset=1", "-D vdx", "-U time", "-E num=2", "-d pods", "-z undo", "-O none"} {
		if !j.refusesOptions(t, "ext4", mkfs) {
			t.Errorf("%s is taken", mkfs)
		}
	}
	for option, refused := range map[string]bool{"norecovery": false, "jqfmt=vfsv1": false, "jqfmt=vfsv0": true, "errors=panic": false, "abort": true, "norecovery=/dev/vdx": true, "norecoveries": true} {
		if j.refusesOptions(t, "ext4", "", option) != refused {
			t.Errorf("%s: refused is %v", option, !refused)
		}
	}
}
