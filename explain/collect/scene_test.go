package collect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/provisioner/request"
)

const driver = "diskplugin.csi.alibabacloud.com"

// scene is a cluster in memory. It takes no selectors into account.
type scene struct {
	kube    *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
}

func (s scene) clients() Clients { return Clients{Kube: s.kube, Dynamic: s.dynamic} }

// requests returns what was asked for, as "verb resource".
func (s scene) requests() []string {
	var all []string
	for _, a := range slices.Concat(s.kube.Actions(), s.dynamic.Actions()) {
		all = append(all, a.GetVerb()+" "+a.GetResource().Resource)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// refuse answers requests with an error, if the function returns one.
func (s scene) refuse(why func(clienttesting.Action) error) {
	reaction := func(a clienttesting.Action) (bool, runtime.Object, error) {
		err := why(a)
		return err != nil, nil, err
	}
	s.kube.PrependReactor("*", "*", reaction)
	s.dynamic.PrependReactor("*", "*", reaction)
}

// newScene returns a cluster with two Pods of namespace shop: db-0, which runs on node-1 with a bound claim, and db-1, which has no node;
// its claims are unbound, and one of them is filled from a snapshot. There is more that neither of them has anything to do with.
func newScene(t *testing.T) scene {
	t.Helper()
	objects := []runtime.Object{
		node("node-1"), node("node-2"), node("node-3"),
		csiNodeOf("node-1"), csiNodeOf("node-2"), csiNodeOf("node-3"),
		&storagev1.CSIDriver{ObjectMeta: named("", driver)}, &storagev1.CSIDriver{ObjectMeta: named("", "other.csi")},
		class("disks", driver), class("files", "other.csi"),
		&storagev1.VolumeAttributesClass{ObjectMeta: named("", "fast"), DriverName: driver, Parameters: map[string]string{"performanceLevel": "PL1"}},
		&storagev1.VolumeAttributesClass{ObjectMeta: named("", "slow"), DriverName: driver},
		&storagev1.CSIStorageCapacity{ObjectMeta: named("kube-system", "disks-all"), StorageClassName: "disks"},
		claim("data-db-0", "d-0", nil), volume("d-0", "shop", "data-db-0"), attachment("va-0", "d-0", "node-1"),
		pod("db-0", "node-1", "data-db-0"),
		claim("data-db-1", "", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("fast") }),
		claim("copy-db-1", "", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "nightly"}
		}),
		pod("db-1", "", "data-db-1", "copy-db-1"),
		claim("clone", "", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data-db-0"}
		}),
		volume("d-0-twin", "till", "data"), // of the same disk
		volume("d-7", "till", "logs"), attachment("va-7", "d-7", "node-1"), attachment("va-8", "d-8", "node-3"), volume("d-9", "till", "unused"),
		inNamespace("till", pod("till-0", "node-1", "logs")), inNamespace("till", pod("till-1", "node-2")),
		leaseOf("kube-system", request.ObjectName(driver)), leaseOf("kube-system", "other"), leaseOf("kube-node-lease", "node-1"),
		eventOf("Pod", "shop", "db-0", "FailedAttachVolume"), eventOf("PersistentVolumeClaim", "shop", "data-db-1", "ProvisioningFailed"),
		eventOf("Node", "", "node-1", "NodeNotReady"), eventOf("Pod", "till", "till-0", "Scheduled"), earlier(eventOf("Pod", "shop", "db-0", "Killed")),
		journalOf(t, claim("data-db-1", "", nil), claim("elsewhere", "", nil)),
	}
	objects[slices.IndexFunc(objects, func(o runtime.Object) bool {
		pv, ok := o.(*corev1.PersistentVolume)
		return ok && pv.Name == "d-0-twin"
	})].(*corev1.PersistentVolume).Spec.CSI.VolumeHandle = "d-0"
	snapshots := []runtime.Object{
		unstructuredOf("VolumeSnapshot", "shop", "nightly", map[string]any{
			"spec":   map[string]any{"volumeSnapshotClassName": "nightly"},
			"status": map[string]any{"boundVolumeSnapshotContentName": "content", "readyToUse": false, "restoreSize": "20Gi"},
		}),
		unstructuredOf("VolumeSnapshotContent", "", "content", map[string]any{
			"spec": map[string]any{"driver": driver}, "status": map[string]any{"error": map[string]any{"message": "too many snapshots"}},
		}),
	}
	return scene{fake.NewClientset(objects...), dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), snapshots...)}
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: named("", name), Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"image"}}}}}
}

