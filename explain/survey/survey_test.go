package survey

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/provisioner/request"
)

const driver = "diskplugin.csi.alibabacloud.com"

func cluster(t *testing.T, objects ...runtime.Object) (*Reader, *fake.Clientset) {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}:                "VolumeSnapshotContentList",
		{Group: "groupsnapshot.storage.k8s.io", Version: "v1", Resource: "volumegroupsnapshotcontents"}:      "VolumeGroupSnapshotContentList",
		{Group: "groupsnapshot.storage.k8s.io", Version: "v1beta2", Resource: "volumegroupsnapshotcontents"}: "VolumeGroupSnapshotContentList",
	}
	content := func(group, version, kind, name string, fields map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: fields}
		u.SetAPIVersion(group + "/" + version)
		u.SetKind(kind)
		u.SetName(name)
		return u
	}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds,
		content("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "a", map[string]any{
			"spec": map[string]any{"driver": driver, "volumeSnapshotRef": map[string]any{"uid": "u1"}}, "status": map[string]any{"snapshotHandle": "s-1"}}),
		content("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "b", map[string]any{
			"spec": map[string]any{"driver": driver, "source": map[string]any{"snapshotHandle": "s-2"}}}),
		content("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "c", map[string]any{"spec": map[string]any{"driver": "other"}}),
		content("groupsnapshot.storage.k8s.io", "v1beta2", "VolumeGroupSnapshotContent", "g", map[string]any{
			"spec": map[string]any{"driver": driver}, "status": map[string]any{"volumeGroupSnapshotHandle": "ssg-1"}}))
	dynamic.PrependReactor("list", "volumegroupsnapshotcontents", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource().Version == "v1" { // the cluster is older
			return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), "")
		}
		return false, nil, nil
	})
	client := fake.NewClientset(objects...)
	return &Reader{Client: client, Dynamic: dynamic, Driver: driver, JournalNamespace: "kube-system", Now: time.Now}, client
}

// journalOf has a request and a record of a later version.
func journalOf(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	r := &request.Request{
		Create: &csi.CreateVolumeRequest{Name: "disk-u9"},
		Claim:  &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u9"}},
		Class:  &storagev1.StorageClass{},
	}
	record, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "topodisk-journal-diskplugin-csi-alibabacloud-com-0"},
		Data: map[string]string{"u9": string(record), "u8": `{"format": 99}`}}
}

func TestClusterIsReadInOrder(t *testing.T) {
	secret := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n",
		Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "hidden"}}}},
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	c, client := cluster(t, journalOf(t), &secret, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "d-1"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}})
	got, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got.Requests, func(a, b audit.Request) int { return len(a.Name) - len(b.Name) })
	if diff := cmp.Diff([]audit.Request{{ClaimUID: "u8"}, {Name: "disk-u9", Claim: "shop/data", ClaimUID: "u9"}}, got.Requests); diff != "" {
		t.Error(diff)
	}
	slices.SortFunc(got.Contents, func(a, b audit.Content) int { return cmpText(a.Name, b.Name) })
	want := []audit.Content{{Name: "a", Handle: "s-1", SnapshotUID: "u1"}, {Name: "b", Handle: "s-2"}, {Name: "g", Handle: "ssg-1", Group: true}}
	if diff := cmp.Diff(want, got.Contents); diff != "" {
		t.Error(diff)
	}
	if len(got.Volumes) != 1 || len(got.Claims) != 1 || len(got.Pods) != 1 || got.Pods[0].Spec.Containers != nil || got.Unread != nil {
		t.Errorf("got %+v", got)
	}
	actions := client.Actions()
	last := slices.IndexFunc(actions, func(a clienttesting.Action) bool {
		return !slices.Contains([]string{"configmaps", "persistentvolumeclaims"}, a.GetResource().Resource)
	})
	for _, a := range actions[last:] {
		if slices.Contains([]string{"configmaps", "persistentvolumeclaims"}, a.GetResource().Resource) {
			t.Errorf("%s are read after other objects", a.GetResource().Resource)
		}
	}
	for _, a := range actions {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			t.Errorf("it makes a %s", a.GetVerb())
		}
	}
}

