package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// field returns what a path like spec/containers[disk-driver]/image leads to in
// an object; the elements of a list are found by their name, ~ stands for a slash
// of a key, and nil is nothing.
func field(value any, path string) any {
	for step := range strings.SplitSeq(path, "/") {
		name, element, ofList := strings.Cut(strings.TrimSuffix(step, "]"), "[")
		table, _ := value.(map[string]any)
		value = table[strings.ReplaceAll(name, "~", "/")]
		if !ofList {
			continue
		}
		list, _ := value.([]any)
		at := slices.IndexFunc(list, func(e any) bool { return field(e, "name") == element })
		if at < 0 {
			return nil
		}
		value = list[at]
	}
	return value
}

// What users of other storage drivers' charts set has the name that they know, and the effect.
func TestConventionsOfCharts(t *testing.T) {
	const (
		deployment = "Deployment/topodisk-controller"
		daemonSet  = "DaemonSet/topodisk-node"
		pod        = "spec/template/spec"
		driver     = pod + "/containers[disk-driver]"
		sha        = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
		none       = "null"
		names      = "app.kubernetes.io/component: controller, app.kubernetes.io/instance: topodisk"
		selector   = "{" + names + ", app.kubernetes.io/name: topodisk}"
	)
	for _, c := range []struct{ name, over, object, path, want string }{
		{"nameOverride in names", "nameOverride: disks", "Deployment/topodisk-disks-controller", "metadata/name", "topodisk-disks-controller"},
		{"nameOverride in selectors", "nameOverride: disks", "Deployment/topodisk-disks-controller",
			"spec/selector/matchLabels", "{" + names + ", app.kubernetes.io/name: disks}"},
		{"nameOverride keeps a mark", "nameOverride: disks", "Deployment/topodisk-disks-controller", "metadata/labels/app.kubernetes.io~part-of", "topodisk"},
		{"nameOverride in the release's name", "nameOverride: disk", "Deployment/topodisk-controller", "metadata/name", "topodisk-controller"},
		{"fullnameOverride", "fullnameOverride: cloud-disks", "DaemonSet/cloud-disks-node", "metadata/name", "cloud-disks-node"},
		{"fullnameOverride counts more", "{nameOverride: disks, fullnameOverride: cloud}", "ClusterRole/cloud-attacher", "metadata/name", "cloud-attacher"},
		{"digest", "image: {digest: '" + sha + "'}", deployment, driver + "/image", "registry.example.com/storage/topodisk@" + sha},
		{"digest beats tag", "image: {digest: '" + sha + "', tag: v1}", daemonSet, driver + "/image", "registry.example.com/storage/topodisk@" + sha},
		{"tag", "image: {tag: v1}", daemonSet, driver + "/image", "registry.example.com/storage/topodisk:v1"},
		{"digest of a sidecar", "csiResizer: {digest: '" + sha + "'}", deployment,
			pod + "/containers[csi-resizer]/image", "registry.k8s.io/sig-storage/csi-resizer@" + sha},
		{"digest of csi-provisioner", "csiProvisioner: {enabled: true, digest: '" + sha + "'}", deployment,
			pod + "/containers[csi-provisioner]/image", "registry.k8s.io/sig-storage/csi-provisioner@" + sha},
		{"pull secrets as strings", "imagePullSecrets: [a, b]", deployment, pod + "/imagePullSecrets", "[{name: a}, {name: b}]"},
		{"pull secrets as objects", "imagePullSecrets: [{name: a}, b]", daemonSet, pod + "/imagePullSecrets", "[{name: a}, {name: b}]"},
		{"replicaCount", "controller: {replicaCount: 3}", deployment, "spec/replicas", "3"},
		{"replicas, the former name", "controller: {replicas: 3}", deployment, "spec/replicas", "3"},
		{"controller's account", "controller: {serviceAccount: {name: a}}", deployment, pod + "/serviceAccountName", "a"},
		{"account's annotations", "controller: {serviceAccount: {name: a, annotations: {b: c}}}", "ServiceAccount/a", "metadata/annotations", "{b: c}"},
		{"account's roles", "controller: {serviceAccount: {name: a}}", "ClusterRoleBinding/topodisk-provisioner", "subjects[a]/kind", "ServiceAccount"},
		{"account's Lease", "controller: {serviceAccount: {name: a}}", "RoleBinding/topodisk-attacher", "subjects[a]/kind", "ServiceAccount"},
		{"account that is there", "controller: {serviceAccount: {create: false, name: a}}", "ServiceAccount/a", "metadata/name", none},
		{"node's account", "nodePlugin: {serviceAccount: {name: a, annotations: {b: c}}}", "ServiceAccount/a", "metadata/annotations", "{b: c}"},
		{"node's account in use", "nodePlugin: {serviceAccount: {create: false, name: a}}", daemonSet, pod + "/serviceAccountName", "a"},
		{"node's account made by another", "nodePlugin: {serviceAccount: {create: false, name: a}}", "ServiceAccount/a", "metadata/name", none},
		{"node's account's role", "nodePlugin: {serviceAccount: {name: a}}", "ClusterRoleBinding/topodisk-node", "subjects[a]/kind", "ServiceAccount"},
		{"podLabels", "controller: {podLabels: {a: b}}", deployment, "spec/template/metadata/labels/a", "b"},
		{"podLabels select nothing", "controller: {podLabels: {a: b}}", deployment, "spec/selector/matchLabels", selector},
		{"podLabels of the node", "nodePlugin: {podLabels: {a: b}}", daemonSet, "spec/template/metadata/labels/a", "b"},
		{"podAnnotations", "controller: {podAnnotations: {a: b}}", deployment, "spec/template/metadata/annotations/a", "b"},
		{"podAnnotations of the node", "nodePlugin: {podAnnotations: {a: b}}", daemonSet, "spec/template/metadata/annotations", "{a: b}"},
		{"env", "controller: {env: [{name: A, value: b}]}", deployment, driver + "/env[A]/value", "b"},
		{"env of a Secret", "controller: {env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}", deployment, driver + "/env[A]/valueFrom", "{secretKeyRef: {name: s, key: k}}"},
		{"env of the driver alone", "controller: {env: [{name: A, value: b}]}", deployment, pod + "/containers[csi-attacher]/env", none},
		{"env of the node", "nodePlugin: {env: [{name: A, value: b}]}", daemonSet, driver + "/env[A]/value", "b"},
		{"FIPS mode", "fips: true", deployment, driver + "/env[GODEBUG]/value", "fips140=only"},
		{"FIPS mode of the provisioner", "fips: true", deployment, pod + "/containers[csi-provisioner]/env[GODEBUG]/value", "fips140=only"},
		{"FIPS mode of nodes", "fips: true", daemonSet, driver + "/env[GODEBUG]/value", "fips140=only"},
		{"FIPS mode isn't for others' programs", "{fips: true, csiProvisioner: {enabled: true}}", deployment, pod + "/containers[csi-provisioner]/env[GODEBUG]", none},
		{"HTTP_PROXY", "proxy: {http_proxy: 'http://p:1'}", deployment, driver + "/env[HTTP_PROXY]/value", "http://p:1"},
		{"HTTPS_PROXY is HTTP_PROXY", "proxy: {http_proxy: 'http://p:1'}", deployment, driver + "/env[HTTPS_PROXY]/value", "http://p:1"},
		{"HTTPS_PROXY", "proxy: {https_proxy: 'http://p:2'}", deployment, driver + "/env[HTTPS_PROXY]/value", "http://p:2"},
		{"HTTPS_PROXY alone", "proxy: {https_proxy: 'http://p:2'}", deployment, driver + "/env[HTTP_PROXY]", none},
		{"NO_PROXY has the API server", "proxy: {http_proxy: 'http://p:1'}", deployment, driver + "/env[NO_PROXY]/value", "$(KUBERNETES_SERVICE_HOST)"},
		{"NO_PROXY", "proxy: {http_proxy: 'http://p:1', no_proxy: '.example.com'}", deployment, driver + "/env[NO_PROXY]/value", "$(KUBERNETES_SERVICE_HOST),.example.com"},
		{"no proxy", "proxy: {no_proxy: '.example.com'}", deployment, driver + "/env[NO_PROXY]", none},
		{"no proxy on nodes", "proxy: {http_proxy: 'http://p:1'}", daemonSet, driver + "/env[HTTPS_PROXY]", none},
		{"system pools are tolerated", "{}", deployment, pod + "/tolerations", "[{key: topodisk.io/agent-not-ready, operator: Exists}, {key: CriticalAddonsOnly, operator: Exists}]"},
		{
			"spread over zones and nodes", "{}", deployment, pod + "/topologySpreadConstraints",
			"[{topologyKey: topology.kubernetes.io/zone, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: " + selector + "}}," +
				" {topologyKey: kubernetes.io/hostname, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: " + selector + "}}]",
		},
		{
			"spread as told", "controller: {topologySpreadConstraints: [{topologyKey: a, maxSkew: 2, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {b: c}}}]}", deployment, pod + "/topologySpreadConstraints",
			"[{topologyKey: a, maxSkew: 2, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {b: c}}}]",
		},
		{"no spread", "controller: {topologySpreadConstraints: []}", deployment, pod + "/topologySpreadConstraints", none},
		{"priority class", "controller: {priorityClassName: a}", deployment, pod + "/priorityClassName", "a"},
		{"priority class of the node", "nodePlugin: {priorityClassName: a}", daemonSet, pod + "/priorityClassName", "a"},
		{"strategy of Kubernetes", "{}", deployment, "spec/strategy", none},
		{"strategy", "controller: {updateStrategy: {type: Recreate}}", deployment, "spec/strategy", "{type: Recreate}"},
		{"rolling update", "controller: {updateStrategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 50%}}}", deployment, "spec/strategy", "{type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 50%}}"},
		{"strategy of the node", "{}", daemonSet, "spec/updateStrategy", "{type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}"},
		{"percentage of the nodes", "nodePlugin: {maxUnavailable: 25%}", daemonSet, "spec/updateStrategy/rollingUpdate", "{maxUnavailable: 25%}"},
		{"number of nodes", "nodePlugin: {maxUnavailable: 3}", daemonSet, "spec/updateStrategy/rollingUpdate", "{maxUnavailable: 3}"},
		{"number of nodes in quotes", "nodePlugin: {maxUnavailable: '3'}", daemonSet, "spec/updateStrategy/rollingUpdate", "{maxUnavailable: 3}"},
		{"on deletion", "nodePlugin: {updateStrategy: {type: OnDelete}}", daemonSet, "spec/updateStrategy", "{type: OnDelete}"},
		{"rolling update of the node", "nodePlugin: {updateStrategy: {rollingUpdate: {maxUnavailable: 3}}}", daemonSet, "spec/updateStrategy/rollingUpdate", "{maxUnavailable: 3}"},
		{"tolerations of a group", "nodePlugin: {groups: [{name: a, tolerations: [{key: b, operator: Exists}]}]}", "DaemonSet/topodisk-node-a", pod + "/tolerations", "[{key: b, operator: Exists}]"},
		{"a group that tolerates nothing", "nodePlugin: {groups: [{name: a, tolerations: []}]}", "DaemonSet/topodisk-node-a", pod + "/tolerations", none},
		{"a group on all of its nodes", "nodePlugin: {groups: [{name: a, affinity: {}}]}", "DaemonSet/topodisk-node-a", pod + "/affinity", none},
		{"tolerations of all groups", "nodePlugin: {groups: [{name: a}], tolerations: [{key: b, operator: Exists}]}", "DaemonSet/topodisk-node-a", pod + "/tolerations", "[{key: b, operator: Exists}]"},
		{"resources", "diskDriver: {resources: {limits: {memory: 1Gi}}}", deployment, driver + "/resources/limits/memory", "1Gi"},
		{"resources of the node", "nodePlugin: {resources: {limits: {memory: 1Gi}}}", daemonSet, driver + "/resources/limits/memory", "1Gi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := Objects(render(t, preset(t, "minimal", c.over)))
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			for _, o := range objects {
				if o.GetKind()+"/"+o.GetName() == c.object {
					got = field(o.Object, c.path)
				}
			}
			if err := yaml.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(asYAML(t, want), asYAML(t, got)); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", c.object, c.path, diff)
			}
		})
	}
}

func asYAML(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFlagsOfLogsAndTagsAreEveryContainers(t *testing.T) {
	values := preset(t, "minimal", "{loggingFormat: json, csiSnapshotter: {enabled: true}, diskDriver: {extraTags: {team: storage, stage: test}}}")
	pod := controllerPod(t, values)
	for _, c := range append(pod.Containers, daemonSet(t, values, "topodisk-node").Spec.Template.Spec.Containers...) {
		if !slices.Contains(c.Args, "--logging-format=json") {
			t.Errorf("%s logs in another format: %v", c.Name, c.Args)
		}
	}
	if args := container(t, pod, "disk-driver").Args; !slices.Contains(args, "--extra-tags=stage=test,team=storage") {
		t.Errorf("disk-driver isn't told the tags: %v", args)
	}
}
