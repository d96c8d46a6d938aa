package provisioner

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func TestUIDsThatStartAlikeAreNotTakenForOneAnother(t *testing.T) {
	uids := []types.UID{"0f1e-1", "0f1e-2", "0f2", "0f", ""}
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{volumesByClaim: claimOfVolume})
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, byStart(cache.Indexers{"uid": func(object any) ([]string, error) {
		return []string{string(object.(*v1.PersistentVolumeClaim).UID)}, nil
	}}))
	for _, uid := range uids {
		must(t, claims.Add(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-" + string(uid), UID: uid}}))
		must(t, volumes.Add(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "for-" + string(uid)}, Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: uid}}}))
	}
	must(t, volumes.Add(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "for-nobody"}}))
	library := &claimsIndexer{Indexer: claims, journal: newOrders(noStore{}), progress: newProgress(time.Now)}
	for _, uid := range append(uids, "0f1e", "0f1e-3", "a") {
		want := 1
		if uid == "0f1e" || uid == "0f1e-3" || uid == "a" {
			want = 0
		}
		pvs, err := volumesOf(volumes, uid)
		if err != nil || len(pvs) != want || want == 1 && pvs[0].Name != "for-"+string(uid) {
			t.Errorf("the volumes of claim %q are %v, %v", uid, pvs, err)
		}
		of, err := library.ByIndex("uid", string(uid))
		if err != nil || len(of) != want || want == 1 && of[0].(*v1.PersistentVolumeClaim).Name != "of-"+string(uid) {
			t.Errorf("the claims with UID %q are %v, %v", uid, of, err)
		}
	}
}
