package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	want := map[string][]string{"disk-driver": {"socket", "credentials", "api-token"}, "csi-provisioner": {"socket", "api-token"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	without := preset(t, "minimal", "{diskDriver: {nodeFacts: false}}")
	if got := mounts(container(t, controllerPod(t, without), "disk-driver")); slices.Contains(got, "api-token") {
		t.Errorf("disk-driver has a token of the API server, which it doesn't need: %v", got)
	}
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

func TestCredentialsAreFilesWithTheNamesThatDiskDriverReads(t *testing.T) {
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
	mode, optional := int32(0o440), true
	want := &corev1.SecretVolumeSource{
		SecretName: "csi-access-key", DefaultMode: &mode, Optional: &optional,
		Items: []corev1.KeyToPath{
			{Key: "id", Path: "access-key-id"},
			{Key: "secret", Path: "access-key-secret"},
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

func TestProvisionerMayDoWhatItNeedsAndNoMore(t *testing.T) {
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
			"/pods[]: list",
			"snapshot.storage.k8s.io/volumesnapshotcontents[]: get watch",
			"snapshot.storage.k8s.io/volumesnapshots[]: get list watch patch",
			"storage.k8s.io/csidrivers[diskplugin.csi.alibabacloud.com]: get patch",
			"storage.k8s.io/csinodes[]: get list watch",
			"storage.k8s.io/storageclasses[]: get list watch",
			"storage.k8s.io/volumeattachments[]: get list watch",
			"storage.k8s.io/volumeattributesclasses[]: get watch",
		},
		"kube-system/topodisk-journal": {
			"/configmaps[]: create",
			"/configmaps[" + strings.Join(journalPages(), " ") + "]: get update",
		},
		"kube-system/topodisk-capacities": {
			"/pods[]: get",
			"apps/replicasets[]: get",
			"storage.k8s.io/csistoragecapacities[]: get list watch create update delete",
		},
		"kube-system/topodisk-leader-election": {
			"coordination.k8s.io/leases[]: create",
			"coordination.k8s.io/leases[diskplugin-csi-alibabacloud-com]: get update watch",
		},
		"topodisk-node-facts": {"/nodes[]: list watch patch"},
		"kube-system/topodisk-node-facts": {
			"coordination.k8s.io/leases[]: create",
			"coordination.k8s.io/leases[topodisk-node-facts-diskplugin-csi-alibabacloud-com]: get update",
		},
		"storage/topodisk-provisioner-secrets": {"/secrets[ecs-parameters]: get watch"},
		"tenants/topodisk-provisioner-secrets": {"/secrets[]: get watch"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// journalPages are the names of the ConfigMaps that disk-provisioner keeps its journal in.
func journalPages() []string {
	var names []string
	for n := range 8 {
		names = append(names, fmt.Sprintf("topodisk-journal-diskplugin-csi-alibabacloud-com-%d", n))
	}
	return names
}

func TestEveryRoleIsBoundToTheController(t *testing.T) {
	values := preset(t, "full", "")
	roles, bound := map[string]bool{}, map[string]bool{}
	for _, role := range decode[rbacv1.ClusterRole](t, values, "ClusterRole") {
		roles["/"+role.Name] = true
	}
	for _, role := range decode[rbacv1.Role](t, values, "Role") {
		roles[role.Namespace+"/"+role.Name] = true
	}
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: controllerPod(t, values).ServiceAccountName, Namespace: "kube-system"}}
	for _, b := range decode[rbacv1.ClusterRoleBinding](t, values, "ClusterRoleBinding") {
		bound["/"+b.RoleRef.Name] = cmp.Equal(b.Subjects, want)
	}
	for _, b := range decode[rbacv1.RoleBinding](t, values, "RoleBinding") {
		bound[b.Namespace+"/"+b.RoleRef.Name] = cmp.Equal(b.Subjects, want)
	}
	if diff := cmp.Diff(roles, bound); diff != "" {
		t.Errorf("roles (-made +bound to the controller):\n%s", diff)
	}
	accounts := decode[corev1.ServiceAccount](t, values, "ServiceAccount")
	if len(accounts) != 1 || accounts[0].Name != want[0].Name {
		t.Errorf("ServiceAccounts are %v, want one named %s", accounts, want[0].Name)
	}
}

func TestDisruptionBudgetIsMadeForSeveralReplicasOnly(t *testing.T) {
	for replicas, want := range map[int]int{1: 0, 2: 1, 3: 1} {
		values := preset(t, "minimal", fmt.Sprintf("controller: {replicas: %d}", replicas))
		if got := decode[policyv1.PodDisruptionBudget](t, values, "PodDisruptionBudget"); len(got) != want {
			t.Errorf("%d PodDisruptionBudgets for %d replicas, want %d", len(got), replicas, want)
		}
	}
}

func TestCSIDriverSaysWhatKubernetesMustKnow(t *testing.T) {
	yes, no, file := true, false, storagev1.FileFSGroupPolicy
	want := storagev1.CSIDriverSpec{
		AttachRequired: &yes, PodInfoOnMount: &no, StorageCapacity: &no, FSGroupPolicy: &file,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
	}
	drivers := decode[storagev1.CSIDriver](t, preset(t, "minimal", ""), "CSIDriver")
	if len(drivers) != 1 || drivers[0].Name != "diskplugin.csi.alibabacloud.com" {
		t.Fatalf("CSIDrivers are %v", drivers)
	}
	if diff := cmp.Diff(want, drivers[0].Spec); diff != "" {
		t.Errorf("CSIDriver (-want +got):\n%s", diff)
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
	if class.Provisioner != "diskplugin.csi.alibabacloud.com" || *class.AllowVolumeExpansion {
		t.Errorf("provisioner is %s, expansion %v, which nothing answers yet", class.Provisioner, *class.AllowVolumeExpansion)
	}
	if _, ok := class.Annotations["storageclass.kubernetes.io/is-default-class"]; ok {
		t.Error("the class makes itself the cluster's default")
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
				used = append(used, className(t, file, object.Object))
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
