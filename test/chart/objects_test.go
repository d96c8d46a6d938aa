package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"helm.sh/helm/v3/pkg/chartutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// decode returns the rendered objects of a kind, and fails on a field that the kind lacks.
func decode[T any](t *testing.T, values map[string]any, kind string) []T {
	t.Helper()
	objects, err := Objects(render(t, values))
	if err != nil {
		t.Fatal(err)
	}
	var decoded []T
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &one, true); err != nil {
			t.Fatalf("%s %s: %v", kind, object.GetName(), err)
		}
		decoded = append(decoded, one)
	}
	return decoded
}

// controllerPod returns the Pod of the only Deployment.
func controllerPod(t *testing.T, values map[string]any) corev1.PodSpec {
	t.Helper()
	deployments := decode[appsv1.Deployment](t, values, "Deployment")
	if len(deployments) != 1 {
		t.Fatalf("%d Deployments, want 1", len(deployments))
	}
	return deployments[0].Spec.Template.Spec
}

func container(t *testing.T, pod corev1.PodSpec, name string) corev1.Container {
	t.Helper()
	at := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == name })
	if at < 0 {
		t.Fatalf("the Pod has no container %s", name)
	}
	return pod.Containers[at]
}

// probes returns the probes that a container has.
func probes(c corev1.Container) map[string]*corev1.Probe {
	all := map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe, "startup": c.StartupProbe}
	maps.DeleteFunc(all, func(_ string, probe *corev1.Probe) bool { return probe == nil })
	return all
}

func mounts(c corev1.Container) []string {
	var names []string
	for _, m := range c.VolumeMounts {
		names = append(names, m.Name)
	}
	return names
}

func TestPodHasNoPrivilegeThatItDoesNotNeed(t *testing.T) {
	pod := controllerPod(t, preset(t, "minimal", ""))
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 ||
		s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the Pod's security context is %v", s)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the Pod shares namespaces with its node")
	}
	no, yes := false, true
	want := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no,
		ReadOnlyRootFilesystem:   &yes,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	for _, c := range pod.Containers {
		if diff := cmp.Diff(want, c.SecurityContext); diff != "" {
			t.Errorf("security context of %s (-want +got):\n%s", c.Name, diff)
		}
		if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s has no memory request, memory limit or processor request: %v", c.Name, c.Resources)
		}
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			t.Errorf("volume %s is a path of the node", v.Name)
		}
	}
}

