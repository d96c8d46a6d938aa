package provisioner

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/topodisk/topodisk/provisioner/request"
)

func listed(id, cluster, name string, nodes ...string) *csi.ListVolumesResponse_Entry {
	return &csi.ListVolumesResponse_Entry{
		Volume: &csi.Volume{VolumeId: id, CapacityBytes: 20 * gib, VolumeContext: map[string]string{"type": "cloud_essd", clusterKey: cluster, volumeNameKey: name},
			AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": "zone-a"}}}},
		Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes},
	}
}

func TestAuditFindings(t *testing.T) {
	now := time.Unix(1700000000, 0)
	made := func(ago time.Duration) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) { pv.CreationTimestamp = metav1.NewTime(now.Add(-ago)) }
	}
	kept, lost, young := *testVolume("d-kept", made(time.Hour)), *testVolume("d-lost", made(time.Hour)), *testVolume("d-young", made(time.Second))
	gone, late := *testVolume("d-gone", made(time.Hour)), *testVolume("d-late", made(time.Second))
	o, ended := requestFor(t, 1), requestFor(t, 2)
	kept.Annotations[request.AnnVolumeName] = ended.Create.Name // its order is still in the journal
	got, err := audit(auditInput{
		now:    now,
		before: []v1.PersistentVolume{kept, lost, young, gone},
		disks: []*csi.ListVolumesResponse_Entry{
			listed("d-kept", "c1", "disk-kept"),
			listed("d-late", "c1", "disk-late"), // its PersistentVolume comes while the audit reads
			listed("d-orphan", "c1", "disk-orphan", "i-1"),
			listed("d-making", "c1", o.Create.Name), // the journal knows of it
			listed("d-other", "c2", "disk-other"),   // another cluster's
			listed("d-hand", "c1", ""),              // made by hand
		},
		requests: []*request.Request{o, ended},
		after:    []v1.PersistentVolume{kept, lost, young, late}, // d-gone was deleted while the audit reads
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Audit{Cluster: "c1", Disks: 4, Volumes: 4, Others: 2, Findings: []Finding{
		{VolumeWithoutDisk, "d-lost", "PersistentVolume d-lost, Released, claim shop/data"},
		{DiskWithoutVolume, "d-orphan", "cloud_essd, 20Gi, zone-a, made as disk-orphan, attached to i-1"},
		{UnderWay, o.Create.Name, "for claim " + o.Claim.Namespace + "/" + o.Claim.Name},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Clean() {
		t.Error("it is clean")
	}
	var text bytes.Buffer
	if err := got.Print(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "disk without PersistentVolume  d-orphan  ") {
		t.Error(text.String())
	}
}

func TestAuditErrors(t *testing.T) {
	pv := []v1.PersistentVolume{*testVolume("d-1"), *testVolume("d-2")}
	for name, c := range map[string]struct {
		disks []*csi.ListVolumesResponse_Entry
		says  string
	}{
		"no disks":     {nil, "credentials"},
		"two clusters": {[]*csi.ListVolumesResponse_Entry{listed("d-1", "c1", "a"), listed("d-2", "c2", "b")}, "c1, c2"},
		"no cluster":   {[]*csi.ListVolumesResponse_Entry{listed("d-1", "", "a")}, "--cluster-id"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := audit(auditInput{before: pv, after: pv, disks: c.disks}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want it to say %q", err, c.says)
			}
		})
	}
}

func TestAuditIsReadOnly(t *testing.T) {
	api := fake.NewClientset()
	if err := api.Tracker().Add(testVolume("d-1")); err != nil {
		t.Fatal(err)
	}
	driver := &scriptedDriver{listed: []string{"1", "2"}}
	config := testConfig()
	if _, err := RunAudit(t.Context(), config, api, driver, ""); err == nil || !strings.Contains(err.Error(), "does not list volumes") {
		t.Errorf("got %v", err)
	}
	config.DriverListsVolumes, config.Namespace = true, "kube-system"
	got, err := RunAudit(t.Context(), config, api, driver, "c1")
	if err != nil || !got.Clean() || got.Volumes != 1 || got.Others != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, action := range api.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" {
			t.Errorf("it has made a %s", verb)
		}
	}
	if len(driver.Deleted) > 0 {
		t.Error("it has written")
	}
	name := journalPrefix + ObjectName(config.DriverName) + "-0"
	must(t, api.Tracker().Add(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string]string{"uid-9": `{"format":2}`}}))
	if _, err := RunAudit(t.Context(), config, api, driver, "c1"); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("with a record that can't be read: %v, want an error, for its disk may be no orphan", err)
	}
}
