package collect

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/topodisk/topodisk/explain"
)

// secret stands wherever users and programs put keys.
const secret = "s3cr3t"

// withSecrets plants the secret in everything that an object's metadata has room for.
func withSecrets(meta *metav1.ObjectMeta) {
	meta.Annotations = map[string]string{
		corev1.LastAppliedConfigAnnotation: secret, "example.com/token": secret, "password": secret, "notkubernetes.io/password": secret,
		"volume.kubernetes.io/selected-node": "node-1",
	}
	meta.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: secret, FieldsV1: metav1.NewFieldsV1(secret)}}
}

// secretScene is the scene with secrets in every object that is read.
func secretScene(t *testing.T) scene {
	t.Helper()
	container := corev1.Container{
		Name: "main", Command: []string{"run", "--password=" + secret}, Args: []string{secret},
		Env:       []corev1.EnvVar{{Name: "PASSWORD", Value: secret}},
		Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{secret}}}},
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: secret}},
		}}},
	}
	terminated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: secret, ExitCode: 1}}
	p := pod("db-0", "node-1", "data-db-0")
	p.Spec.InitContainers, p.Spec.Containers = []corev1.Container{container}, []corev1.Container{container}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(container)}}
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "other.csi", VolumeAttributes: map[string]string{"key": secret}}}},
		corev1.Volume{Name: "flex", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Options: map[string]string{"key": secret}}}},
		corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"example.com/token": secret}},
		}}}})
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: terminated, LastTerminationState: terminated}}
	p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses = p.Status.ContainerStatuses, p.Status.ContainerStatuses

	files := volume("files", "shop", "data-db-0")
	files.Spec.CSI.Driver, files.Spec.CSI.VolumeAttributes = "other.csi", map[string]string{"akSecret": secret}
	flex := volume("flex", "shop", "data-db-0")
	flex.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{Options: map[string]string{"key": secret}}}
	foreign := class("files", "other.csi")
	foreign.Parameters = map[string]string{"restUserKey": secret}
	attached := attachment("files", "files", "node-1")
	attached.Spec.Attacher, attached.Status.AttachmentMetadata = "other.csi", map[string]string{"key": secret}
	snapshotted := claim("data-db-0", "d-0", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "nightly"}
	})
	objects := []runtime.Object{
		node("node-1"), csiNodeOf("node-1"), &storagev1.CSIDriver{ObjectMeta: named("", driver)}, foreign, class("disks", driver), snapshotted,
		volume("d-0", "shop", "data-db-0"), files, flex, attached, attachment("va-0", "d-0", "node-1"), p, leaseOf("kube-system", "diskplugin-csi-alibabacloud-com"),
		&storagev1.CSIStorageCapacity{ObjectMeta: named("kube-system", "disks-all")}, eventOf("Pod", "shop", "db-0", "Scheduled"),
		&corev1.Secret{ObjectMeta: named("kube-system", "topodisk-credentials"), Data: map[string][]byte{"access-key-secret": []byte(secret)}},
	}
	for _, o := range objects {
		meta := named(o.(metav1.Object).GetNamespace(), o.(metav1.Object).GetName())
		withSecrets(&meta)
		o.(metav1.Object).SetAnnotations(meta.Annotations)
		o.(metav1.Object).SetManagedFields(meta.ManagedFields)
	}
	s := unstructuredOf("VolumeSnapshot", "shop", "nightly", map[string]any{"spec": map[string]any{"source": secret}})
	s.SetAnnotations(map[string]string{"example.com/token": secret, corev1.LastAppliedConfigAnnotation: secret})
	return scene{kubefake.NewClientset(objects...), fake.NewSimpleDynamicClient(runtime.NewScheme(), []runtime.Object{s}...)}
}

// A dump can be sent to a stranger.
func TestADumpHasNoSecret(t *testing.T) {
	for _, subject := range []explain.Ref{
		{Kind: Pod, Namespace: "shop", Name: "db-0"}, {Kind: Claim, Namespace: "shop", Name: "data-db-0"}, {Kind: Volume, Name: "d-0"},
		{Kind: Volume, Name: "files"}, {Kind: Node, Name: "node-1"}, {Kind: VolumeAttachment, Name: "va-0"},
	} {
		f := facts(t, secretScene(t), subject)
		var dump bytes.Buffer
		if err := WriteDump(&dump, f); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(dump.String()) {
			if strings.Contains(line, secret) {
				t.Errorf("%v: %s", subject, line)
			}
		}
		for _, kept := range []string{"volume.kubernetes.io/selected-node: node-1", "type: cloud_essd"} {
			if !strings.Contains(dump.String(), kept) {
				t.Errorf("%v: the dump has no %q", subject, kept)
			}
		}
		if strings.Contains(dump.String(), "managedFields") {
			t.Errorf("%v: the dump has managed fields", subject)
		}
	}
}

func TestADumpIsReadAsItWasWritten(t *testing.T) {
	for _, subject := range subjects {
		s := newScene(t)
		f := facts(t, s, subject.ref)
		var dump bytes.Buffer
		if err := WriteDump(&dump, f); err != nil {
			t.Fatal(err)
		}
		again, err := ReadDump(&dump)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, again, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(0)); diff != "" {
			t.Errorf("%v (-read +dumped):\n%s", subject.ref, diff)
		}
	}
}

func TestWhatIsNoDumpIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":              "it is no dump of facts: subject is \"\" \"\"",
		"nodes: 3":      "it is no dump of facts: error unmarshaling JSON",
		"kind: Pod":     "it is no dump of facts: subject is",
		"[":             "it is no dump of facts: error converting YAML",
		"at: yesterday": "it is no dump of facts: ",
		"subject: {kind: Job, name: x}\nat: 2026-01-01T00:00:00Z": "it is no dump of facts: subject is \"Job\" \"x\"",
		"subject: {kind: Pod}\nat: 2026-01-01T00:00:00Z":          "it is no dump of facts: subject is \"Pod\" \"\"",
	} {
		if _, err := ReadDump(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