func TestContainersShareTheSocketAndNothingElse(t *testing.T) {
	pod := controllerPod(t, preset(t, "minimal", ""))
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("every container gets a token of the API server")
	}
	got := map[string][]string{}
	for _, c := range pod.Containers {
		got[c.Name] = mounts(c)
	}
	want := map[string][]string{
		"disk-driver": {"socket", "credentials", "api-token"}, "csi-provisioner": {"socket", "api-token"},
		"csi-attacher": {"socket", "api-token"}, "csi-resizer": {"socket", "api-token"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	without := preset(t, "minimal", "{diskDriver: {nodeFacts: false}}")
	for _, role := range decode[rbacv1.ClusterRole](t, without, "ClusterRole") {
		if role.Name == "topodisk-node-facts" {
			t.Errorf("the Pod may write on Nodes, which it doesn't: %v", rules(role.Rules))
		}
	}
	driver, provisioner := container(t, pod, "disk-driver"), container(t, pod, "csi-provisioner")
	if driver.VolumeMounts[0].MountPath != provisioner.VolumeMounts[0].MountPath {
		t.Error("the socket's directory is mounted at two places")
	}
	if !slices.Contains(driver.Args, "--endpoint=unix:///csi/csi.sock") || !slices.Contains(provisioner.Args, "--csi-address=/csi/csi.sock") {
		t.Errorf("the programs are not told one socket: %v, %v", driver.Args, provisioner.Args)
	}
}

// The Secret of other disk drivers is taken without a word on its keys.
func TestTheSecretOfOtherDriversIsTakenAsItIs(t *testing.T) {
	for _, v := range controllerPod(t, preset(t, "minimal", "{credentials: {existingSecret: csi-access-key}}")).Volumes {
		if v.Name == "credentials" && !slices.Contains(v.Secret.Items, corev1.KeyToPath{Key: "id", Path: "id"}) {
			t.Errorf("the key id is not mounted: %v", v.Secret.Items)
		}
	}
}

func TestOtherSourcesOfCredentialsNeedNoSecret(t *testing.T) {
	for name, want := range map[string][]string{"full": {"socket", "oidc-token", "api-token"}, "ram-role": {"socket", "api-token"}} {
		driver := container(t, controllerPod(t, preset(t, name, "")), "disk-driver")
		if diff := cmp.Diff(want, mounts(driver)); diff != "" {
			t.Errorf("preset %s: mounts (-want +got):\n%s", name, diff)
		}
		for _, arg := range driver.Args {
			if strings.HasPrefix(arg, "--credentials-dir") {
				t.Errorf("preset %s: %s goes before every other source", name, arg)
			}
		}
	}
	env := map[string]string{}
	for _, e := range container(t, controllerPod(t, preset(t, "full", "")), "disk-driver").Env {
		env[e.Name] = e.Value
	}
	if env["ALIBABA_CLOUD_ROLE_ARN"] == "" || env["ALIBABA_CLOUD_OIDC_PROVIDER_ARN"] == "" ||
		env["ALIBABA_CLOUD_OIDC_TOKEN_FILE"] != "/var/run/secrets/topodisk/oidc/token" {
		t.Errorf("environment of disk-driver: %v", env)
	}
}

func TestASecretIsMadeOfValues(t *testing.T) {
	secrets := decode[corev1.Secret](t, preset(t, "created-secret", ""), "Secret")
	if len(secrets) != 1 || secrets[0].StringData["access-key-id"] != "LTAI5tExample" || secrets[0].StringData["access-key-secret"] != "not-a-secret" {
		t.Fatalf("Secrets: %v", secrets)
	}
	driver := container(t, controllerPod(t, preset(t, "created-secret", "")), "disk-driver")
	if !slices.Contains(driver.Args, "--credentials-dir=/var/run/secrets/topodisk/"+secrets[0].Name) {
		t.Errorf("disk-driver reads another Secret: %v", driver.Args)
	}
	if got := decode[corev1.Secret](t, preset(t, "minimal", ""), "Secret"); len(got) != 0 {
		t.Errorf("a Secret is made beside the existing one: %v", got)
	}
}

// daemonSet returns the DaemonSet of a name.
func daemonSet(t *testing.T, values map[string]any, name string) appsv1.DaemonSet {
	t.Helper()
	for _, set := range decode[appsv1.DaemonSet](t, values, "DaemonSet") {
		if set.Name == name {
			return set
		}
	}
	t.Fatalf("no DaemonSet %s", name)
	return appsv1.DaemonSet{}
}

func TestNodePluginHasNoCredentialsAndOnlyDisks(t *testing.T) {
	set := daemonSet(t, preset(t, "minimal", ""), "topodisk-node")
	pod := set.Spec.Template.Spec
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || *pod.AutomountServiceAccountToken {
		t.Error("the Pod shares namespaces with its node, or every container gets a token")
	}
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	driver := pod.Containers[0]
	if s := driver.SecurityContext; !*s.Privileged || !*s.ReadOnlyRootFilesystem {
		t.Errorf("security context %v", s)
	}
	both := corev1.MountPropagationBidirectional
	want := []corev1.VolumeMount{
		{Name: "kubelet", MountPath: "/var/lib/kubelet", MountPropagation: &both}, {Name: "dev", MountPath: "/dev"}, {Name: "run", MountPath: "/run"},
		{Name: "api-token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
	}
	if diff := cmp.Diff(want, driver.VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	paths := map[string]string{}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			t.Errorf("the node plugin gets Secret %s", v.Secret.SecretName)
		}
		if v.HostPath != nil {
			paths[v.Name] = v.HostPath.Path
		}
	}
	if diff := cmp.Diff(map[string]string{"kubelet": "/var/lib/kubelet", "dev": "/dev"}, paths); diff != "" {
		t.Errorf("paths of the node (-want +got):\n%s", diff)
	}
	if len(driver.Env) != 1 || driver.Env[0].ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
		t.Errorf("environment: %v", driver.Env)
	}
	for _, want := range []string{"--mode=node", "--node-name=$(NODE_NAME)", "--endpoint=unix:///var/lib/kubelet/plugins/diskplugin.csi.alibabacloud.com/csi.sock"} {
		if !slices.Contains(driver.Args, want) {
			t.Errorf("no %s in %v", want, driver.Args)
		}
	}
}

