package provisioner

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
)

// within says whether something happens soon.
func within(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			return false
		}
		<-time.After(5 * time.Millisecond)
	}
	return true
}

// P1: a class is deleted and made anew under its name, for another provisioner, while
// nobody knows whether a disk was made.
func TestAnAttemptOutlivesItsClass(t *testing.T) {
	withoutNode := func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnSelectedNode) }
	x := newClaimFixture(t, []answer{{Err: status.Error(codes.Unavailable, "the reply was lost")}}, withoutNode)
	x.class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
	x.createClass()
	x.createClaim()
	x.awaitAsked(2)
	classes := x.api.StorageV1().StorageClasses()
	must(t, classes.Delete(t.Context(), x.class.Name, metav1.DeleteOptions{}))
	anew := x.class.DeepCopy()
	anew.UID, anew.Provisioner = "another", "another.csi.example.com"
	_, err := classes.Create(t.Context(), anew, metav1.CreateOptions{})
	must(t, err)
	provisionertest.Eventually(t, "the cache has the other class", func() bool {
		object, exists, err := x.c.caches.Classes.GetStore().GetByKey(anew.Name)
		return err == nil && exists && object.(*storagev1.StorageClass).UID == anew.UID
	})
	volume := "d-" + x.claim.Name
	x.driver.SetCreates(made(volume, 20*gib, "zone-a"))
	if !within(5*time.Second, func() bool { return x.hasVolume(volume) }) {
		t.Errorf("the volume is under way, and the driver is not asked any more: %d calls in all", x.asked())
	}
}
