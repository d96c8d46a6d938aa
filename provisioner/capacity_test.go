package provisioner

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/topology"
)

// capacityBench is capacities whose cache shows just what the API server has.
type capacityBench struct {
	*bench
	*capacities
	t       *testing.T
	classes cache.Store
}

func newCapacityBench(t *testing.T, classes ...*storagev1.StorageClass) *capacityBench {
	t.Helper()
	b := newBench(t, []answer{soldOutAnswer()}, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}})
	b.config.CapacityThreads = 2
	b.config.Capacity, b.config.CapacityPoll, b.config.Namespace = true, time.Minute, "kube-system"
	b.zones.requirement.Requisite = append(b.zones.requirement.Requisite, inZone("zone-b").requirement.Requisite...)
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, class := range classes {
		if err := store.Add(class); err != nil {
			t.Fatal(err)
		}
	}
	objects := cache.NewStore(cache.MetaNamespaceKeyFunc)
	return &capacityBench{bench: b, capacities: newCapacities(b.Provisioner, b.api, store, objects), t: t, classes: store}
}

// settle works the queue off and lets the cache catch up, until nothing is left to do.
func (b *capacityBench) settle() {
	b.t.Helper()
	b.refresh()
	for b.queue.Len() > 0 {
		b.next(b.t.Context())
	}
	list, err := b.api.StorageV1().CSIStorageCapacities("kube-system").List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	var now []any
	for _, object := range list.Items {
		now = append(now, &object)
	}
	if err := b.objects.Replace(now, ""); err != nil {
		b.t.Fatal(err)
	}
}

// told returns what the scheduler reads: bytes by class and zone.
func (b *capacityBench) told() map[capacityKey]int64 {
	told := map[capacityKey]int64{}
	for _, object := range b.objects.List() {
		o := object.(*storagev1.CSIStorageCapacity)
		told[keyOf(o)] = o.Capacity.Value()
	}
	return told
}

func (b *capacityBench) isAnnounced() bool {
	b.t.Helper()
	driver, err := b.api.StorageV1().CSIDrivers().Get(b.t.Context(), driverName, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return ptr.Deref(driver.Spec.StorageCapacity, false)
}

func TestOneObjectAClassAndZoneThatNamesTheZoneAlone(t *testing.T) {
	immediate, foreign := testClass(nil), testClass(nil)
	immediate.Name, immediate.VolumeBindingMode = "immediate", ptr.To(storagev1.VolumeBindingImmediate)
	foreign.Name, foreign.Provisioner = "foreign", "other.csi"
	b := newCapacityBench(t, testClass(nil), immediate, foreign)
	for range 2 { // the second look changes nothing
		b.settle()
	}
	want := map[capacityKey]int64{{"essd", "zone-a"}: math.MaxInt64, {"essd", "zone-b"}: math.MaxInt64}
	if got := b.told(); len(got) != 2 || got[capacityKey{"essd", "zone-a"}] != want[capacityKey{"essd", "zone-a"}] || got[capacityKey{"essd", "zone-b"}] != want[capacityKey{"essd", "zone-b"}] {
		t.Errorf("got %v, want %v", got, want)
	}
	object := b.objects.List()[0].(*storagev1.CSIStorageCapacity)
	if labels := object.NodeTopology.MatchLabels; len(labels) != 1 || labels[topology.WellKnownZoneKey] == "" {
		t.Errorf("node topology %v", labels)
	}
	if object.Labels[driverLabel] != driverName || object.Labels[managedByLabel] != managedBy {
		t.Errorf("labels %v", object.Labels)
	}
	if n := objectActions(b, "create"); n != 2 {
		t.Errorf("%d objects were made", n)
	}
	b.config.CapacityForImmediate = true
	b.settle()
	if got := b.told(); len(got) != 4 {
		t.Errorf("with immediate classes: %v", got)
	}
}

func objectActions(b *capacityBench, verb string) int {
	n := 0
	for _, a := range b.api.Actions() {
		if a.Matches(verb, "csistoragecapacities") {
			n++
		}
	}
	return n
}

func TestTheSchedulerIsToldOnlyOnceTheObjectsAreThere(t *testing.T) {
	b := newCapacityBench(t, testClass(nil))
	if err := b.announce(t.Context(), announcement); err != nil || b.isAnnounced() {
		t.Fatalf("announced without objects: %v", err)
	}
	b.settle()
	if err := b.announce(t.Context(), announcement); err != nil || !b.isAnnounced() {
		t.Errorf("not announced: %v", err)
	}
	patches := len(b.api.Actions())
	if err := b.announce(t.Context(), announcement); err != nil || len(b.api.Actions()) != patches+1 {
		t.Errorf("announced again: %v", b.api.Actions()[patches:])
	}
}

func TestASoldOutZoneHasNoCapacityUntilTheDriverIsAskedAgain(t *testing.T) {
	b := newCapacityBench(t, testClass(nil))
	b.settle()
	zoneA, zoneB := capacityKey{"essd", "zone-a"}, capacityKey{"essd", "zone-b"}
	b.bench.zones.requirement = inZone("zone-a").requirement
	_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), "node-1")
	b.bench.zones.requirement = newCapacityBench(t).bench.zones.requirement
	b.settle()
	if told := b.told(); told[zoneA] != 20*gib-1 || told[zoneB] != math.MaxInt64 {
		t.Errorf("sold out: %v", told)
	}
	b.clock = b.clock.Add(soldOutAtFirst)
	b.settle()
	if told := b.told(); told[zoneA] != math.MaxInt64 {
		t.Errorf("when it is asked again: %v", told)
	}
}

