package request

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

// volumeFor returns the PersistentVolume of a claim for which the driver has made the volume.
func volumeFor(t *testing.T, options Options, class *storagev1.StorageClass, made *csi.Volume) *v1.PersistentVolume {
	t.Helper()
	plan, err := NewPlan(options, provisionertest.Claim(), class, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	return plan.Request(Inputs{}).PersistentVolume(options, made)
}

func TestNamesOfPersistentVolumes(t *testing.T) {
	tests := []struct {
		source   PVNameSource
		id, want string
	}{
		{VolumeID, "d-bp1", "d-bp1"},
		{VolumeName, "d-bp1", "disk-0f1e"},
		{VolumeID, "/subscriptions/X/disks/y", "disk-0f1e"},
		{VolumeID, "D_1", "disk-0f1e"},
	}
	for _, test := range tests {
		options := testOptions()
		options.PVNameSource = test.source
		pv := volumeFor(t, options, provisionertest.Class(nil), &csi.Volume{VolumeId: test.id})
		if pv.Name != test.want || pv.Spec.CSI.VolumeHandle != test.id {
			t.Errorf("%s of %s: got %v", test.source, test.id, pv)
		}
		if size := pv.Spec.Capacity[v1.ResourceStorage]; size.Value() != 20*provisionertest.GiB {
			t.Errorf("a driver that reports no size made %d bytes", size.Value())
		}
	}
}

func TestAVolumeHasExactlyTheDriversSize(t *testing.T) {
	pv := volumeFor(t, testOptions(), provisionertest.Class(nil), &csi.Volume{VolumeId: "d-bp1", CapacityBytes: 20*provisionertest.GiB + 4096})
	if size := pv.Spec.Capacity[v1.ResourceStorage]; size.Value() != 20*provisionertest.GiB+4096 || size.Format != resource.BinarySI {
		t.Errorf("got %s", &size)
	}
}

func TestARetainedVolumeHasNoFinalizer(t *testing.T) {
	class := provisionertest.Class(nil)
	class.ReclaimPolicy = ptr.To(v1.PersistentVolumeReclaimRetain)
	pv := volumeFor(t, testOptions(), class, &csi.Volume{VolumeId: "d-bp1"})
	if len(pv.Finalizers) != 0 || pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain {
		t.Errorf("got %v", pv)
	}
}

func TestOnlyReadOnlyManyIsPublishedForReading(t *testing.T) {
	options := testOptions()
	options.ReadOnlyPublish = true
	for _, test := range []struct {
		modes []v1.PersistentVolumeAccessMode
		want  bool
	}{
		{[]v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}, true},
		{[]v1.PersistentVolumeAccessMode{v1.ReadOnlyMany, v1.ReadWriteOnce}, false},
	} {
		claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Spec.AccessModes = test.modes })
		plan, err := NewPlan(options, claim, provisionertest.Class(nil), "node-1")
		if err != nil {
			t.Fatal(err)
		}
		pv := plan.Request(Inputs{}).PersistentVolume(options, &csi.Volume{VolumeId: "d-bp1"})
		if pv.Spec.CSI.ReadOnly != test.want {
			t.Errorf("%v: read-only %v", test.modes, pv.Spec.CSI.ReadOnly)
		}
	}
}

