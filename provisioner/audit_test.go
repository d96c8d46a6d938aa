package provisioner

import (
	"context"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
)

func listed(id, cluster, name string, nodes ...string) *csi.ListVolumesResponse_Entry {
	return &csi.ListVolumesResponse_Entry{
		Volume: &csi.Volume{VolumeId: id, CapacityBytes: 20 * gib, VolumeContext: map[string]string{"type": "cloud_essd", clusterKey: cluster, volumeNameKey: name},
			AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": "zone-a"}}}},
		Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes},
	}
}

// noPause is the pause of an audit whose driver shows what there is.
func noPause(context.Context, int) error { return nil }

func TestAuditReadsWhatTheDriverLists(t *testing.T) {
	r := requestFor(t, 1)
	ended := *provisionertest.Volume("d-kept")
	ended.Annotations[request.AnnVolumeName], ended.Spec.ClaimRef.UID = r.Create.Name, r.Claim.UID // whose request is still in the journal
	record, err := r.Encode()
	must(t, err)
	config := testConfig()
	config.DriverListsVolumes, config.Namespace = true, "kube-system"
	journal := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: request.JournalName(config.DriverName) + "-0"},
		Data:       map[string]string{string(r.Claim.UID): string(record)},
	}
	driver := &listing{disks: []*csi.ListVolumesResponse_Entry{
		listed("d-kept", "c1", r.Create.Name), listed("d-orphan", "c1", "disk-orphan", "i-1"), listed("d-other", "c2", "disk-other"),
	}}
	got, err := RunAudit(t.Context(), config, fake.NewClientset(&ended, journal), driver, "", noPause)
	must(t, err)
	want := []audit.Finding{{
		Kind: audit.DiskWithoutVolume, ID: "d-orphan", Type: "cloud_essd", Zone: "zone-a", GiB: 20, Instances: []string{"i-1"},
		About: "made as disk-orphan, attached to i-1",
	}}
	if diff := cmp.Diff(want, got.Findings, cmp.AllowUnexported(audit.Finding{})); diff != "" {
		t.Error(diff)
	}
	if len(got.Others) != 1 || got.Others[0].Cluster != "c2" || !got.Confirmed ||
		got.Checked(audit.SnapshotWithoutContent) || !got.Checked(audit.VolumeWithoutDisk) {
		t.Errorf("got %+v", got)
	}
}

func TestAuditIsReadOnly(t *testing.T) {
	api := fake.NewClientset()
	if err := api.Tracker().Add(provisionertest.Volume("d-1")); err != nil {
		t.Fatal(err)
	}
	driver := &scriptedDriver{listed: []string{"1", "2"}}
	config := testConfig()
	if _, err := RunAudit(t.Context(), config, api, driver, "", noPause); err == nil || !strings.Contains(err.Error(), "does not list volumes") {
		t.Errorf("got %v", err)
	}
	config.DriverListsVolumes, config.Namespace = true, "kube-system"
	got, err := RunAudit(t.Context(), config, api, driver, "c1", noPause)
	if err != nil || got.Volumes != 1 || got.Disks+got.Unnamed != 2 {
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
	name := request.JournalName(config.DriverName) + "-0"
	later := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string]string{"uid-9": `{"format":2}`}}
	must(t, api.Tracker().Add(later))
	if _, err := RunAudit(t.Context(), config, api, driver, "c1", noPause); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("with a record that can't be read: %v, want an error, for its disk may be no orphan", err)
	}
}

// The annotation by which an audit knows an ended request is the one that is written.
func TestAuditKnowsTheVolumeName(t *testing.T) {
	r := requestFor(t, 1)
	pv := provisionertest.Volume("d-1")
	pv.Annotations[request.AnnVolumeName] = r.Create.Name
	c := audit.Cluster{Driver: provisionertest.DriverName, Requests: auditRequests([]*request.Request{r}), Volumes: []v1.PersistentVolume{*pv}}
	report, err := audit.Compare(audit.Listing{Disks: []audit.Disk{{ID: "d-1", Cluster: "c1", Owner: "c1"}}}, c, audit.Options{})
	must(t, err)
	if len(report.Findings) > 0 {
		t.Errorf("found %+v", report.Findings)
	}
}
