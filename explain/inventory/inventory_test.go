package inventory

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/test/golden"
)

const driver = "disk.example.com"

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func claimOf(name, volume string, change ...func(*corev1.PersistentVolumeClaim)) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-72 * time.Hour))},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume, StorageClassName: ptr.To("essd"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("15Gi")}}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	if volume == "" {
		c.Status.Phase = corev1.ClaimPending
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func volumeOf(name, zone, kind, level string) corev1.PersistentVolume {
	return corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name,
				VolumeAttributes: map[string]string{"type": kind, "performanceLevel": level}}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}}}},
		},
	}
}

func attachmentOf(volume, node string, attached bool) storagev1.VolumeAttachment {
	return storagev1.VolumeAttachment{
		Spec:   storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status: storagev1.VolumeAttachmentStatus{Attached: attached},
	}
}

func TestStates(t *testing.T) {
	condition := func(kind corev1.PersistentVolumeClaimConditionType) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: kind, Status: corev1.ConditionTrue}}
		}
	}
	going := attachmentOf("d-1", "n", true)
	going.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
	for want, c := range map[State]struct {
		claim       corev1.PersistentVolumeClaim
		attachments []storagev1.VolumeAttachment
	}{
		Pending:     {claim: claimOf("a", "")},
		Lost:        {claim: claimOf("a", "d-1", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })},
		Bound:       {claim: claimOf("a", "d-1")},
		Attaching:   {claim: claimOf("a", "d-1"), attachments: []storagev1.VolumeAttachment{attachmentOf("d-1", "n", false)}},
		Attached:    {claim: claimOf("a", "d-1"), attachments: []storagev1.VolumeAttachment{attachmentOf("d-1", "n", true)}},
		Detaching:   {claim: claimOf("a", "d-1"), attachments: []storagev1.VolumeAttachment{going}},
		Resizing:    {claim: claimOf("a", "d-1", condition(corev1.PersistentVolumeClaimFileSystemResizePending))},
		Modifying:   {claim: claimOf("a", "d-1", condition(corev1.PersistentVolumeClaimVolumeModifyingVolume))},
		Terminating: {claim: claimOf("a", "d-1", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) })},
	} {
		rows := Rows(Facts{Driver: driver, Claims: []corev1.PersistentVolumeClaim{c.claim}, Volumes: []corev1.PersistentVolume{volumeOf("d-1", "z", "cloud_auto", "")},
			Attachments: c.attachments, Classes: []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "essd"}, Provisioner: driver}}})
		if len(rows) != 1 || rows[0].State != want {
			t.Errorf("got %+v, want state %s", rows, want)
		}
	}
}

// Which node has a volume isn't concluded from attachments that were not read.
func TestStatesWithoutAttachments(t *testing.T) {
	f := example()
	f.Attachments, f.AttachmentsUnread = nil, true
	states := map[string]State{}
	for _, r := range Rows(f) {
		states[r.Claim] = r.State
	}
	if states["web"] != Unknown || states["new"] != Pending {
		t.Errorf("got %v", states)
	}
}

func TestAnAnnotationNamesTheClass(t *testing.T) {
	old := claimOf("a", "", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations, c.Spec.StorageClassName = map[string]string{corev1.BetaStorageClassAnnotation: "essd"}, nil
	})
	rows := Rows(Facts{Driver: driver, Claims: []corev1.PersistentVolumeClaim{old},
		Classes: []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "essd"}, Provisioner: driver}}})
	if len(rows) != 1 || rows[0].Class != "essd" {
		t.Errorf("got %+v", rows)
	}
}

func example() Facts {
	changed := func(c *corev1.PersistentVolumeClaim) { c.Status.CurrentVolumeAttributesClassName = ptr.To("fast") }
	other := volumeOf("d-9", "z", "x", "")
	other.Spec.CSI.Driver = "other"
	return Facts{
		Driver: driver,
		Claims: []corev1.PersistentVolumeClaim{claimOf("web", "d-1"), claimOf("mail", "d-2"), claimOf("new", ""), claimOf("tuned", "d-3", changed), claimOf("nas", "d-9"),
			claimOf("unread", "d-4", func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": driver}
			})},
		Volumes:     []corev1.PersistentVolume{volumeOf("d-1", "cn-hangzhou-h", "cloud_essd", "PL1"), volumeOf("d-2", "cn-hangzhou-i", "cloud_auto", ""), volumeOf("d-3", "cn-hangzhou-i", "cloud_essd", "PL1"), other},
		Attachments: []storagev1.VolumeAttachment{attachmentOf("d-1", "node-1", true)},
		Classes:     []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "essd"}, Provisioner: driver}},
		Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web"}}}}}}},
		Used: map[string]int64{"shop/web": 5 << 30},
		PerMonth: func(category, level, _ string, gib int64) (float64, bool) {
			return float64(gib) * 1.5, category == "cloud_essd" && level == "PL1"
		},
	}
}

func TestTables(t *testing.T) {
	for name, c := range map[string]struct {
		options printers.PrintOptions
		columns Columns
	}{
		"plain": {},
		"all":   {options: printers.PrintOptions{Wide: true}, columns: Columns{Namespace: true, Used: true, Currency: "CNY"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printers.NewTablePrinter(c.options).PrintObj(Table(Rows(example()), c.columns, noon), &out); err != nil {
				t.Fatal(err)
			}
			golden.Page(t, "testdata/"+name+".txt", out.String())
		})
	}
}

func TestSort(t *testing.T) {
	for by, want := range map[string]string{
		"name": "mail new tuned unread web", "zone": "new unread web mail tuned", "node": "mail new tuned unread web", "cost": "web mail new tuned unread",
		"used": "web mail new tuned unread", "size": "mail tuned web new unread", "state": "web mail tuned unread new", "type": "new tuned unread mail web",
		"age": "mail new tuned unread web",
	} {
		rows := Rows(example())
		if err := Sort(rows, by); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.Claim)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %s: got %q, want %q", by, got, want)
		}
		if !slices.Contains(Orders(), by) {
			t.Errorf("%s is not among %v", by, Orders())
		}
	}
	if err := Sort(nil, "color"); err == nil || !strings.Contains(err.Error(), "allowed are name, zone, ") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyChangesAreShownAgain(t *testing.T) {
	before, f := Rows(example()), example()
	f.Used["shop/web"]++ // which changes all the time
	if got := Changed(before, Rows(f)); len(got) != 0 {
		t.Errorf("nothing has changed, got %+v", got)
	}
	f.Attachments = append(f.Attachments, attachmentOf("d-2", "node-2", false))
	f.Claims = append(f.Claims, claimOf("newer", ""))
	got := Changed(before, Rows(f))
	if len(got) != 2 || got[0].Claim != "mail" || got[1].Claim != "newer" {
		t.Errorf("got %+v", got)
	}
	gone := Gone(before, slices.DeleteFunc(f.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == "mail" }))
	if len(gone) != 1 || gone[0].Claim != "mail" || gone[0].State != Deleted {
		t.Errorf("gone are %+v", gone)
	}
}
