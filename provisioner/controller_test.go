package provisioner

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/topology"
)

// A leader remembers nothing of a claim that goes as it begins, and makes no volume for it.
func TestAClaimThatGoesAsALeaderBeginsIsForgotten(t *testing.T) {
	b := newLeader(t)
	b.driver.Creates = []answer{made("d-1", 0, "zone-a")}
	claim, later := provisionertest.Claim(), provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = "later", "later" })
	for _, object := range []runtime.Object{claim, provisionertest.Class(nil)} {
		must(t, b.api.Tracker().Add(object))
	}
	must(t, b.caches.Fill(t.Context()))
	b.claims.Start(claim)
	must(t, b.api.Tracker().Delete(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "shop", "data"))
	must(t, b.lead())
	must(t, b.api.Tracker().Add(later))
	provisionertest.Eventually(t, "a later claim was seen", func() bool { _, exists, _ := b.caches.Claims.GetStore().GetByKey("shop/later"); return exists })
	b.claims.Start(later)
	end := b.provisions(t.Context())
	provisionertest.Eventually(t, "the later claim has its volume", func() bool {
		list, err := b.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) > 0
	})
	provisionertest.Eventually(t, "the claim is forgotten", func() bool { return b.claims.ShouldStart(claim) })
	end()
	if creates, _ := b.driver.Calls(); creates != 1 {
		t.Errorf("%d calls for the one claim that is there", creates)
	}
}

// BenchmarkBoundVolume measures an event of a volume that is in use, among others.
func BenchmarkBoundVolume(b *testing.B) {
	for _, others := range []int{1000, 100000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			bench := newBench(b, nil)
			var volumes []*v1.PersistentVolume
			for i := range others {
				id, name, uid := fmt.Sprint("d-", i), fmt.Sprint("data-", i), uuid.NewUUID()
				pv := provisionertest.Volume(id, func(pv *v1.PersistentVolume) {
					pv.Status.Phase, pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = v1.VolumeBound, name, uid
				})
				claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Name, c.UID, c.Spec.VolumeName = name, uid, id })
				bench.show(b, claim, pv)
				volumes = append(volumes, pv)
			}
			for i := 0; b.Loop(); i++ {
				bench.volumeChanged(nil, volumes[i*7919%others])
			}
		})
	}
}

// What an informer delivers again wakes no claim, however many nodes there are.
func TestAResyncWakesNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, func(c *Config) { c.RetryStart, c.RetryMax = time.Hour, time.Hour })
		b.zones.Err = &topology.Error{Reason: topology.NoTopology}
		class, claim := provisionertest.Class(nil), provisionertest.Claim()
		b.show(t, class, claim)
		b.claims.Start(claim)
		end := b.provisions(t.Context())
		if synctest.Wait(); len(b.zones.Asked) != 1 {
			t.Fatalf("%d attempts", len(b.zones.Asked))
		}
		driver := storagev1.CSINodeDriver{Name: provisionertest.DriverName, TopologyKeys: []string{topology.ZoneKey}}
		csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{driver}}}
		plain, _ := node("node-1", "zone-a")
		changed := plain.DeepCopy()
		changed.Labels["team"] = "blue"
		beating := changed.DeepCopy()
		beating.ResourceVersion, beating.Annotations = "8", map[string]string{"beat": "1"}
		other := class.DeepCopy()
		other.ResourceVersion = "other"
		for _, step := range []struct {
			what string
			do   func()
			want int
		}{
			{"a new CSINode", func() { b.csiNodeChanged(csiNode) }, 1},
			{"the same CSINode", func() { b.csiNodeChanged(csiNode) }, 0},
			{"no CSINode any more", func() { b.csiNodeGone(csiNode) }, 1},
			{"a new Node", func() { b.nodeChanged(nil, plain) }, 1},
			{"another label of the Node", func() { b.nodeChanged(plain, changed) }, 1},
			{"a heartbeat of the Node", func() { b.nodeChanged(changed, beating) }, 0},
			{"no Node any more", func() { b.nodeGone(beating) }, 1},
			{"another class", func() { b.classChanged(class, other) }, 1},
			{"the same class", func() { b.classChanged(class, class.DeepCopy()) }, 0},
			{"the same claim", func() { b.claimChanged(claim, claim.DeepCopy()) }, 0},
		} {
			before := len(b.zones.Asked)
			step.do()
			if synctest.Wait(); len(b.zones.Asked) != before+step.want {
				t.Errorf("%s: %d claims are woken, want %d", step.what, len(b.zones.Asked)-before, step.want)
			}
		}
		end()
	})
}

func TestDiskTypeLabelsWakeNoClaim(t *testing.T) {
	const prefix = "node.csi.alibabacloud.com/disktype."
	zoned := func(more ...string) map[string]string {
		labels := map[string]string{"topology.kubernetes.io/zone": "zone-a"}
		for _, key := range more {
			labels[key] = "available"
		}
		return labels
	}
	for _, test := range []struct {
		what   string
		prefix string
		a, b   map[string]string
		want   bool
	}{
		{"a type that the node takes", prefix, zoned(), zoned(prefix + "cloud_essd"), true},
		{"one more, one less", prefix, zoned(prefix + "cloud_ssd"), zoned(prefix + "cloud_essd"), true},
		{"no labels at all before", prefix, nil, map[string]string{prefix + "cloud_essd": "available"}, true},
		{"a zone beside a type", prefix, map[string]string{}, zoned(prefix + "cloud_essd"), false},
		{"another label", prefix, zoned(), zoned("team"), false},
		{"a label without its prefix", prefix, zoned(), zoned("cloud_essd"), false},
		{"no prefix is passed on", "", zoned(), zoned(prefix + "cloud_essd"), false},
	} {
		if got := equalIgnoringPrefix(test.prefix, test.a, test.b); got != test.want {
			t.Errorf("%s: the same but for the types: %t", test.what, got)
		}
	}
}
