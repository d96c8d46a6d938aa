package watch

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

// P12: while the watch is down a claim is deleted and made anew; the list that follows
// makes one change of it.
func TestARelistReportsARecreatedClaim(t *testing.T) {
	source := cachetesting.NewFakePVCControllerSource()
	informer := cache.NewSharedIndexInformer(source, &v1.PersistentVolumeClaim{}, 0, cache.Indexers{})
	gone := make(chan types.UID, 10)
	changed := make(chan types.UID, 10)
	_, err := informer.AddEventHandler(OnEvent(
		func(claim *v1.PersistentVolumeClaim) { changed <- claim.UID },
		func(claim *v1.PersistentVolumeClaim) { gone <- claim.UID }))
	must(t, err)
	claim := func(uid types.UID) *v1.PersistentVolumeClaim {
		return provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.UID = uid })
	}
	old := claim("old")
	source.Add(old)
	go informer.Run(t.Context().Done())
	if uid := <-changed; uid != "old" {
		t.Fatalf("the cache has %s", uid)
	}
	source.DeleteDropWatch(old)
	source.AddDropWatch(claim("new"))
	source.ResetWatch()
	if uid := <-changed; uid != "new" {
		t.Fatalf("the cache has %s", uid)
	}
	select {
	case uid := <-gone:
		if uid != "old" {
			t.Errorf("%s is gone", uid)
		}
	case <-time.After(5 * time.Second):
		t.Error("nobody has heard that the old claim is gone: its order stays in the journal")
	}
}
