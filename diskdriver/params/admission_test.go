package params

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const admissionPage = "../../charts/topodisk/files/admission.json"

// admission is what an API server can check of one kind of class, for the
// chart's ValidatingAdmissionPolicy.
type admission struct {
	Kind     string          `json:"kind"`
	Group    string          `json:"group"`
	Versions []string        `json:"versions"`
	Resource string          `json:"resource"`
	Driver   string          `json:"driver"`           // the field that names the driver
	Fields   []string        `json:"fields,omitempty"` // those with rules beside the parameters, each a list of texts
	Unknown  admissionRule   `json:"unknown"`
	Rules    []admissionRule `json:"rules"`
}

// admissionRule is one rule in CEL, and parameters that break it and no other.
type admissionRule struct {
	Expression string            `json:"expression"`
	Message    string            `json:"message"`
	Refuses    map[string]string `json:"refuses"`
	// RefusesMounts are mountOptions that break it, and no other.
	RefusesMounts []string `json:"refusesMounts,omitempty"`
}

// TestTheAdmissionRulesPageIsCurrent holds the rules of the chart's
// ValidatingAdmissionPolicy against the tables that read parameters.
func TestTheAdmissionRulesPageIsCurrent(t *testing.T) {
	text, err := json.MarshalIndent(admissions(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(text)) + "\n"
	golden.Page(t, admissionPage, want)
}

// What the API server is told to refuse is what the driver would.
func TestWhatAdmissionRefusesTheDriverRefuses(t *testing.T) {
	parse := map[string]func(admissionRule) error{
		"StorageClass": func(r admissionRule) error {
			class, err := Parse(r.Refuses, nil, Refuse)
			if err == nil {
				_, err = class.MkfsOptionsFor(class.Filesystem, disk.AllowedOptions{})
			}
			for _, option := range r.RefusesMounts {
				err = errors.Join(err, disk.CheckMountOption(class.Filesystem, option, disk.AllowedOptions{}))
			}
			return err
		},
		"VolumeAttributesClass": func(r admissionRule) error {
			_, err := ParseChange(r.Refuses)
			return err
		},
		"VolumeSnapshotClass":      func(r admissionRule) error { _, err := ParseSnapshotClass(r.Refuses, Refuse); return err },
		"VolumeGroupSnapshotClass": func(r admissionRule) error { _, err := ParseGroupClass(r.Refuses, Refuse); return err },
	}
	for _, a := range admissions() {
		for _, rule := range append(a.Rules, a.Unknown) {
			if rule.Message == secretRule().Message {
				continue // the provisioner keeps these parameters to itself, and refuses them
			}
			err := parse[a.Kind](rule)
			if err == nil || disk.KindOf(err) != disk.Invalid {
				t.Errorf("%s: the driver takes %v, which the rule %q refuses: %v", a.Kind, rule.Refuses, rule.Message, err)
			}
		}
		if len(a.Rules) < 1 {
			t.Errorf("%s has no rules", a.Kind)
		}
	}
}

func admissions() []admission {
	needsEncrypted := admissionRule{
		Expression: param("kmsKeyId") + " == '' && " + param("alibabacloud.com/kms-key-id") + " == '' || " + param("encrypted") + ".lowerAscii() in " + cel(truths(true)),
		Message:    "parameter kmsKeyId needs parameter encrypted to be true", Refuses: map[string]string{"kmsKeyId": "a-key"},
	}
	snapshot, group := "snapshot.storage.k8s.io", "groupsnapshot.storage.k8s.io"
	return []admission{
		{"StorageClass", "storage.k8s.io", []string{"v1"}, "storageclasses", "provisioner", []string{"mountOptions"}, unknownRule(classKeys), append(rulesOf(classKeys), needsEncrypted, secretRule(), mountRule())},
		{"VolumeAttributesClass", "storage.k8s.io", []string{"v1", "v1beta1"}, "volumeattributesclasses", "driverName", nil, unknownRule(mutableKeys), rulesOf(mutableKeys)},
		{"VolumeSnapshotClass", snapshot, []string{"v1"}, "volumesnapshotclasses", "driver", nil, unknownRule(snapshotKeys), rulesOf(snapshotKeys)},
		{"VolumeGroupSnapshotClass", group, []string{"v1", "v1beta1", "v1beta2"}, "volumegroupsnapshotclasses", "driver", nil, unknownRule(groupKeys), rulesOf(groupKeys)},
	}
}

// param is the value of a parameter in CEL, empty if there is none.
func param(name string) string { return fmt.Sprintf("variables.parameters[?'%s'].orValue('')", name) }

// cel is a list of strings in CEL.
func cel(words []string) string { return "['" + strings.Join(words, "', '") + "']" }

// truths are the spellings of one truth that the driver takes, in lower case.
func truths(of bool) []string {
	var all []string
	for _, word := range []string{"true", "t", "yes", "y", "on", "1", "enabled", "false", "f", "no", "n", "off", "0", "disabled"} {
		if value, err := boolean(word); err == nil && value == of {
			all = append(all, word)
		}
	}
	return all
}

// secretNames are the names that any of Kubernetes' sidecars takes for references to Secrets.
const secretNames = "^csi[.]storage[.]k8s[.]io/([a-z-]+-)?secret-(name|namespace)$"

// secretRule refuses a class that names a Secret for some calls alone, as the provisioner does (provisioner/request, SecretRefs).
func secretRule() admissionRule {
	name := func(purpose string) string { return "csi.storage.k8s.io/" + purpose + "secret-name" }
	has := func(key string) string { return "'" + key + "' in variables.parameters" }
	provisioner := "(" + has(name("provisioner-")) + " || " + has("csiProvisionerSecretName") + ")"
	publish := "(" + has(name("controller-publish-")) + " || " + has("csiControllerPublishSecretName") + ")"
	expand := has(name("controller-expand-"))
	return admissionRule{
		Expression: has(name("")) + " || !(" + strings.Join([]string{provisioner, publish, expand, has(name("controller-modify-"))}, " || ") + ")" +
			" || " + provisioner + " && " + publish + " && (" + expand + " || !object.?allowVolumeExpansion.orValue(false))",
		Message: "a Secret is named for some calls alone, and the others would be made with the driver's own account, which doesn't have the disk; " +
			"name it for all by csi.storage.k8s.io/secret-name and csi.storage.k8s.io/secret-namespace",
		Refuses: map[string]string{name("provisioner-"): "keys", "csi.storage.k8s.io/provisioner-secret-namespace": "storage"},
	}
}

// unknownRule refuses every name that is in no row, but for those that
// provisioners take for themselves.
func unknownRule[P any](table keyTable[P]) admissionRule {
	var names []string
	known := "k.startsWith('topodisk.io/') || k.matches('" + secretNames + "')"
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if strings.HasSuffix(name, "/") {
			known += " || k.startsWith('" + name + "')"
		} else {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		known = "k in " + cel(names) + " || " + known
	}
	return admissionRule{
		Expression: "variables.parameters.all(k, " + known + ")",
		Message:    "a parameter is unknown; docs/parameters.md of topodisk lists all", Refuses: map[string]string{"no-such-parameter": "x"},
	}
}

// rulesOf are the rules on the values of single parameters.
func rulesOf[P any](table keyTable[P]) []admissionRule {
	var rules []admissionRule
	for _, name := range slices.Sorted(maps.Keys(table)) {
		k := table[name]
		value := param(name)
		if k.same != "" {
			k = table[k.same]
		}
		add := func(good, wrong, allowed string) {
			rules = append(rules, admissionRule{
				Expression: value + " == '' || " + strings.ReplaceAll(good, "VALUE", value), Message: "parameter " + name + ": " + allowed, Refuses: map[string]string{name: wrong},
			})
		}
		words, _ := choiceOf(k.use)
		types := strings.Join(words.Words, ", ")
		switch {
		case k.barred != "":
			rules = append(rules, admissionRule{Expression: value + " == ''", Message: "parameter " + name + " is not supported: " + k.barred, Refuses: map[string]string{name: "x"}})
		case strings.HasPrefix(k.values, yesNo):
			add(words.cel(), "perhaps", "allowed are true, yes, 1, enabled and false, no, 0, disabled")
		case k.values == someTypes:
			add(words.cel(), "cloud_essd,cloud_esd", "allowed are available, or of "+types+" as many as you like, separated by commas")
		case k.values == oneType:
			add(words.cel(), "cloud_esd", "allowed is one of "+types)
		case k.values == someLevels:
			add(words.cel(), "PL1,PL7", "allowed are PL0, PL1, PL2 and PL3, separated by commas")
		case k.values == oneLevel:
			add(words.cel(), "PL7", "allowed is one of PL0, PL1, PL2 and PL3")
		case k.values == strings.Join(disk.Filesystems(), ", "):
			add(words.cel(), "ntfs", "allowed are "+k.values)
		case k.values == strings.Join(disk.AllXFSFeatures(), ", "):
			add(words.cel(), "lts_2.6", "allowed are "+k.values)
		case k.values == someMkfsOptions:
			add(mkfsRule(), "-l logdev=/dev/vdb,size=64m", "allowed are the options of mkfs that docs/parameters.md of topodisk lists, for the file system of the class")
		case k.values == iopsRange:
			add("VALUE.matches('^[+]?[0-9]{1,18}$')", "-1", "allowed is a whole number from 0")
		case k.values == "zones, separated by commas":
			add("VALUE.split(',').all(word, word.trim().matches('"+zoneForm.String()+"'))", "Zone H", "allowed is a list such as cn-hangzhou-h,cn-hangzhou-i")
		case strings.Contains(k.values, fmt.Sprintf("1 to %d", disk.LongestRetention)):
			add(fmt.Sprintf("VALUE.matches('^[+]?[0-9]{1,18}$') && int(VALUE.replace('+', '')) >= 1 && int(VALUE.replace('+', '')) <= %d", disk.LongestRetention), "0", fmt.Sprintf("allowed is a number of days from 1 to %d", disk.LongestRetention))
		}
	}
	return rules
}