func TestCheck(t *testing.T) {
	snapshot := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "s-1"}}}
	for name, test := range map[string]struct {
		source *csi.VolumeContentSource
		made   *csi.Volume
		want   string // in the error; nothing for none
	}{
		"as large as asked for":      {made: &csi.Volume{VolumeId: "d-bp1", CapacityBytes: 20 * provisionertest.GiB}},
		"of a size that is not said": {made: &csi.Volume{VolumeId: "d-bp1"}},
		"larger":                     {made: &csi.Volume{VolumeId: "d-bp1", CapacityBytes: 40 * provisionertest.GiB}},
		"smaller":                    {made: &csi.Volume{VolumeId: "d-bp1", CapacityBytes: 20*provisionertest.GiB - 1}, want: "are required"},
		"no answer":                  {want: "without a volume ID"},
		"without an ID":              {made: &csi.Volume{CapacityBytes: 20 * provisionertest.GiB}, want: "without a volume ID"},
		"filled":                     {source: snapshot, made: &csi.Volume{VolumeId: "d-bp1", ContentSource: snapshot}},
		"empty":                      {source: snapshot, made: &csi.Volume{VolumeId: "d-bp1"}, want: "d-bp1 is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := NewPlan(testOptions(), provisionertest.Claim(), provisionertest.Class(nil), "node-1")
			if err != nil {
				t.Fatal(err)
			}
			err = plan.Request(Inputs{Source: test.source}).Check(&csi.CreateVolumeResponse{Volume: test.made})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestIsMadeForClaim(t *testing.T) {
	r := fullRequest(t)
	saved := r.PersistentVolume(testOptions(), &csi.Volume{VolumeId: "d-bp1"})
	byName := saved.DeepCopy()
	byName.Name, byName.Annotations = "disk-0f1e", map[string]string{AnnProvisionedBy: provisionertest.DriverName}
	another := saved.DeepCopy()
	another.Spec.ClaimRef.UID = "other"
	static := saved.DeepCopy()
	static.Annotations = nil
	for name, test := range map[string]struct {
		pv                          *v1.PersistentVolume
		isSaved, isMade, isForClaim bool
	}{
		"the request's":               {saved, true, true, true},
		"one that is named after it":  {byName, false, true, true},
		"one of another claim by now": {another, true, true, false},
		"a static one":                {static, false, false, false},
	} {
		if got := r.IsSavedAs(test.pv); got != test.isSaved {
			t.Errorf("%s: IsSavedAs %v", name, got)
		}
		if got := IsMadeBy(test.pv, provisionertest.DriverName); got != test.isMade {
			t.Errorf("%s: IsMadeBy %v", name, got)
		}
		if got := testOptions().IsMadeForClaim(test.pv); got != test.isForClaim {
			t.Errorf("%s: IsMadeForClaim %v", name, got)
		}
	}
}

func TestDeletionSecret(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        *v1.SecretReference
		named       bool
	}{
		"before Secrets were noted": {},
		"none":                      {annotations: map[string]string{AnnDeletionSecretName: "", AnnDeletionSecretNamespace: ""}, named: true},
		"half of one":               {annotations: map[string]string{AnnDeletionSecretName: "x"}, named: true},
		"one": {
			annotations: map[string]string{AnnDeletionSecretName: "x", AnnDeletionSecretNamespace: "vault"},
			want:        &v1.SecretReference{Name: "x", Namespace: "vault"}, named: true,
		},
	} {
		ref, named := DeletionSecret(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}})
		if diff := cmp.Diff(test.want, ref); diff != "" || named != test.named {
			t.Errorf("%s: named %v, (-want +got):\n%s", name, named, diff)
		}
	}
}

// The rule of csi-provisioner since v5.1.
func TestIsOfDriver(t *testing.T) {
	const driver = "diskplugin.csi.alibabacloud.com"
	for name, test := range map[string]struct {
		provisionedBy *string
		driver        string
		want          bool
	}{
		"provisioned for it":      {ptr.To(driver), driver, true},
		"made by hand":            {nil, driver, true},
		"provisioned for another": {ptr.To("other"), driver, false},
		"provisioned for nobody":  {ptr.To(""), driver, false},
		"of another driver":       {nil, "other", false},
		"of another, for it":      {ptr.To(driver), "other", false},
	} {
		pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: test.driver}}}}
		if test.provisionedBy != nil {
			pv.Annotations = map[string]string{AnnProvisionedBy: *test.provisionedBy}
		}
		if got := IsOfDriver(pv, driver); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if IsOfDriver(&v1.PersistentVolume{}, driver) {
		t.Error("a volume without a driver is not its")
	}
}
