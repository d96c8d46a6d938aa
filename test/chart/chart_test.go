package chart

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// helm lint --strict fails on warnings; so does this.
func TestEveryPresetPassesStrictLint(t *testing.T) {
	presets, err := Presets(repo)
	if err != nil {
		t.Fatal(err)
	}
	presets["defaults"] = map[string]any{}
	for name, values := range presets {
		t.Run(name, func(t *testing.T) {
			linter := lint.AllWithKubeVersion(filepath.Join(repo, chartDir), values, "kube-system", &chartutil.DefaultCapabilities.KubeVersion)
			for _, message := range linter.Messages {
				if message.Severity > support.InfoSev {
					t.Error(message)
				}
			}
		})
	}
}

func TestLintNoticesAWrongValue(t *testing.T) {
	linter := lint.AllWithKubeVersion(filepath.Join(repo, chartDir), map[string]any{"regoin": "cn-hangzhou"}, "kube-system", nil)
	if linter.HighestSeverity < support.ErrorSev {
		t.Errorf("highest severity is %d, want an error: %v", linter.HighestSeverity, linter.Messages)
	}
}

func TestSchemaIsClosedTypedAndDescribed(t *testing.T) {
	schema, err := ReadSchema(repo)
	if err != nil {
		t.Fatal(err)
	}
	schema.Walk("", func(path string, s *Schema) {
		if s.Type == "" {
			t.Errorf("%s has no type", path)
		}
		if s.Description == "" && path != "" {
			t.Errorf("%s has no description", path)
		}
		if s.Type == "object" && s.AdditionalProperties == nil && path != "global" {
			t.Errorf("%s takes any key", path)
		}
		if s.Type == "array" && s.Items == nil {
			t.Errorf("%s takes anything as an item", path)
		}
		required := map[string]bool{}
		for _, name := range s.Required {
			required[name] = true
		}
		for _, property := range s.Properties {
			if property.Schema.Default != nil && !required[property.Name] && !strings.Contains(path, ".resources.") {
				t.Errorf("%s.%s has a default, yet null is taken for it", path, property.Name)
			}
		}
	})
}