// The kubelet must not kill a plugin that still waits for the volumes of a drained node.
func TestNodePluginMayWaitAsLongAsItIsTold(t *testing.T) {
	for timeout, want := range map[string]int64{"5m": 330, "1h1m1s": 3691, "90s": 120} {
		set := daemonSet(t, preset(t, "minimal", "{nodePlugin: {drainTimeout: "+timeout+"}}"), "topodisk-node")
		if got := *set.Spec.Template.Spec.TerminationGracePeriodSeconds; got != want {
			t.Errorf("drain timeout %s: grace period %d s, want %d", timeout, got, want)
		}
	}
}

// A group that says how many volumes its nodes take says it for itself alone.
func TestGroupsOfNodesHaveLimitsOfTheirOwn(t *testing.T) {
	values := preset(t, "full", "")
	for name, want := range map[string]string{"topodisk-node-system": "--reserved-attachments=2", "topodisk-node-gpu": "--volume-attach-limit=5"} {
		var got []string
		for _, arg := range daemonSet(t, values, name).Spec.Template.Spec.Containers[0].Args {
			if strings.HasPrefix(arg, "--reserved-attachments") || strings.HasPrefix(arg, "--volume-attach-limit") {
				got = append(got, arg)
			}
		}
		if !slices.Equal(got, []string{want}) {
			t.Errorf("%s has %v, want %s alone", name, got, want)
		}
	}
}

func TestGroupsOfNodesHaveDaemonSetsOfTheirOwn(t *testing.T) {
	values := preset(t, "full", "")
	system, gpu := daemonSet(t, values, "topodisk-node-system"), daemonSet(t, values, "topodisk-node-gpu")
	if cmp.Equal(system.Spec.Selector, gpu.Spec.Selector) {
		t.Errorf("both select the same Pods: %v", system.Spec.Selector)
	}
	want := map[string]string{"kubernetes.io/os": "linux", "example.com/disks": "true", "example.com/pool": "gpu"}
	if diff := cmp.Diff(want, gpu.Spec.Template.Spec.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got):\n%s", diff)
	}
	if args := gpu.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--kubelet-dir=/data/kubelet") || !slices.Contains(args, "--v=5") {
		t.Errorf("flags of the group: %v", args)
	}
	if args := system.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--kubelet-dir=/var/lib/k0s/kubelet") || !slices.Contains(args, "--v=4") {
		t.Errorf("flags of a group without its own: %v", args)
	}
}

// A serial instance stands idle while the disks whose turn it is wait for their retry.
func TestAttachesAreRetriedSoon(t *testing.T) {
	args := container(t, controllerPod(t, preset(t, "minimal", "")), "csi-attacher").Args
	for _, flag := range []string{"--retry-interval-max=1m", "--timeout=2m", "--leader-election=true", "--default-fstype=ext4"} {
		if !slices.Contains(args, flag) {
			t.Errorf("csi-attacher runs without %s: %v", flag, args)
		}
	}
}

// Whoever takes part in a leader election does so with the same times: the Pod's containers are lost together.
func TestLeadersAreReplacedAfterTheSameTime(t *testing.T) {
	flags := []string{"--leader-election=true", "--leader-election-namespace=kube-system",
		"--leader-election-lease-duration=1m15s", "--leader-election-renew-deadline=60s", "--leader-election-retry-period=13s"}
	pod := controllerPod(t, preset(t, "full", ""))
	for _, name := range []string{"csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter"} {
		args := container(t, pod, name).Args
		for _, flag := range flags {
			if !slices.Contains(args, flag) {
				t.Errorf("%s runs without %s: %v", name, flag, args)
			}
		}
	}
}

func TestCredentialsFilesHaveTheNamesDiskDriverReads(t *testing.T) {
	pod := controllerPod(t, preset(t, "beside-incumbent", ""))
	driver := container(t, pod, "disk-driver")
	if at := driver.VolumeMounts[1].MountPath; !slices.Contains(driver.Args, "--credentials-dir="+at) || !strings.HasSuffix(at, "/csi-access-key") {
		t.Errorf("credentials are mounted at %s, which is not what --credentials-dir says or does not end in the Secret's name: %v", at, driver.Args)
	}
	var secret *corev1.SecretVolumeSource
	for _, v := range pod.Volumes {
		if v.Name == "credentials" {
			secret = v.Secret
		}
	}
	// The files are called what the keys are, for errors name the files.
	if !slices.Contains(driver.Args, "--credentials-files=id,secret,security-token") {
		t.Errorf("disk-driver is not told what the files are called: %v", driver.Args)
	}
	mode, optional := int32(0o440), true
	want := &corev1.SecretVolumeSource{
		SecretName: "csi-access-key", DefaultMode: &mode, Optional: &optional,
		Items: []corev1.KeyToPath{
			{Key: "id", Path: "id"},
			{Key: "secret", Path: "secret"},
			{Key: "security-token", Path: "security-token"},
		},
	}
	if diff := cmp.Diff(want, secret); diff != "" {
		t.Errorf("credentials (-want +got):\n%s", diff)
	}
}

