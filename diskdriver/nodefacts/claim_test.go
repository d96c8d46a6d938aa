package nodefacts

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// attachmentOf is the VolumeAttachment of disk d-1 to node n1, by a PersistentVolume.
func attachmentOf(volume *string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName("d-1", csiDriver, "n1")},
		Spec:       storagev1.VolumeAttachmentSpec{Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: volume}},
	}
}

// volumeOf is a PersistentVolume of a disk.
func volumeOf(disk string, claim *corev1.ObjectReference) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "named-by-hand"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef:               claim,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: disk}},
	}}
}

func TestADiskOfTheNodeIsAClaims(t *testing.T) {
	name := "named-by-hand"
	data := &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "u1"} // as of a PersistentVolume that somebody has bound by hand
	for _, row := range []struct {
		name    string
		objects []runtime.Object
		want    string
	}{
		{"attached", []runtime.Object{attachmentOf(&name), volumeOf("d-1", data)}, "v1 PersistentVolumeClaim shop/data u1"},
		{"not attached to this node", []runtime.Object{volumeOf("d-1", data)}, ""},
		{"of no PersistentVolume", []runtime.Object{attachmentOf(nil)}, ""},
		{"its PersistentVolume is gone", []runtime.Object{attachmentOf(&name)}, ""},
		{"its PersistentVolume is another disk's", []runtime.Object{attachmentOf(&name), volumeOf("d-2", data)}, ""},
		{"its PersistentVolume is no claim's", []runtime.Object{attachmentOf(&name), volumeOf("d-1", nil)}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			claim, err := NewSelf(fake.NewClientset(row.objects...), "n1", csiDriver, Limits{}).Claim(t.Context(), "d-1")
			got := ""
			if claim != nil {
				got = claim.APIVersion + " " + claim.Kind + " " + claim.Namespace + "/" + claim.Name + " " + string(claim.UID)
			}
			if err != nil || got != row.want {
				t.Errorf("got %q, %v; want %q", got, err, row.want)
			}
		})
	}
}

func TestAClaimThatCannotBeReadIsAnError(t *testing.T) {
	for _, resource := range []string{"volumeattachments", "persistentvolumes"} {
		name, refused := "named-by-hand", errors.New("refused")
		client := fake.NewClientset(attachmentOf(&name), volumeOf("d-1", nil))
		client.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		if claim, err := NewSelf(client, "n1", csiDriver, Limits{}).Claim(t.Context(), "d-1"); claim != nil || !errors.Is(err, refused) {
			t.Errorf("%s: got %v, %v", resource, claim, err)
		}
	}
}