// What no preset changes would be tried by no test.
func TestPresetsSetEveryValueToAnotherThanItsDefault(t *testing.T) {
	schema, err := ReadSchema(repo)
	if err != nil {
		t.Fatal(err)
	}
	presets, err := Presets(repo)
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := chartutil.ReadValuesFile(filepath.Join(repo, chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	schema.Walk("", func(path string, s *Schema) {
		if len(s.Properties) > 0 || strings.Contains(path, "[]") || strings.Contains(path, "<key>") || path == "global" {
			return
		}
		for _, values := range presets {
			if value, err := lookup(values, path); err == nil {
				if other, err := lookup(defaults, path); err != nil || !cmp.Equal(value, other) {
					return
				}
			}
		}
		t.Errorf("no preset sets %s to another value than its default", path)
	})
}

// lookup finds a value or a table under a path like image.tag.
func lookup(values chartutil.Values, path string) (any, error) {
	if value, err := values.PathValue(path); err == nil {
		return value, nil
	}
	return values.Table(path)
}

func TestWrongValueIsRefusedByName(t *testing.T) {
	for _, c := range []struct{ name, over, want string }{
		{"misspelt value", "regoin: cn-hangzhou", "'regoin' not allowed"},
		{"misspelt value of a program", "diskDriver: {htpEndpoint: ':1'}", "'/diskDriver': additional properties 'htpEndpoint' not allowed"},
		{"region of two words", "region: cn hangzhou", "'/region'"},
		{"region in upper case", "region: CN-HANGZHOU", "'/region'"},
		{"cluster ID with a blank", "clusterID: my cluster", "'/clusterID'"},
		{"endpoint with a path", "ecsEndpoint: https://ecs.example.com/api", "'/ecsEndpoint'"},
		{"tag as a number", "image: {tag: 1.2}", "'/image/tag': got number, want string"},
		{"pull policy", "image: {pullPolicy: Sometimes}", "'/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"},
		{"pull secret as an object", "imagePullSecrets: [{name: key}]", "'/imagePullSecrets/0': got object, want string"},
		{"replicas", "controller: {replicas: 0}", "'/controller/replicas': minimum: got 0, want 1"},
		{"Lease that ends too soon", "controller: {leaderElection: {renewDeadline: 8s}}", "controller.leaderElection.leaseDuration 10s is not longer than renewDeadline 8s and retryPeriod 2s together"},
		{"no try in time", "controller: {leaderElection: {renewDeadline: 2s}}", "controller.leaderElection.renewDeadline 2s is not longer than 1.2 times retryPeriod 2s"},
		{"part of a second", "controller: {leaderElection: {retryPeriod: 500ms}}", "'/controller/leaderElection/retryPeriod'"},
		{"toleration", "controller: {tolerations: [{effect: NoRun}]}", "'/controller/tolerations/0/effect'"},
		{"unknown parameters", "diskDriver: {unknownParameters: ignore}", "'/diskDriver/unknownParameters': value must be one of 'refuse', 'warn'"},
		{"address instead of a port", "diskDriver: {httpEndpoint: '127.0.0.1:9808'}", "'/diskDriver/httpEndpoint'"},
		{"duration without a unit", "diskProvisioner: {timeout: '150'}", "'/diskProvisioner/timeout'"},
		{"boolean in quotes", "diskProvisioner: {strictTopology: 'true'}", "'/diskProvisioner/strictTopology': got string, want boolean"},
		{"value taken away", "diskProvisioner: {timeout: null}", "'/diskProvisioner': missing property 'timeout'"},
		{"memory", "diskProvisioner: {resources: {requests: {memory: lots}}}", "'/diskProvisioner/resources/requests/memory'"},
		{"secrets without names", "rbac: {provisionerSecrets: [{namespace: a}]}", "'/rbac/provisionerSecrets/0': missing property 'names'"},
		{"no secret at all", "rbac: {provisionerSecrets: [{namespace: a, names: []}]}", "'/rbac/provisionerSecrets/0/names'"},
		{"class without parameters", "storageClasses: [{name: a}]", "'/storageClasses/0': missing property 'parameters'"},
		{"parameter as a boolean", "storageClasses: [{name: a, parameters: {encrypted: true}}]", "'/storageClasses/0/parameters/encrypted': got boolean, want string"},
		{"binding mode", "storageClasses: [{name: a, parameters: {}, volumeBindingMode: Later}]", "'/storageClasses/0/volumeBindingMode'"},
		{"no region", "region: ''", "region is not set: the region of the cluster's ECS instances, for example --set region=cn-hangzhou"},
		{"no image", "image: {repository: ''}", "image.repository is not set: where the image built from the Dockerfile was pushed to, for example --set image.repository=registry.example.com/storage/topodisk"},
		{"no Secret", "credentials: {existingSecret: ''}", "credentials.existingSecret is not set: a Secret of namespace kube-system with the keys access-key-id and access-key-secret, for example --set credentials.existingSecret=topodisk-credentials"},
		{"a Secret and a key", "credentials: {accessKeyID: LTAI, accessKeySecret: s}", "credentials.existingSecret is topodisk-credentials, and credentials.accessKeyID is set"},
		{"half a key", "credentials: {existingSecret: '', accessKeyID: LTAI}", "credentials.accessKeyID and credentials.accessKeySecret go together"},
		{"another source", "credentials: {source: environment}", "'/credentials/source': value must be one of 'secret', 'oidc', 'ram-role'"},
		{"a Secret for a role", "credentials: {source: ram-role}", "credentials.source is ram-role, and an access key is named too"},
		{"OIDC without a role", "credentials: {source: oidc, existingSecret: ''}", "credentials.oidc.roleARN or credentials.oidc.providerARN is not set"},
		{"affinity's field", "controller: {affinity: {nodeAffinty: {}}}", "'/controller/affinity': additional properties 'nodeAffinty' not allowed"},
		{"group of nodes twice", "nodePlugin: {groups: [{name: a}, {name: a}]}", `nodePlugin.groups has the name "a" twice`},
		{"group without a name", "nodePlugin: {groups: [{kubeletDir: /k}]}", "'/nodePlugin/groups/0': missing property 'name'"},
		{"limit below zero", "nodePlugin: {volumeAttachLimit: -1}", "'/nodePlugin/volumeAttachLimit': minimum: got -1, want 0"},
		{"limit and reserve", "nodePlugin: {volumeAttachLimit: 9, reservedAttachments: 1}", "nodePlugin has volumeAttachLimit 9 and reservedAttachments 1: the limit is the number of volumes itself; set one of them"},
		{"limit and reserve of a group", "nodePlugin: {groups: [{name: a, volumeAttachLimit: 9, reservedAttachments: 1}]}", `nodePlugin has volumeAttachLimit 9 and reservedAttachments 1 in the group "a"`},
		{"snapshots of nobody", "volumeSnapshotClasses: [{name: a}]", "volumeSnapshotClasses are given and csiSnapshotter.enabled is false"},
		{"departure", "nodePlugin: {departure: 90}", "'/nodePlugin/departure': got number, want string"},
		{"two that both lead", "diskProvisioner: {leaderElection: false}", "diskProvisioner.leaderElection is false with controller.replicas 2"},
		{"one port for two", "diskProvisioner: {httpEndpoint: ':9808'}", "diskDriver.httpEndpoint and diskProvisioner.httpEndpoint are both :9808"},
		{"every Secret and one", "rbac: {provisionerSecrets: [{namespace: a, names: ['*', b]}]}", `rbac.provisionerSecrets of namespace a has "*" beside names`},
		{"namespace twice", "rbac: {provisionerSecrets: [{namespace: a, names: [b]}, {namespace: a, names: [c]}]}", "rbac.provisionerSecrets has namespace a twice"},
		{"class twice", "storageClasses: [{name: a, parameters: {}}, {name: a, parameters: {}}]", "storageClasses has the name a twice"},
		{"two default classes", "storageClasses: [{name: a, default: true, parameters: {}}, {name: b, default: true, parameters: {}}]", "storageClasses has 2 defaults (a, b)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Render(repo, preset(t, "minimal", c.over), Release{Name: "topodisk", Namespace: "kube-system"})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is\n%v\nwant it to contain\n%s", err, c.want)
			}
		})
	}
}