func TestARefusalForWhatOneNodeTakesSaysNothingOfItsZone(t *testing.T) {
	b := newCapacityBench(t, testClass(nil))
	b.bench.zones.requirement = inZone("zone-a").requirement
	b.bench.zones.requirement.Requisite[0].Segments["node.csi.alibabacloud.com/disktype.cloud_essd"] = "available"
	_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), "node-1")
	if most := b.soldOut.most(testClass(nil), "zone-a"); most != math.MaxInt64 {
		t.Errorf("got %d", most)
	}
}

func TestTheDriversWordCounts(t *testing.T) {
	b := newCapacityBench(t, testClass(map[string]string{"type": "cloud_essd"}))
	b.config.DriverTellsCapacity = true
	b.driver.capacity = map[string]int64{"zone-a": 0, "zone-b": 64 << 40}
	b.settle()
	if told := b.told(); told[capacityKey{"essd", "zone-a"}] != 0 || told[capacityKey{"essd", "zone-b"}] != 64<<40 {
		t.Errorf("got %v", told)
	}
	delete(b.driver.capacity, "zone-b") // it does not answer any more
	b.driver.capacity["zone-a"] = 1 << 40
	b.settle()
	if told := b.told(); told[capacityKey{"essd", "zone-a"}] != 1<<40 || told[capacityKey{"essd", "zone-b"}] != 64<<40 {
		t.Errorf("an unanswered question changed what was told: %v", told)
	}
}

func TestObjectsOfClassesAndZonesThatAreGoneGo(t *testing.T) {
	b := newCapacityBench(t, testClass(nil))
	b.settle()
	b.bench.zones.requirement = inZone("zone-a").requirement
	b.settle()
	var zones []string
	for key := range b.told() {
		zones = append(zones, key.zone)
	}
	if !slices.Equal(zones, []string{"zone-a"}) {
		t.Errorf("left are %v", zones)
	}
	if err := b.classes.Delete(testClass(nil)); err != nil {
		t.Fatal(err)
	}
	b.settle()
	if told := b.told(); len(told) != 0 {
		t.Errorf("left are %v", told)
	}
}

func TestCapacitiesEndWithTheirContext(t *testing.T) {
	b := newCapacityBench(t, testClass(nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.run(ctx); close(done) }()
	eventually(t, "an object was made", func() bool { return objectActions(b, "create") == 2 })
	cancel()
	<-done
}