// The journal is where disk-provisioner's Lease is, and without a Lease it is not read, rather than empty; nor with two, one of which a tenant
// may have made to have records read that hide disks nobody owns.
func TestTheJournalIsWhereTheLeaseIs(t *testing.T) {
	journal := journalOf(t)
	journal.Namespace = "storage"
	lease := func(namespace, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	forbidden := func(namespaces ...string) func(*fake.Clientset) {
		return func(client *fake.Clientset) {
			client.PrependReactor("list", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return slices.Contains(namespaces, a.GetNamespace()), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("no"))
			})
		}
	}
	moved := journalOf(t)
	for name, test := range map[string]struct {
		objects  []runtime.Object
		change   func(*fake.Clientset)
		requests int
		unread   string
	}{
		"in its own namespace":   {objects: []runtime.Object{journal, lease("storage", request.ObjectName(driver))}, requests: 2},
		"of two namespaces":      {objects: []runtime.Object{journal, moved, lease("storage", request.ObjectName(driver)), lease("kube-system", request.ObjectName(driver))}, unread: "namespaces kube-system, storage each have a Lease"},
		"no Lease":               {objects: []runtime.Object{moved, lease("storage", "another")}, unread: "set --topodisk-namespace"},
		"no right to all Leases": {objects: []runtime.Object{moved, lease("kube-system", request.ObjectName(driver))}, change: forbidden(""), requests: 2},
		"no right to any Lease":  {objects: []runtime.Object{moved, lease("kube-system", request.ObjectName(driver))}, change: forbidden("", "kube-system"), unread: "forbidden"},
	} {
		c, client := cluster(t, test.objects...)
		c.JournalNamespace = ""
		if test.change != nil {
			test.change(client)
		}
		got, err := c.Read(t.Context())
		if err != nil || len(got.Requests) != test.requests || (len(got.Unread) > 0) != (test.unread != "") {
			t.Errorf("%s: %v, %d requests, unread %v", name, err, len(got.Requests), got.Unread)
		} else if test.unread != "" && (!strings.Contains(got.Unread[0].Reason, test.unread) || !slices.Contains(got.Unread[0].Kinds, audit.DiskWithoutVolume)) {
			t.Errorf("%s: unread %v", name, got.Unread)
		}
	}
}

// A VolumeAttachment that is being deleted shows as such.
func TestVolumesShowDetachments(t *testing.T) {
	c, _ := cluster(t, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: &metav1.Time{Time: time.Now()}, Finalizers: []string{"f"}}})
	got, _, err := c.ReadVolumes(t.Context())
	if err != nil || len(got.Attachments) != 1 || got.Attachments[0].DeletionTimestamp == nil {
		t.Errorf("%v %+v", err, got.Attachments)
	}
}

func TestEssentialKindsAreErrors(t *testing.T) {
	c, client := cluster(t)
	client.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "", errors.New("no"))
	})
	if _, err := c.Read(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

func cmpText(a, b string) int { return slices.Compare([]byte(a), []byte(b)) }

// listing is an ECS that lists this, or fails.
type listing struct {
	disks     []disk.Disk
	snapshots []disk.Snapshot
	fails     error
}

func (l listing) List(context.Context) ([]disk.Disk, error) { return l.disks, l.fails }
func (l listing) ListSnapshots(context.Context, disk.SnapshotFilter) ([]disk.Snapshot, error) {
	return l.snapshots, nil
}

func TestTagsSayWhatThingsAre(t *testing.T) {
	tags := disk.Tags{disk.ClusterTag: "c", disk.VolumeNameTag: "n"}
	got, err := Listing(t.Context(), listing{
		disks: []disk.Disk{{ID: "d-1", Tags: tags, State: disk.Creating, Attachments: []disk.Attachment{{Instance: "i-1"}}, Released: "then"}},
		snapshots: []disk.Snapshot{
			{ID: "s-1", Tags: disk.Tags{disk.ClusterTag: "c", disk.SnapshotNameTag: "shot", disk.VolumeNameTag: "n"}},
			{ID: "s-2", Tags: disk.Temporary("copy", "c", "d-1").Tags}, {ID: "s-3", Tags: disk.Tags{disk.ArchiveOfTag: "d-9"}},
			{ID: "s-4", Group: "ssg-1", Tags: disk.Tags{disk.GroupNameTag: "group"}},
		},
	})
	want := audit.Listing{
		Disks: []audit.Disk{{ID: "d-1", Cluster: "c", Name: "n", Creating: true, Instances: []string{"i-1"}, Detached: "then"}},
		Snapshots: []audit.Snapshot{{ID: "s-1", Cluster: "c", Name: "shot"}, {ID: "s-2", Cluster: "c", Owner: "c", Copy: "copy"}, {ID: "s-3", Archive: true},
			{ID: "s-4", Group: "ssg-1", Name: "group"}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := Listing(t.Context(), listing{fails: disk.Errorf(disk.Unreachable, "no answer")}); err == nil {
		t.Error("no answer of ECS is no error")
	}
}
