package plan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/topology"
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func oldClass(name, driver string, parameters map[string]string) storagev1.StorageClass {
	return storagev1.StorageClass{ObjectMeta: named(name), Provisioner: driver, Parameters: parameters}
}

func withMountOptions(class storagev1.StorageClass, options ...string) storagev1.StorageClass {
	class.MountOptions = options
	return class
}

// oldVolume is a PersistentVolume as the driver before topodisk made it.
func oldVolume(name, handle string, change func(*corev1.PersistentVolume)) corev1.PersistentVolume {
	v := corev1.PersistentVolume{ObjectMeta: named(name), Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: diskdriver.DefaultName, VolumeHandle: handle, FSType: "ext4",
			VolumeAttributes: map[string]string{"type": "cloud_essd", "storage.kubernetes.io/csiProvisionerIdentity": "1-2-x", "sysConfig": "ignored of old volumes"},
		}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "topology.diskplugin.csi.alibabacloud.com/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"cn-hangzhou-h"}}},
		}}}},
	}}
	v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": diskdriver.DefaultName}
	if change != nil {
		change(&v)
	}
	return v
}

func TestWhereAVolumeIs(t *testing.T) {
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	region, zone := in(topology.RegionKey, "cn-hangzhou"), in(topology.ZoneKey, "cn-hangzhou-h")
	not := corev1.NodeSelectorRequirement{Key: topology.ZoneKey, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"cn-hangzhou-x"}}
	for name, test := range map[string]struct {
		affinity []corev1.NodeSelectorRequirement
		place    string
		zones    []string
	}{
		"a zone":                {[]corev1.NodeSelectorRequirement{zone}, "cn-hangzhou-h", zone.Values},
		"a zone and its region": {[]corev1.NodeSelectorRequirement{region, zone}, "cn-hangzhou-h", zone.Values},
		"a region":              {[]corev1.NodeSelectorRequirement{region}, "cn-hangzhou", nil},
		"a node":                {[]corev1.NodeSelectorRequirement{in(corev1.LabelHostname, "n")}, "the place that its node affinity names", nil},
		"all zones but one":     {[]corev1.NodeSelectorRequirement{not}, "the place that its node affinity names", nil},
	} {
		v := oldVolume("pv", "d-1", func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions = test.affinity
		})
		f := &Facts{Facts: explain.Facts{Volumes: []corev1.PersistentVolume{v}}}
		if place, zones := explain.PlaceOf(&v), f.Zones(); place != test.place || !slices.Equal(zones, test.zones) {
			t.Errorf("%s: %q, zones %q", name, place, zones)
		}
	}
}

func attachment(name, volume string, serial map[string]string) storagev1.VolumeAttachment {
	return storagev1.VolumeAttachment{ObjectMeta: named(name),
		Spec:   storagev1.VolumeAttachmentSpec{Attacher: diskdriver.DefaultName, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: serial}}
}