func csiNodeOf(name string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: named("", name), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "i-" + name}}}}
}

func class(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: named("", name), Provisioner: provisioner, Parameters: map[string]string{"type": "cloud_essd"}}
}

func claim(name, volume string, with func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: named("shop", name), Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("disks"), VolumeName: volume}}
	if with != nil {
		with(c)
	}
	return c
}

func volume(name, namespace, claim string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: named("", name), Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: claim},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver, VolumeHandle: name, VolumeAttributes: map[string]string{"type": "cloud_essd"},
		}},
	}}
}

func attachment(name, volume, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: named("", name), Spec: storagev1.VolumeAttachmentSpec{
		Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
	}}
}

func pod(name, node string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: named("shop", name), Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}}}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	return p
}

func inNamespace(namespace string, p *corev1.Pod) *corev1.Pod {
	p.Namespace = namespace
	return p
}

func leaseOf(namespace, name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: named(namespace, name)}
}

func eventOf(kind, namespace, name, reason string) *corev1.Event {
	at := namespace
	if at == "" {
		at = "default"
	}
	return &corev1.Event{
		ObjectMeta: named(at, name+"."+strings.ToLower(reason)), Reason: reason,
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
	}
}

// earlier makes an event that of an earlier object of the name.
func earlier(e *corev1.Event) *corev1.Event {
	e.InvolvedObject.UID = "earlier"
	return e
}

// journalOf is a ConfigMap of the journal with the records of claims.
func journalOf(t *testing.T, claims ...*corev1.PersistentVolumeClaim) *corev1.ConfigMap {
	t.Helper()
	journal := &corev1.ConfigMap{ObjectMeta: named("kube-system", request.JournalName(driver)+"-0"), Data: map[string]string{}}
	for _, c := range claims {
		r := &request.Request{Create: &csi.CreateVolumeRequest{Name: "pvc-" + string(c.UID)}, Node: "node-2", Claim: c, Class: class("disks", driver)}
		record, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		journal.Data[string(c.UID)] = string(record)
	}
	return journal
}

func unstructuredOf(kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(snapshotGroup.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID(types.UID("uid-" + name))
	return u
}

// names returns what facts have, a line for each kind.
func names(f *explain.Facts) string {
	var text strings.Builder
	line := func(kind string, names ...string) {
		if len(names) > 0 {
			fmt.Fprintf(&text, "%s: %s\n", kind, strings.Join(names, " "))
		}
	}
	line("Nodes", of(f.Nodes)...)
	line("CSINodes", of(f.CSINodes)...)
	if f.CSIDriver != nil {
		line("CSIDriver", f.CSIDriver.Name)
	}
	line("Classes", of(f.Classes)...)
	line("Attributes", of(f.Attributes)...)
	line("Capacities", of(f.Capacities)...)
	line("Claims", of(f.Claims)...)
	line("Volumes", of(f.Volumes)...)
	line("Attachments", of(f.Attachments)...)
	line("Pods", of(f.Pods)...)
	for _, s := range f.Snapshots {
		line("Snapshot", s.Name, s.Class, s.Content, s.Driver, s.RestoreSize, fmt.Sprint(s.Ready), s.Error)
	}
	line("Events", of(f.Events)...)
	line("Leases", of(f.Leases)...)
	for _, j := range f.Journal {
		line("Journal", j.ClaimUID, j.Namespace+"/"+j.Claim, j.Node)
	}
	for _, u := range f.Unread {
		line("Unread", u.Kind, u.Namespace, u.Reason)
	}
	return text.String()
}

func of[T any, P interface {
	*T
	metav1.Object
}](objects []T) (names []string) {
	for i := range objects {
		names = append(names, P(&objects[i]).GetName())
	}
	return names
}

func facts(t *testing.T, s scene, subject explain.Ref) *explain.Facts {
	t.Helper()
	f, err := Read(t.Context(), s.clients(), subject, driver, "")
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(f.At); age < 0 || age > time.Minute || f.Driver != driver || f.Subject != subject {
		t.Errorf("facts of %v: read %s ago, driver %s, subject %v", subject, age, f.Driver, f.Subject)
	}
	return f
}
