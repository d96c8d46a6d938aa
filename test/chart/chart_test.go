package chart

import (
	"path/filepath"
	"slices"
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
		if len(s.Type) == 0 {
			t.Errorf("%s has no type", path)
		}
		if s.Description == "" && path != "" {
			t.Errorf("%s has no description", path)
		}
		if slices.Contains(s.Type, "object") && s.AdditionalProperties == nil && path != "global" {
			t.Errorf("%s takes any key", path)
		}
		if slices.Contains(s.Type, "array") && s.Items == nil {
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
		if path == "replicaCount" { // which is refused
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
		{"value that was removed", "diskProvisioner: {leaderElection: false}", "'/diskProvisioner': additional properties 'leaderElection' not allowed"},
		{"misspelt value of a program", "diskDriver: {htpEndpoint: ':1'}", "'/diskDriver': additional properties 'htpEndpoint' not allowed"},
		{"region of two words", "region: cn hangzhou", "'/region'"},
		{"region in upper case", "region: CN-HANGZHOU", "'/region'"},
		{"cluster ID with a blank", "clusterID: my cluster", "'/clusterID'"},
		{"endpoint with a path", "ecsEndpoint: https://ecs.example.com/api", "'/ecsEndpoint'"},
		{"tag as a number", "image: {tag: 1.2}", "'/image/tag': got number, want string"},
		{"pull policy", "image: {pullPolicy: Sometimes}", "'/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"},
		{"digest", "image: {digest: 'sha256:0123'}", "'/image/digest'"},
		{"digest of a sidecar", "csiAttacher: {digest: latest}", "'/csiAttacher/digest'"},
		{"pull secret's field", "imagePullSecrets: [{secret: key}]", "'/imagePullSecrets/0': missing property 'name'"},
		{"pull secret as a number", "imagePullSecrets: [1]", "'/imagePullSecrets/0': got number, want string or object"},
		{"replicas", "controller: {replicas: 0}", "'/controller/replicas': minimum: got 0, want 1"},
		{"no replica", "controller: {replicaCount: 0}", "'/controller/replicaCount': minimum: got 0, want 1"},
		{"replicas below zero", "controller: {replicaCount: -2}", "'/controller/replicaCount': minimum: got -2, want 1"},
		{"half a replica", "controller: {replicaCount: 1.5}", "'/controller/replicaCount': got number, want integer"},
		{"replicas as a text", "controller: {replicaCount: two}", "'/controller/replicaCount': got string, want integer"},
		{"a name too long", "fullnameOverride: " + strings.Repeat("a", 41), "'/fullnameOverride'"},
		{"a name with an underscore", "nameOverride: my_disks", "'/nameOverride'"},
		{"proxy with a path", "proxy: {http_proxy: 'http://proxy.example.com/path'}", "'/proxy/http_proxy'"},
		{"an account of nobody", "controller: {serviceAccount: {create: false}}", "controller.serviceAccount.create is false, and controller.serviceAccount.name is not set"},
		{"one account for both", "{controller: {serviceAccount: {name: a}}, nodePlugin: {serviceAccount: {name: a}}}", "controller.serviceAccount.name and nodePlugin.serviceAccount.name are both a"},
		{"label of the chart", "controller: {podLabels: {app.kubernetes.io/name: a}}", "controller.podLabels has app.kubernetes.io/name, which the chart sets itself"},
		{"label of a group of nodes", "nodePlugin: {podLabels: {topodisk.io/node-group: a}}", "nodePlugin.podLabels has topodisk.io/node-group, which the chart sets itself"},
		{"variable of the chart", "nodePlugin: {env: [{name: NODE_NAME, value: a}]}", "nodePlugin.env has NODE_NAME twice, or the chart sets it itself"},
		{"variable of FIPS mode", "{fips: true, controller: {env: [{name: GODEBUG, value: a}]}}", "controller.env has GODEBUG twice"},
		{"FIPS mode of SHA-1", "{fips: true, signature: v1}", "fips is true and signature is v1, which needs SHA-1: set signature=v3, or fips=false"},
		{"variable of the proxy", "{proxy: {http_proxy: 'http://a:1'}, controller: {env: [{name: HTTPS_PROXY, value: a}]}}", "controller.env has HTTPS_PROXY twice"},
		{"variable's field", "controller: {env: [{name: A, valueFrom: {secretRef: {}}}]}", "'/controller/env/0/valueFrom': additional properties 'secretRef' not allowed"},
		{"spread without a skew", "controller: {topologySpreadConstraints: [{topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}", "'/controller/topologySpreadConstraints/0': missing property 'maxSkew'"},
		{"update strategy", "controller: {updateStrategy: {type: OnDelete}}", "'/controller/updateStrategy/type': value must be one of 'RollingUpdate', 'Recreate'"},
		{"update of no node", "nodePlugin: {maxUnavailable: 0}", "'/nodePlugin/maxUnavailable': minimum: got 0, want 1"},
		{"rolling update of no node", "nodePlugin: {updateStrategy: {rollingUpdate: {maxUnavailable: 0}}}", "'/nodePlugin/updateStrategy/rollingUpdate/maxUnavailable': minimum: got 0, want 1"},
		{"two update strategies", "nodePlugin: {updateStrategy: {type: OnDelete, rollingUpdate: {maxUnavailable: 1}}}", "nodePlugin.updateStrategy.type is OnDelete, and rollingUpdate is set"},
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
		{"zone for a region", "region: cn-hangzhou-h", "region is cn-hangzhou-h, which is a zone: a region such as cn-hangzhou or ap-southeast-1 is allowed; did you mean cn-hangzhou?"},
		{"zone with a digit for a region", "region: ap-southeast-1a", "region is ap-southeast-1a, which is a zone: a region such as cn-hangzhou or ap-southeast-1 is allowed; did you mean ap-southeast-1?"},
		{"zone of a financial region", "region: cn-shanghai-finance-1k", "did you mean cn-shanghai-finance-1?"},
		{"tag in the repository", "image: {repository: 'registry.example.com:5000/storage/topodisk:v1.2'}", "image.repository is registry.example.com:5000/storage/topodisk:v1.2, with a tag in it: registry and name alone are allowed; did you mean image.repository=registry.example.com:5000/storage/topodisk and image.tag=v1.2?"},
		{"tag without a registry", "image: {repository: 'topodisk:v1'}", "did you mean image.repository=topodisk and image.tag=v1?"},
		{"digest in the repository", "image: {repository: 'registry.example.com/topodisk@sha256:01'}", "image.repository is registry.example.com/topodisk@sha256:01, with a digest in it: registry and name alone are allowed; did you mean image.repository=registry.example.com/topodisk and image.digest=sha256:01?"},
		{"repository in capitals", "image: {repository: 'registry.example.com/Storage/topodisk'}", "image.repository is registry.example.com/Storage/topodisk: letters are small, and each part begins and ends with a letter or digit; did you mean registry.example.com/storage/topodisk?"},
		{"repository that ends in a slash", "image: {repository: 'registry.example.com/'}", "image.repository is registry.example.com/: letters are small"},
		{"repository with a scheme", "image: {repository: 'https://registry.example.com/topodisk?'}", "'/image/repository'"},
		{"cluster ID with an underscore", "clusterID: c0123_456", "clusterID is c0123_456, which has an underscore: the ID of an ACK cluster is c and 32 of 0-9 and a-f, any other has letters, digits, dots and dashes; did you mean c0123456?"},
		{"name with an underscore for an ID", "clusterID: my_cluster", "did you mean my-cluster?"},
		{"cluster ID cut short", "clusterID: c0123456789abcdef0123456789abcde", "clusterID is c0123456789abcdef0123456789abcde, which has 32 characters: the ID of an ACK cluster is c and 32 of 0-9 and a-f"},
		{"cluster ID in capitals", "clusterID: C0123456789ABCDEF0123456789ABCDEF", "which has 33 characters: the ID of an ACK cluster is c and 32 of 0-9 and a-f, any other has letters, digits, dots and dashes; did you mean c0123456789abcdef0123456789abcdef?"},
		{"unknown type", "storageClasses: [{name: a, parameters: {type: cloud_esd}}]", `storageClasses a: parameter type (value "cloud_esd"): "cloud_esd" is not allowed; allowed are cloud, cloud_auto, cloud_efficiency, cloud_essd, cloud_essd_entry, cloud_essd_xc0, cloud_essd_xc1, cloud_regional_disk_auto, cloud_ssd; did you mean cloud_essd or cloud_ssd?`},
		{"one unknown type of several", "storageClasses: [{name: a, parameters: {type: 'cloud_auto, clod_essd'}}]", `parameter type (value "cloud_auto, clod_essd"): "clod_essd" is not allowed; allowed are`},
		{"type in capitals", "storageClasses: [{name: a, parameters: {type: CLOUD_ESSD}}]", "; did you mean cloud_essd?"},
		{"type with a dash", "storageClasses: [{name: a, parameters: {type: cloud-auto}}]", "; did you mean cloud_auto?"},
		{"type in short", "storageClasses: [{name: a, parameters: {type: essd}}]", "; did you mean cloud_essd?"},
		{"type with its level", "storageClasses: [{name: a, parameters: {type: cloud_essd_pl1}}]", "; did you mean cloud_essd?"},
		{"available beside a type", "storageClasses: [{name: a, parameters: {type: 'available,cloud_ssd'}}]", `"available" is not allowed`},
		{"type of a change", "volumeAttributesClasses: [{name: a, parameters: {type: 'cloud_essd,cloud_auto'}}]", `volumeAttributesClasses a: parameter type (value "cloud_essd,cloud_auto"): "cloud_essd,cloud_auto" is not allowed`},
		{"unknown level", "storageClasses: [{name: a, parameters: {performanceLevel: pl1}}]", `"pl1" is not allowed; allowed are PL0, PL1, PL2, PL3; did you mean PL1?`},
		{"unknown file system", "storageClasses: [{name: a, parameters: {csi.storage.k8s.io/fstype: ext2}}]", "allowed are ext3, ext4, xfs; did you mean ext3 or ext4?"},
		{"unknown truth", "storageClasses: [{name: a, parameters: {encrypted: 'on'}}]", `parameter encrypted (value "on"): "on" is not allowed; allowed are true, t, yes, 1, enabled, false, f, no, 0, disabled`},
		{"misspelt parameter", "storageClasses: [{name: a, parameters: {tpye: cloud_essd}}]", `storageClasses a: parameter tpye (value "cloud_essd") is unknown; allowed are alibabacloud.com/kms-key-id, archiveOnDelete, `},
		{"what was meant by it", "storageClasses: [{name: a, parameters: {tpye: cloud_essd}}]", "; did you mean type?"},
		{"parameter in other case", "storageClasses: [{name: a, parameters: {KMSKeyID: k}}]", "; did you mean kmsKeyId?"},
		{"parameter of disk-provisioner", "storageClasses: [{name: a, parameters: {topodisk.io/strict-toplogy: 'true'}}]", "; did you mean topodisk.io/strict-topology?"},
		{"tag without a key", "storageClasses: [{name: a, parameters: {diskTags/: b}}]", `parameter diskTags/ (value "b") is unknown`},
		{"parameter that is not supported", "storageClasses: [{name: a, parameters: {readIOPS: '1000'}}]", `parameter readIOPS (value "1000") is not supported: the driver doesn't limit I/O`},
		{"parameter of a snapshot", "{csiSnapshotter: {enabled: true}, volumeSnapshotClasses: [{name: a, parameters: {retentionDay: '7'}}]}", "volumeSnapshotClasses a: parameter retentionDay (value \"7\") is unknown; allowed are resourceGroupId, retentionDays, snapshotTags/; did you mean retentionDays?"},
		{"parameter of a change", "volumeAttributesClasses: [{name: a, parameters: {encrypted: 'true'}}]", "volumeAttributesClasses a: parameter encrypted"},
		{"parameter of a change, leniently", "{diskDriver: {unknownParameters: warn}, volumeAttributesClasses: [{name: a, parameters: {encrypted: 'true'}}]}", "volumeAttributesClasses a: parameter encrypted"},
		{"type, leniently", "{diskDriver: {unknownParameters: warn}, storageClasses: [{name: a, parameters: {type: cloud_esd}}]}", `"cloud_esd" is not allowed`},
		{"affinity's field", "controller: {affinity: {nodeAffinty: {}}}", "'/controller/affinity': additional properties 'nodeAffinty' not allowed"},
		{"group of nodes twice", "nodePlugin: {groups: [{name: a}, {name: a}]}", `nodePlugin.groups has the name "a" twice`},
		{"group without a name", "nodePlugin: {groups: [{kubeletDir: /k}]}", "'/nodePlugin/groups/0': missing property 'name'"},
		{"limit below zero", "nodePlugin: {volumeAttachLimit: -1}", "'/nodePlugin/volumeAttachLimit': minimum: got -1, want 0"},
		{"limit and reserve", "nodePlugin: {volumeAttachLimit: 9, reservedAttachments: 1}", "nodePlugin has volumeAttachLimit 9 and reservedAttachments 1: the limit is the number of volumes itself; set one of them"},
		{"limit and reserve of a group", "nodePlugin: {groups: [{name: a, volumeAttachLimit: 9, reservedAttachments: 1}]}", `nodePlugin has volumeAttachLimit 9 and reservedAttachments 1 in the group "a"`},
		{"snapshots of nobody", "volumeSnapshotClasses: [{name: a}]", "volumeSnapshotClasses are given and csiSnapshotter.enabled is false"},
		{"drain timeout", "nodePlugin: {drainTimeout: 90}", "'/nodePlugin/drainTimeout': got number, want string"},
		{"replicas of nobody", "replicaCount: 3", "did you mean controller.replicaCount=3?"},
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

// A guess that is none would mislead.
func TestNoGuessIsMadeOfAnotherWord(t *testing.T) {
	for _, parameters := range []string{"type: gp3", "type: x", "performanceLevel: PL9", "color: red", "fsType: btrfs"} {
		_, _, err := Render(repo, preset(t, "minimal", "storageClasses: [{name: a, parameters: {"+parameters+"}}]"),
			Release{Name: "topodisk", Namespace: "kube-system"})
		if err == nil || !strings.Contains(err.Error(), "allowed are") || strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%s: %v", parameters, err)
		}
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