func TestWhatWouldBeRefusedIsNamedAndNothingElse(t *testing.T) {
	f := &Facts{Facts: explain.Facts{Driver: diskdriver.DefaultName}}
	f.Classes = []storagev1.StorageClass{
		oldClass("good", diskdriver.DefaultName, map[string]string{
			"type": "cloud_essd,cloud_auto", "fsType": "ext4", "csi.storage.k8s.io/provisioner-secret-name": "s", "csi.storage.k8s.io/secret-namespace": "n", "topodisk.io/strict-topology": "true",
		}),
		oldClass("misspelt", diskdriver.DefaultName, map[string]string{"type": "cloud_esd"}),
		oldClass("truth", diskdriver.DefaultName, map[string]string{"encrypted": "perhaps"}),
		oldClass("cache", diskdriver.DefaultName, map[string]string{"dataCacheSize": "10Gi"}),
		oldClass("quota", diskdriver.DefaultName, map[string]string{"mkfsOptions": "-F -m 1 -O project,quota", "csi.storage.k8s.io/fstype": "ext4"}),
		oldClass("log", diskdriver.DefaultName, map[string]string{"mkfsOptions": "-l logdev=/dev/vdx", "fsType": "xfs"}),
		oldClass("other-options", diskdriver.DefaultName, map[string]string{"mkfsOptions": "-O quota", "fsType": "xfs"}),
		withMountOptions(oldClass("mount", diskdriver.DefaultName, nil), "noatime", "norecovery"),
		withMountOptions(oldClass("good-mount", diskdriver.DefaultName, nil), "noatime", "barrier=0", "logbsize=256k"),
		oldClass("half-secret", diskdriver.DefaultName, map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "s", "csi.storage.k8s.io/provisioner-secret-namespace": "n"}),
		oldClass("of-another", "nas.example.com", map[string]string{"type": "anything"}),
	}
	f.Attributes = []storagev1.VolumeAttributesClass{{ObjectMeta: named("fast"), DriverName: diskdriver.DefaultName, Parameters: map[string]string{"performanceLevel": "PL9"}}}
	f.SnapshotClasses = []SnapshotClass{
		{Kind: "VolumeSnapshotClass", ObjectMeta: named("week"), Driver: diskdriver.DefaultName, Parameters: map[string]string{"retentionDays": "7"}},
		{Kind: "VolumeSnapshotClass", ObjectMeta: named("ever"), Driver: diskdriver.DefaultName, Parameters: map[string]string{"retentionDays": "0"}},
		{Kind: "VolumeSnapshotClass", ObjectMeta: named("odd"), Driver: diskdriver.DefaultName, Malformed: "parameters: 7 is no string"},
		{Kind: "VolumeGroupSnapshotClass", ObjectMeta: named("group"), Driver: diskdriver.DefaultName, Parameters: map[string]string{"retentionDays": "7"}},
	}
	f.Volumes = []corev1.PersistentVolume{
		oldVolume("d-good", "d-good", nil),
		oldVolume("d-anywhere", "d-anywhere", func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = nil }),
		oldVolume("d-tied", "d-tied", func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = "alibabacloud.com/ecs-instance-id"
		}),
		oldVolume("no-disk", "nas-1", nil),
		oldVolume("d-ntfs", "d-ntfs", func(v *corev1.PersistentVolume) { v.Spec.CSI.FSType = "ntfs" }),
		oldVolume("d-shared", "d-shared", func(v *corev1.PersistentVolume) {
			v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}),
		oldVolume("d-old", "d-old", func(v *corev1.PersistentVolume) {
			v.CreationTimestamp = metav1.Date(2020, 6, 9, 0, 0, 0, 0, metav1.Now().Location())
			v.Annotations = nil
		}),
		oldVolume("d-serial", "d-serial", nil),
		oldVolume("d-logdev", "d-logdev", func(v *corev1.PersistentVolume) { v.Spec.MountOptions = []string{"noatime", "logdev=/dev/vdx"} }),
		oldVolume("d-norecovery", "d-norecovery", func(v *corev1.PersistentVolume) {
			v.Spec.MountOptions, v.Spec.CSI.VolumeAttributes["mkfsOptions"] = []string{"norecovery"}, "-U random"
		}),
		oldVolume("d-copied", "d-copied", func(v *corev1.PersistentVolume) {
			v.Spec.CSI.VolumeAttributes["mkfsOptions"] = "-d /var/lib/kubelet/pods"
		}),
		oldVolume("d-none", "d-none", nil),
	}
	f.Attachments = []storagev1.VolumeAttachment{attachment("csi-1", "d-serial", map[string]string{"serialNumber": "serial"}), attachment("csi-2", "d-none", nil)}
	p := &Plan{}
	read, refused := findRefused(f, p)
	if read != 27 || refused != 16 {
		t.Errorf("%d objects read, %d refused", read, refused)
	}
	text := textOf(t, &Plan{Summary: "x", Findings: p.Findings})
	for _, want := range []string{
		"StorageClass misspelt: refused: ", `"cloud_esd"`, "StorageClass truth: refused: ", "encrypted", "StorageClass cache: refused: ", "dataCacheSize",
		"StorageClass half-secret: refused: ", "has no csi.storage.k8s.io/controller-publish-secret-name",
		"VolumeAttributesClass fast: refused: ", "VolumeSnapshotClass ever: refused: ", "VolumeSnapshotClass odd: refused: parameters: 7", "VolumeGroupSnapshotClass group: refused: ",
		"PersistentVolume no-disk: refused: ", "PersistentVolume d-ntfs: refused: ", "PersistentVolume d-shared: refused: ", "PersistentVolume d-none: refused: its disk seems to have no serial number",
		`StorageClass log: refused: parameter mkfsOptions: option -l of mkfs.xfs: "logdev=/dev/vdx" is not allowed`, "StorageClass other-options: refused: parameter mkfsOptions: ",
		`StorageClass mount: refused: mountOptions[1]: "norecovery" is not allowed`, `PersistentVolume d-logdev: refused: spec.mountOptions[1]: "logdev=/dev/vdx" is not allowed`,
		`PersistentVolume d-copied: note: spec.csi.volumeAttributes[mkfsOptions]: option -d of mkfs.ext4: "/var/lib/kubelet/pods" is not allowed`,
		"PersistentVolume d-good: note: node affinity by topology.diskplugin.csi.alibabacloud.com/zone",
		"PersistentVolume d-anywhere: note: no node affinity", "PersistentVolume d-tied: note: node affinity by alibabacloud.com/ecs-instance-id",
		"PersistentVolume d-old: note: older than June 2020", "PersistentVolume d-old: note: made by hand",
	} {
		if !strings.Contains(lines(p), want) {
			t.Errorf("not found: %s", want)
		}
	}
	for _, not := range []string{"StorageClass good", "of-another", "Class week", "d-serial: refused", "StorageClass quota", "good-mount", "d-norecovery: refused", "d-copied: refused", "d-norecovery: note: spec"} {
		if strings.Contains(lines(p), not) {
			t.Errorf("found: %s", not)
		}
	}
	if !strings.Contains(text, "d-good, no-disk, d-ntfs, d-shared, d-old and 5 more ") {
		t.Errorf("volumes of one note are not in one line:\n%s", text)
	}
	if t.Failed() {
		t.Log(lines(p))
	}
}

// lines has a line for each finding.
func lines(p *Plan) string {
	var b strings.Builder
	for _, f := range p.Findings {
		b.WriteString(f.Object.String() + ": " + string(f.Effect) + ": " + f.Message + "\n")
	}
	return b.String()
}