func TestSeedFlagsAreTheDefaults(t *testing.T) {
	args := container(t, controllerPod(t, preset(t, "minimal", "")), "csi-provisioner").Args
	for _, flag := range []string{
		"--volume-name-prefix=disk", "--strict-topology=true", "--timeout=150s", "--retry-interval-start=500ms",
		"--leader-election=true", "--leader-election-namespace=kube-system", "--pv-name-source=volume-id",
	} {
		if !slices.Contains(args, flag) {
			t.Errorf("csi-provisioner runs without %s: %v", flag, args)
		}
	}
}

func TestProbesAskPortsThatTheProgramsListenOn(t *testing.T) {
	for _, name := range []string{"minimal", "full"} {
		for _, c := range controllerPod(t, preset(t, name, "")).Containers {
			if len(c.Ports) != 1 || !slices.Contains(c.Args, fmt.Sprintf("--http-endpoint=:%d", c.Ports[0].ContainerPort)) {
				t.Errorf("preset %s: port of %s is %v, its flags are %v", name, c.Name, c.Ports, c.Args)
			}
			for kind, probe := range probes(c) {
				if probe.HTTPGet == nil || probe.HTTPGet.Port.StrVal != c.Ports[0].Name {
					t.Errorf("preset %s: the %s probe of %s does not ask its port: %v", name, kind, c.Name, probe)
				}
			}
			if c.LivenessProbe == nil {
				t.Errorf("preset %s: nothing notices when %s hangs", name, c.Name)
			}
		}
	}
}

// Kubernetes' sidecars answer nobody until disk-driver is ready, which it is not while its credentials are wrong: to be
// restarted over and over would only make them come late once they are right.
func TestSidecarsMayWaitForTheDriver(t *testing.T) {
	sidecars := 0
	for _, name := range []string{"full", "upstream-provisioner"} {
		for _, c := range controllerPod(t, preset(t, name, "")).Containers {
			probe := c.StartupProbe
			if own := len(c.Command) > 0; own {
				if probe != nil {
					t.Errorf("preset %s: %s answers at once and needs no startup probe", name, c.Name)
				}
				continue
			}
			sidecars++
			if probe == nil || time.Duration(probe.PeriodSeconds*probe.FailureThreshold)*time.Second < 24*time.Hour {
				t.Errorf("preset %s: %s is restarted while it waits: %v", name, c.Name, probe)
			}
		}
	}
	if sidecars < 5 {
		t.Errorf("only %d sidecars were found", sidecars)
	}
}