func TestEveryMissingValueIsNamedAtOnce(t *testing.T) {
	_, _, err := Render(repo, map[string]any{}, Release{Name: "topodisk", Namespace: "kube-system"})
	if err == nil {
		t.Fatal("a release without any value was rendered")
	}
	for _, name := range []string{"region", "image.repository", "credentials.existingSecret"} {
		if !strings.Contains(err.Error(), "\n- "+name+" is not set") {
			t.Errorf("%s is not named in\n%v", name, err)
		}
	}
}

func TestNotesTellTheNextCommands(t *testing.T) {
	_, notes, err := Render(repo, preset(t, "beside-incumbent", ""), Release{Name: "disks", Namespace: "storage"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kubectl -n storage create secret generic csi-access-key",
		"--from-file=id=./access-key-id --from-file=secret=./access-key-secret",
		"kubectl -n storage rollout status deployment/disks-topodisk-controller",
		"kubectl -n storage logs deployment/disks-topodisk-controller -c disk-driver",
		"StorageClass topodisk-essd",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
}

func TestNamesOfLongReleasesAreValid(t *testing.T) {
	manifests, _, err := Render(repo, preset(t, "full", ""), Release{Name: strings.Repeat("long-name-", 5) + "abc", Namespace: "kube-system"})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Objects(manifests)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if len(object.GetName()) > 63 {
			t.Errorf("%s %s is longer than 63 characters", object.GetKind(), object.GetName())
		}
	}
}
