package watch

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

var must = provisionertest.Must

func TestUIDsWithOnePrefixAreDistinguished(t *testing.T) {
	uids := []types.UID{"0f1e-1", "0f1e-2", "0f2", "0f", ""}
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, VolumeIndexers())
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, ClaimIndexers())
	for _, uid := range uids {
		must(t, claims.Add(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-" + string(uid), UID: uid}}))
		must(t, volumes.Add(&v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "for-" + string(uid)}, Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: uid}},
		}))
	}
	must(t, volumes.Add(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "for-nobody"}}))
	for _, uid := range append(uids, "0f1e", "0f1e-3", "a") {
		want := 1
		if uid == "0f1e" || uid == "0f1e-3" || uid == "a" {
			want = 0
		}
		pvs, err := VolumesOfClaim(volumes, uid)
		if err != nil || len(pvs) != want || want == 1 && pvs[0].Name != "for-"+string(uid) {
			t.Errorf("the volumes of claim %q are %v, %v", uid, pvs, err)
		}
		of, err := ClaimsWithUID(claims, uid)
		if err != nil || len(of) != want || want == 1 && of[0].Name != "of-"+string(uid) {
			t.Errorf("the claims with UID %q are %v, %v", uid, of, err)
		}
	}
}

func TestHandlesWithOneSuffixAreDistinguished(t *testing.T) {
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, VolumeIndexers())
	for name, source := range map[string]*v1.CSIPersistentVolumeSource{
		"a": {Driver: "ours", VolumeHandle: "d-1xy"}, "b": {Driver: "ours", VolumeHandle: "d-2xy"},
		"c": {Driver: "other", VolumeHandle: "d-3xy"}, "d": {Driver: "ours", VolumeHandle: "y"},
	} {
		must(t, volumes.Add(&v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{CSI: source}},
		}))
	}
	for handle, want := range map[string]string{"d-1xy": "a", "d-2xy": "b", "d-3xy": "c", "y": "d", "xy": ""} {
		got, err := VolumesOfHandle(volumes, handle)
		if err != nil || len(got) > 1 || (len(got) == 1) != (want != "") || want != "" && got[0].Name != want {
			t.Errorf("the volumes of handle %q are %v, %v; want %q", handle, got, err, want)
		}
	}
}