// rules returns what a role allows as lines: group/resource[names]: verbs.
func rules(rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				lines = append(lines, fmt.Sprintf("%s/%s%v: %s", group, resource, rule.ResourceNames, strings.Join(rule.Verbs, " ")))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func TestAccountsMayDoWhatTheyNeedAndNoMore(t *testing.T) {
	values := preset(t, "minimal", "{rbac: {provisionerSecrets: [{namespace: storage, names: [ecs-parameters]}, {namespace: tenants, names: ['*']}]}}")
	got := map[string][]string{}
	for _, role := range decode[rbacv1.ClusterRole](t, values, "ClusterRole") {
		got[role.Name] = rules(role.Rules)
	}
	for _, role := range decode[rbacv1.Role](t, values, "Role") {
		got[role.Namespace+"/"+role.Name] = rules(role.Rules)
	}
	want := map[string][]string{
		"topodisk-provisioner": {
			"/events[]: create patch",
			"/nodes[]: get list watch",
			"/persistentvolumeclaims[]: get list watch patch",
			"/persistentvolumes[]: get list watch create delete patch",
			"/pods[]: list watch",
			"snapshot.storage.k8s.io/volumesnapshotcontents[]: get watch",
			"snapshot.storage.k8s.io/volumesnapshots[]: get list watch patch",
			"storage.k8s.io/csidrivers[diskplugin.csi.alibabacloud.com]: get patch",
			"storage.k8s.io/csinodes[]: list watch",
			"storage.k8s.io/storageclasses[]: get list watch",
			"storage.k8s.io/volumeattachments[]: list watch",
			"storage.k8s.io/volumeattributesclasses[]: get watch",
		},
		"kube-system/topodisk-journal": {
			"/configmaps[]: create",
			"/configmaps[" + strings.Join(journalShards(), " ") + "]: get update patch",
		},
		"kube-system/topodisk-capacities": {
			"/pods[]: get",
			"apps/replicasets[]: get",
			"storage.k8s.io/csistoragecapacities[]: list watch create update delete",
		},
		"kube-system/topodisk-leader-election": {
			"coordination.k8s.io/leases[]: create",
			"coordination.k8s.io/leases[diskplugin-csi-alibabacloud-com]: get update watch",
		},
		"topodisk-node-facts": {"/nodes[]: list watch patch"},
		"kube-system/topodisk-node-facts": {
			"coordination.k8s.io/leases[]: create",
			"coordination.k8s.io/leases[topodisk-node-facts-diskplugin-csi-alibabacloud-com]: get update watch",
		},
		"kube-system/topodisk-driver": {"/events[]: create patch"},
		"topodisk-adoption":           {"/persistentvolumes[]: list"},
		"topodisk-attacher": {
			"/persistentvolumes[]: list watch patch",
			"storage.k8s.io/csinodes[]: list watch",
			"storage.k8s.io/volumeattachments/status[]: patch",
			"storage.k8s.io/volumeattachments[]: list watch patch",
		},
		"kube-system/topodisk-attacher": {
			"/events[]: create patch", // that it leads
			"coordination.k8s.io/leases[]: create",
			"coordination.k8s.io/leases[external-attacher-leader-diskplugin-csi-alibabacloud-com]: get update",
		},
		"topodisk-resizer": {
			"/events[]: create patch",
			"/persistentvolumeclaims/status[]: patch",
			"/persistentvolumeclaims[]: list watch",
			"/persistentvolumes[]: list watch patch",
			"storage.k8s.io/volumeattributesclasses[]: list watch",
		},
		"kube-system/topodisk-resizer": {
			"coordination.k8s.io/leases[]: create",
			"coordination.k8s.io/leases[external-resizer-diskplugin-csi-alibabacloud-com]: get update",
		},
		"topodisk-node": {
			"/events[]: create patch", "/nodes[]: get list watch patch", "/persistentvolumes[]: get",
			"storage.k8s.io/csinodes[]: list watch",
			"storage.k8s.io/volumeattachments[]: get",
		},
		"storage/topodisk-provisioner-secrets": {"/secrets[ecs-parameters]: get watch"},
		"tenants/topodisk-provisioner-secrets": {"/secrets[]: get watch"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// journalShards are the names of the ConfigMaps that disk-provisioner keeps its journal in.
func journalShards() []string {
	var names []string
	for n := range 32 {
		names = append(names, fmt.Sprintf("topodisk-journal-diskplugin-csi-alibabacloud-com-%d", n))
	}
	return names
}

// Another driver's provisioner has its Lease in kube-system, where topodisk's own Lease is unless it is installed elsewhere.
func TestElsewhereTheLeaseOfKubeSystemIsRead(t *testing.T) {
	const right = "  - apiGroups: [coordination.k8s.io]\n    resources: [leases]\n    resourceNames: [diskplugin-csi-alibabacloud-com]\n    verbs: [get]\n"
	for namespace, want := range map[string]bool{"kube-system": false, "storage": true} {
		manifests, _, err := Render(repo, preset(t, "minimal", ""), Release{Name: "topodisk", Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(manifests, right); got != want {
			t.Errorf("in %s it may read the Lease of kube-system: %v, want %v", namespace, got, want)
		}
	}
}

func TestEveryRoleIsBoundToTheAccountThatNeedsIt(t *testing.T) {
	values := preset(t, "full", "")
	roles, bound := map[string]bool{}, map[string]bool{}
	for _, role := range decode[rbacv1.ClusterRole](t, values, "ClusterRole") {
		roles["/"+role.Name] = true
	}
	for _, role := range decode[rbacv1.Role](t, values, "Role") {
		roles[role.Namespace+"/"+role.Name] = true
	}
	subjects := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "kube-system"}}
	}
	want := subjects(controllerPod(t, values).ServiceAccountName)
	node := subjects(daemonSet(t, values, "topodisk-node-gpu").Spec.Template.Spec.ServiceAccountName)
	for _, b := range decode[rbacv1.ClusterRoleBinding](t, values, "ClusterRoleBinding") {
		bound["/"+b.RoleRef.Name] = cmp.Equal(b.Subjects, want) && b.RoleRef.Name != "topodisk-node" || cmp.Equal(b.Subjects, node) && b.RoleRef.Name == "topodisk-node"
	}
	for _, b := range decode[rbacv1.RoleBinding](t, values, "RoleBinding") {
		bound[b.Namespace+"/"+b.RoleRef.Name] = cmp.Equal(b.Subjects, want)
	}
	if diff := cmp.Diff(roles, bound); diff != "" {
		t.Errorf("roles (-made +bound to the controller):\n%s", diff)
	}
	accounts := decode[corev1.ServiceAccount](t, values, "ServiceAccount")
	if len(accounts) != 2 || accounts[0].Name != want[0].Name || accounts[1].Name != node[0].Name {
		t.Errorf("ServiceAccounts are %v, want %s and %s", accounts, want[0].Name, node[0].Name)
	}
}

// On a cluster whose nodes all have the startup taint the node plugins wait for what the controller writes on their Nodes.
func TestControllerRunsOnNodesThatWaitForTheirPlugin(t *testing.T) {
	startup := corev1.Toleration{Key: "topodisk.io/agent-not-ready", Operator: corev1.TolerationOpExists}
	system := corev1.Toleration{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}
	own := corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}
	values := preset(t, "minimal", "controller: {tolerations: [{key: dedicated, operator: Exists}]}")
	for name, want := range map[string]struct {
		values      map[string]any
		tolerations []corev1.Toleration
	}{
		"by default":       {preset(t, "minimal", ""), []corev1.Toleration{startup, system}},
		"and what is told": {values, []corev1.Toleration{startup, own}},
	} {
		if diff := cmp.Diff(want.tolerations, controllerPod(t, want.values).Tolerations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDisruptionBudgetIsMadeForSeveralReplicasOnly(t *testing.T) {
	for replicas, want := range map[int]int{1: 0, 2: 1, 3: 1} {
		for _, name := range []string{"replicaCount", "replicas"} { // the name, and the former one
			values := preset(t, "minimal", fmt.Sprintf("controller: {%s: %d}", name, replicas))
			if got := decode[policyv1.PodDisruptionBudget](t, values, "PodDisruptionBudget"); len(got) != want {
				t.Errorf("%d PodDisruptionBudgets for %s %d, want %d", len(got), name, replicas, want)
			}
		}
	}
}

// Whatever disk-driver is told to call, the NetworkPolicy lets out.
func TestNetworkPolicyAllowsWhatIsCalled(t *testing.T) {
	const role = "credentials: {source: ram-role, existingSecret: ''}"
	for name, c := range map[string]struct{ over, want string }{
		"by default":                {"", "53/UDP 53 443 6443"},
		"API server":                {"networkPolicy: {apiServerPorts: [8443]}", "53/UDP 53 443 8443"},
		"ECS over HTTP":             {"ecsEndpoint: http://ecs.example.com", "53/UDP 53 443 6443 80"},
		"ECS over HTTPS":            {"ecsEndpoint: https://ecs.example.com", "53/UDP 53 443 6443"},
		"ECS and STS with ports":    {"{ecsEndpoint: 'ecs.example.com:8080', stsEndpoint: 'http://sts.example.com:8081'}", "53/UDP 53 443 6443 8080 8081"},
		"STS over HTTP":             {"stsEndpoint: http://sts.example.com", "53/UDP 53 443 6443 80"},
		"proxy over HTTP":           {"proxy: {http_proxy: 'http://proxy.example.com/'}", "53/UDP 53 443 6443 80"},
		"proxy without a scheme":    {"proxy: {https_proxy: proxy.example.com}", "53/UDP 53 443 6443 80"},
		"proxy over HTTPS":          {"proxy: {http_proxy: 'https://proxy.example.com'}", "53/UDP 53 443 6443"},
		"proxies with ports":        {"proxy: {http_proxy: 'http://[fd00::1]:3128/', https_proxy: 'http://user:1@proxy.example.com:3129'}", "53/UDP 53 443 6443 3128 3129"},
		"metadata service":          {role, "53/UDP 53 443 6443; 80 to 100.100.100.200/32"},
		"another metadata service":  {"{metadataEndpoint: 'http://169.254.169.254:8080', " + role + "}", "53/UDP 53 443 6443; 8080 to 169.254.169.254/32"},
		"metadata over HTTPS":       {"{metadataEndpoint: 'https://100.100.100.200', " + role + "}", "53/UDP 53 443 6443; 443 to 100.100.100.200/32"},
		"metadata service by name":  {"{metadataEndpoint: metadata.example.com, " + role + "}", "53/UDP 53 443 6443; 80"},
		"metadata service not used": {"metadataEndpoint: 'http://169.254.169.254:8080'", "53/UDP 53 443 6443"},
	} {
		t.Run(name, func(t *testing.T) {
			policies := decode[networkingv1.NetworkPolicy](t, chartutil.CoalesceTables(preset(t, "minimal", c.over),
				map[string]any{"networkPolicy": map[string]any{"enabled": true}}), "NetworkPolicy")
			if got := egress(policies[0]); got != c.want {
				t.Errorf("allowed is %q, want %q", got, c.want)
			}
		})
	}
}

// Without networkPolicy.from everybody may connect to the ports; with it nobody else.
func TestNetworkPolicyAdmitsWhomItNames(t *testing.T) {
	for from, want := range map[string]int{"[]": 0, "[{ipBlock: {cidr: 10.0.0.0/8}}, {podSelector: {matchLabels: {a: b}}, namespaceSelector: {}}]": 2} {
		policies := decode[networkingv1.NetworkPolicy](t, preset(t, "minimal", "{networkPolicy: {enabled: true, from: "+from+"}}"), "NetworkPolicy")
		if len(policies) != 2 {
			t.Fatalf("%d policies", len(policies))
		}
		for _, p := range policies {
			if len(p.Spec.Ingress) != 1 || len(p.Spec.Ingress[0].From) != want || len(p.Spec.Ingress[0].Ports) == 0 {
				t.Errorf("from %s: %s admits %+v", from, p.Name, p.Spec.Ingress)
			}
		}
	}
}

// The node plugin has the right to patch Nodes only with the policy that narrows it, and knows when it has none.
func TestNodesArePatchedUnderAPolicy(t *testing.T) {
	for _, may := range []bool{true, false} {
		values := preset(t, "minimal", fmt.Sprintf("nodePlugin: {patchNode: %t}", may))
		policies := decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, values, "ValidatingAdmissionPolicy")
		bindings := decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, values, "ValidatingAdmissionPolicyBinding")
		granted := false
		for _, role := range decode[rbacv1.ClusterRole](t, values, "ClusterRole") {
			for _, rule := range role.Rules {
				granted = granted || role.Name == "topodisk-node" && slices.Contains(rule.Resources, "nodes") && slices.Contains(rule.Verbs, "patch")
			}
		}
		args := daemonSet(t, values, "topodisk-node").Spec.Template.Spec.Containers[0].Args
		told := slices.Contains(args, "--remove-startup-taint=false")
		if len(policies) == 1 != may || len(bindings) == 1 != may || granted != may || told == may {
			t.Errorf("patchNode=%t: %d policies, %d bindings, granted=%t, told=%t", may, len(policies), len(bindings), granted, told)
		}
	}
}

// egress writes a policy's egress rules as ports and addresses.
func egress(policy networkingv1.NetworkPolicy) string {
	var rules []string
	for _, rule := range policy.Spec.Egress {
		var words []string
		for _, port := range rule.Ports {
			word := port.Port.String()
			if port.Protocol != nil {
				word += "/" + string(*port.Protocol)
			}
			words = append(words, word)
		}
		for _, to := range rule.To {
			words = append(words, "to", to.IPBlock.CIDR)
		}
		rules = append(rules, strings.Join(words, " "))
	}
	return strings.Join(rules, "; ")
}

func TestCSIDriverSaysWhatKubernetesMustKnow(t *testing.T) {
	yes, no, minute, file := true, false, int64(60), storagev1.FileFSGroupPolicy
	want := storagev1.CSIDriverSpec{
		AttachRequired: &yes, PodInfoOnMount: &no, FSGroupPolicy: &file, SELinuxMount: &no, NodeAllocatableUpdatePeriodSeconds: &minute,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
	}
	drivers := decode[storagev1.CSIDriver](t, preset(t, "minimal", ""), "CSIDriver")
	if len(drivers) != 1 || drivers[0].Name != "diskplugin.csi.alibabacloud.com" {
		t.Fatalf("CSIDrivers are %v", drivers)
	}
	if diff := cmp.Diff(want, drivers[0].Spec); diff != "" {
		t.Errorf("CSIDriver (-want +got):\n%s", diff)
	}
	old, _, err := Render(repo, preset(t, "full", "volumeAttributesClasses: []"),
		Release{Name: "topodisk", Namespace: "kube-system", Kubernetes: oldestKubernetes})
	if err != nil || strings.Contains(old, "nodeAllocatableUpdatePeriodSeconds") || strings.Contains(old, "preventPodSchedulingIfMissing") {
		t.Errorf("Kubernetes 1.31 is sent fields that it does not know, or %v", err)
	}
	if got := decode[storagev1.CSIDriver](t, preset(t, "beside-incumbent", ""), "CSIDriver"); len(got) != 0 {
		t.Errorf("csiDriver.create is false, yet there is %v", got)
	}
}

func TestDefaultClassWaitsForThePodAndStaysInItsZone(t *testing.T) {
	classes := decode[storagev1.StorageClass](t, preset(t, "minimal", ""), "StorageClass")
	if len(classes) != 1 {
		t.Fatalf("%d StorageClasses, want 1", len(classes))
	}
	class := classes[0]
	if *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer || class.Parameters["topodisk.io/strict-topology"] != "true" {
		t.Errorf("the class binds %s with %v", *class.VolumeBindingMode, class.Parameters)
	}
	if class.Provisioner != "diskplugin.csi.alibabacloud.com" || !*class.AllowVolumeExpansion {
		t.Errorf("provisioner is %s, expansion %v", class.Provisioner, *class.AllowVolumeExpansion)
	}
	if _, ok := class.Annotations["storageclass.kubernetes.io/is-default-class"]; ok {
		t.Error("the class makes itself the cluster's default")
	}
}

func TestClassesOfSnapshotsAndAttributesAreOfTheDriver(t *testing.T) {
	values := preset(t, "full", "")
	snapshots := decode[snapshotv1.VolumeSnapshotClass](t, values, "VolumeSnapshotClass")
	if len(snapshots) != 2 || snapshots[0].Driver != "disk.example.com" || snapshots[0].DeletionPolicy != snapshotv1.VolumeSnapshotContentRetain ||
		snapshots[0].Annotations["snapshot.storage.kubernetes.io/is-default-class"] != "true" || snapshots[1].DeletionPolicy != snapshotv1.VolumeSnapshotContentDelete {
		t.Errorf("VolumeSnapshotClasses: %v", snapshots)
	}
	attributes := decode[storagev1.VolumeAttributesClass](t, values, "VolumeAttributesClass")
	if len(attributes) != 1 || attributes[0].DriverName != "disk.example.com" || attributes[0].Parameters["performanceLevel"] != "PL2" {
		t.Errorf("VolumeAttributesClasses: %v", attributes)
	}
}

// Examples that name a class or a driver which nobody makes would wait for ever.
func TestExamplesUseClassesThatExist(t *testing.T) {
	manifests, err := Manifests(repo)
	if err != nil {
		t.Fatal(err)
	}
	classes := map[string]bool{}
	var used []string
	for file, objects := range manifests {
		for _, object := range objects {
			switch object.GetKind() {
			case "StorageClass":
				classes[object.GetName()] = true
			case "PersistentVolumeClaim":
				if class := className(t, file, object.Object); class != "" { // a claim of a disk that is there has none
					used = append(used, class)
				}
			case "StatefulSet":
				var set appsv1.StatefulSet
				if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &set, true); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				for _, claim := range set.Spec.VolumeClaimTemplates {
					used = append(used, *claim.Spec.StorageClassName)
				}
			}
		}
	}
	if len(used) < 4 {
		t.Errorf("only %d claims in the examples: %v", len(used), used)
	}
	for _, class := range used {
		if !classes[class] {
			t.Errorf("an example uses StorageClass %s; there are %v", class, Names(classes))
		}
	}
}

func className(t *testing.T, file string, object map[string]any) string {
	t.Helper()
	var claim corev1.PersistentVolumeClaim
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, &claim, true); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return *claim.Spec.StorageClassName
}
