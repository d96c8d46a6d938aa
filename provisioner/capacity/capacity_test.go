package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/topology"
)

// scriptedDriver answers with the capacities of zones.
type scriptedDriver struct {
	capacity map[string]int64 // by zone
	code     codes.Code       // of zones that capacity doesn't have; Unavailable if none
	calls    int
}

func (d *scriptedDriver) GetCapacity(_ context.Context, in *csi.GetCapacityRequest, _ ...grpc.CallOption) (*csi.GetCapacityResponse, error) {
	d.calls++
	bytes, ok := d.capacity[in.GetAccessibleTopology().GetSegments()[topology.WellKnownZoneKey]]
	if in.AccessibleTopology == nil && len(d.capacity) > 0 {
		bytes, ok = slices.Max(slices.Collect(maps.Values(d.capacity))), true
	}
	if !ok {
		return nil, status.Error(cmp.Or(d.code, codes.Unavailable), "no answer is scripted")
	}
	return &csi.GetCapacityResponse{AvailableCapacity: bytes}, nil
}

// nodeZones is a Topology of nodes in some zones.
type nodeZones []string

func (z nodeZones) Require(topology.Question) (*csi.TopologyRequirement, error) {
	if len(z) == 0 {
		return nil, &topology.Error{Reason: topology.NoTopology, Err: errors.New("no node")}
	}
	return &csi.TopologyRequirement{Requisite: terms(z...)}, nil
}

func (nodeZones) Mislabelled() []string { return nil }
func (nodeZones) OnMislabelled(func())  {}

// withMislabelled is a Topology that has nodes with zone labels that disagree, too.
type withMislabelled struct {
	nodeZones
	hostnames []string
}

func (w withMislabelled) Mislabelled() []string { return w.hostnames }

func terms(zones ...string) (terms []*csi.Topology) {
	for _, zone := range zones {
		terms = append(terms, &csi.Topology{Segments: map[string]string{topology.WellKnownZoneKey: zone}})
	}
	return terms
}

// bench is a Controller whose cache shows just what the API server has.
type bench struct {
	*Controller
	t        *testing.T
	api      *fake.Clientset
	scripted *scriptedDriver
	clock    time.Time
}

func newBench(t *testing.T, classes ...*storagev1.StorageClass) *bench {
	t.Helper()
	b := &bench{
		t: t, scripted: &scriptedDriver{}, clock: time.Unix(1700000000, 0),
		api: fake.NewClientset(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: provisionertest.DriverName}}),
	}
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, class := range classes {
		if err := store.Add(class); err != nil {
			t.Fatal(err)
		}
	}
	now := func() time.Time { return b.clock }
	b.Controller = NewController(Config{
		DriverName: provisionertest.DriverName, Namespace: "kube-system", PollInterval: time.Minute, Timeout: 10 * time.Second,
		RetryStart: time.Hour, RetryMax: time.Hour, // no retry comes while a test works the queue off
		Parameters: func(class *storagev1.StorageClass) (map[string]string, error) {
			if class.Parameters["wrong"] != "" {
				return nil, errors.New("no volume can be made of the class")
			}
			return class.Parameters, nil
		},
		Unknown: func(error) {},
	}, b.api, b.scripted, nodeZones{"zone-a", "zone-b"}, stock.New(now), store, cache.NewStore(cache.MetaNamespaceKeyFunc), now)
	t.Cleanup(b.queue.ShutDown)
	return b
}

// tellsCapacity has the driver say how much there is in each zone.
func (b *bench) tellsCapacity(said map[string]int64) {
	b.config.GetCapacity, b.scripted.capacity = true, said
}

// work works the queue off, and leaves the cache as it is.
func (b *bench) work() {
	b.t.Helper()
	b.enqueueAll()
	for b.queue.Len() > 0 {
		b.processNext(b.t.Context())
	}
}

// settle works the queue off and lets the cache catch up.
func (b *bench) settle() {
	b.t.Helper()
	b.work()
	var now []any
	for _, object := range b.written() {
		now = append(now, &object)
	}
	if err := b.objects.Replace(now, ""); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) written() []storagev1.CSIStorageCapacity {
	b.t.Helper()
	list, err := b.api.StorageV1().CSIStorageCapacities("kube-system").List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

// nowhere is read as a node without a zone label.
const nowhere = ""

// reads returns the largest volume of a class that the scheduler takes a node of a zone to have: of the objects that
// match it the most; -1 if none does.
func reads(objects []storagev1.CSIStorageCapacity, class, zone string) int64 {
	node, most := labels.Set{topology.WellKnownZoneKey: zone}, int64(-1)
	if zone == nowhere {
		node = nil
	}
	for _, object := range objects {
		selector, err := metav1.LabelSelectorAsSelector(object.NodeTopology)
		if err == nil && object.NodeTopology != nil && object.StorageClassName == class && selector.Matches(node) {
			most = max(most, object.MaximumVolumeSize.Value())
		}
	}
	return most
}

// checkReads checks what the scheduler reads of class essd.
func (b *bench) checkReads(objects int, want map[string]int64) {
	b.t.Helper()
	written := b.written()
	if len(written) != objects {
		b.t.Errorf("%d objects, want %d: %v", len(written), objects, written)
	}
	for zone, bytes := range want {
		if got := reads(written, "essd", zone); got != bytes {
			b.t.Errorf("zone %q has %d, want %d", zone, got, bytes)
		}
	}
}

func (b *bench) isEnabled() bool {
	b.t.Helper()
	driver, err := b.api.StorageV1().CSIDrivers().Get(b.t.Context(), provisionertest.DriverName, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return ptr.Deref(driver.Spec.StorageCapacity, false)
}

func objectActions(b *bench, verb string) int {
	n := 0
	for _, a := range b.api.Actions() {
		if a.Matches(verb, "csistoragecapacities") {
			n++
		}
	}
	return n
}

const all = math.MaxInt64

func TestAClassHasOneGeneralObject(t *testing.T) {
	immediate, foreign := provisionertest.Class(nil), provisionertest.Class(nil)
	immediate.Name, immediate.VolumeBindingMode = "immediate", ptr.To(storagev1.VolumeBindingImmediate)
	foreign.Name, foreign.Provisioner = "foreign", "other.csi"
	b := newBench(t, provisionertest.Class(nil), immediate, foreign)
	for range 2 { // the second look changes nothing
		b.settle()
	}
	b.checkReads(1, map[string]int64{"zone-a": all, "zone-b": all, "zone-never-seen": all, nowhere: all})
	object := b.written()[0]
	if object.Labels[driverLabel] != provisionertest.DriverName || object.Labels[managedByLabel] != managedBy {
		t.Errorf("labels %v", object.Labels)
	}
	if creates, lists := objectActions(b, "create"), objectActions(b, "list"); creates != 1 || lists != 5 {
		t.Errorf("%d objects were made with %d lists, of which four are the test's; want 1 and 5", creates, lists)
	}
}

func TestAClassHasItsObjectWithoutNodes(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.topology = nodeZones{}
	b.settle()
	b.checkReads(1, map[string]int64{"zone-a": all, nowhere: all})
}

func TestStorageCapacityIsSetAfterTheObjects(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	if err := b.syncCSIDriver(t.Context(), csiDriver); err != nil || b.isEnabled() {
		t.Fatalf("announced without objects: %v", err)
	}
	b.settle()
	if err := b.syncCSIDriver(t.Context(), csiDriver); err != nil || !b.isEnabled() {
		t.Errorf("not announced: %v", err)
	}
	patches := len(b.api.Actions())
	if err := b.syncCSIDriver(t.Context(), csiDriver); err != nil || len(b.api.Actions()) != patches+1 {
		t.Errorf("announced again: %v", b.api.Actions()[patches:])
	}
}

// sellOut has the driver refuse 20 GiB of class essd in zone-a.
func (b *bench) sellOut() {
	b.refusals.Refused(stock.Want{Class: provisionertest.Class(nil), Requisite: terms("zone-a"), Bytes: 20 * provisionertest.GiB, Claim: "uid-1", Node: "node-1"}, 0, b.clock)
}

func TestASoldOutZoneIsAnException(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.settle()
	b.sellOut()
	b.settle()
	b.checkReads(2, map[string]int64{"zone-a": 20*provisionertest.GiB - 1, "zone-b": all, "zone-never-seen": all, nowhere: all})
	b.clock = b.clock.Add(stock.FirstPause)
	b.settle()
	b.checkReads(1, map[string]int64{"zone-a": all, "zone-b": all, nowhere: all})
}

// After every single write a zone has no less than before it or after the whole change, whichever is less, and no more
// than the other: the process may end there.
func TestEveryZoneIsCoveredDuringWrites(t *testing.T) {
	words := []map[string]int64{
		{"zone-a": 64 << 40, "zone-b": 64 << 40, "zone-c": 64 << 40},
		{"zone-a": 0, "zone-b": 64 << 40, "zone-c": 64 << 40},
		{"zone-a": 0, "zone-b": 32 << 40, "zone-c": 0},
		{"zone-a": 0, "zone-b": 0, "zone-c": 0},
		{"zone-a": 32 << 40, "zone-b": 32 << 40, "zone-c": 32 << 40},
		{"zone-a": 64 << 40, "zone-b": 0, "zone-c": 32 << 40},
	}
	b := newBench(t, provisionertest.Class(nil))
	b.topology = nodeZones{"zone-a", "zone-b", "zone-c"}
	b.tellsCapacity(words[0])
	b.settle()
	places := []string{"zone-a", "zone-b", "zone-c", "zone-never-seen", nowhere}
	for from := range words {
		for to := range words {
			b.scripted.capacity = words[from]
			b.settle()
			begin := b.written()
			var steps [][]storagev1.CSIStorageCapacity
			b.api.PrependReactor("*", "csistoragecapacities", func(a clienttesting.Action) (bool, runtime.Object, error) {
				resource, kind := storagev1.SchemeGroupVersion.WithResource("csistoragecapacities"), storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity")
				list, err := b.api.Tracker().List(resource, kind, "kube-system")
				if err == nil {
					steps = append(steps, list.(*storagev1.CSIStorageCapacityList).Items) // before each request: after the one before it
				}
				return false, nil, err
			})
			b.scripted.capacity = words[to]
			b.settle()
			b.api.ReactionChain = b.api.ReactionChain[1:]
			end := b.written()
			for _, zone := range places {
				was, is := reads(begin, "essd", zone), reads(end, "essd", zone)
				for n, step := range steps {
					if now := reads(step, "essd", zone); now < min(was, is) || now > max(was, is) {
						t.Errorf("from %v to %v, step %d: zone %q has %d, before %d, after %d", words[from], words[to], n, zone, now, was, is)
					}
				}
			}
			for zone, bytes := range words[to] {
				if got := reads(end, "essd", zone); got != bytes {
					t.Errorf("from %v to %v: zone %s has %d", words[from], words[to], zone, got)
				}
			}
		}
	}
}

// The cache shows neither what was written nor what was deleted last.
func TestAStaleCacheLeavesNoClassUncovered(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.settle()
	first := b.objects.List()
	b.sellOut()
	b.settle()
	if err := b.objects.Replace(append(b.objects.List(), first...), ""); err != nil {
		t.Fatal(err) // the general object of before is deleted, and shown
	}
	b.clock = b.clock.Add(stock.FirstPause)
	b.settle()
	b.checkReads(1, map[string]int64{"zone-a": all, "zone-b": all, nowhere: all})
}

// readsOn returns what reads does of a node with that hostname.
func readsOn(objects []storagev1.CSIStorageCapacity, zone, hostname string) int64 {
	node, most := labels.Set{topology.WellKnownZoneKey: zone, corev1.LabelHostname: hostname}, int64(-1)
	for _, object := range objects {
		if selector, err := metav1.LabelSelectorAsSelector(object.NodeTopology); err == nil && selector.Matches(node) {
			most = max(most, object.MaximumVolumeSize.Value())
		}
	}
	return most
}

func TestNoObjectSpeaksOfAMislabelledNode(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.tellsCapacity(map[string]int64{"zone-a": 1 << 40, "zone-b": 64 << 40})
	b.settle()
	before := b.written()
	b.topology = withMislabelled{nodeZones{"zone-a", "zone-b"}, []string{"odd-1", "odd-2"}}
	b.settle()
	b.checkReads(2, map[string]int64{"zone-a": 1 << 40, "zone-b": 64 << 40, "zone-never-seen": 64 << 40, nowhere: 64 << 40})
	for zone, bytes := range map[string]int64{"zone-a": 1 << 40, "zone-b": 64 << 40, "zone-never-seen": 64 << 40} {
		for hostname, want := range map[string]int64{"odd-1": -1, "odd-2": -1, "even": bytes} {
			if got := readsOn(b.written(), zone, hostname); got != want {
				t.Errorf("node %s in %s has %d, want %d", hostname, zone, got, want)
			}
		}
	}
	b.topology = nodeZones{"zone-a", "zone-b"}
	b.settle()
	sameName := func(a, b storagev1.CSIStorageCapacity) bool { return a.Name == b.Name }
	if after := b.written(); !slices.EqualFunc(before, after, sameName) {
		t.Errorf("the objects are %v, and were %v", after, before)
	}
}

func TestObjectsLeaveOutABoundedNumberOfNodes(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	var hostnames []string
	for n := range 3 * maxUnusable {
		hostnames = append(hostnames, fmt.Sprintf("odd-%03d", n))
	}
	b.topology = withMislabelled{nodeZones{"zone-a"}, hostnames}
	b.settle()
	if left := b.written()[0].NodeTopology.MatchExpressions[0].Values; !slices.Equal(left, hostnames[:maxUnusable]) {
		t.Errorf("left out are %d: %v", len(left), left)
	}
}

func TestMislabelledNodesAreLeftOutAtOnce(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	index := topology.NewIndex(provisionertest.DriverName)
	b.topology = index
	index.OnMislabelled(b.enqueueAll)
	b.settle()
	label := func(private string) {
		index.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{
			corev1.LabelHostname: "host-1", topology.WellKnownZoneKey: "zone-a", topology.ZoneKey: private}}})
	}
	label("zone-a")
	index.SetCSINode(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: provisionertest.DriverName, TopologyKeys: []string{topology.ZoneKey, topology.WellKnownZoneKey}}}}})
	for _, step := range []struct {
		private string
		queued  int
	}{{"zone-a", 0}, {"zone-x", 1}, {"zone-y", 0}, {"zone-a", 1}} {
		label(step.private)
		if got := b.queue.Len(); got != step.queued {
			t.Errorf("label %s: %d classes are queued, want %d", step.private, got, step.queued)
		}
		b.settle()
		want := int64(all)
		if step.private != "zone-a" {
			want = -1
		}
		if got := readsOn(b.written(), "zone-a", "host-1"); got != want {
			t.Errorf("label %s: the node has %d, want %d", step.private, got, want)
		}
	}
	index.DeleteNode("node-1")
}

func TestARefusalForANodeIsNotForItsZone(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	requisite := terms("zone-a")
	requisite[0].Segments["node.csi.alibabacloud.com/disktype.cloud_essd"] = "available"
	b.refusals.Refused(stock.Want{Class: provisionertest.Class(nil), Requisite: requisite, Bytes: 20 * provisionertest.GiB, Claim: "uid-1", Node: "node-1"}, 0, b.clock)
	if most := b.refusals.Most(provisionertest.Class(nil), "zone-a"); most != math.MaxInt64 {
		t.Errorf("got %d", most)
	}
}

func TestCapacityOfTheDriver(t *testing.T) {
	b := newBench(t, provisionertest.Class(map[string]string{"type": "cloud_essd"}))
	b.tellsCapacity(map[string]int64{"zone-a": 0, "zone-b": 64 << 40})
	b.settle()
	b.checkReads(2, map[string]int64{"zone-a": 0, "zone-b": 64 << 40, "zone-never-seen": 64 << 40, nowhere: 64 << 40})
	b.scripted.capacity = map[string]int64{"zone-b": 64 << 40} // of zone-a it doesn't say any more
	b.settle()
	b.checkReads(2, map[string]int64{"zone-a": 0, "zone-b": 64 << 40})
	b.scripted.capacity = nil // nor anything
	b.settle()
	b.checkReads(2, map[string]int64{"zone-a": 0, "zone-b": 64 << 40, nowhere: 64 << 40})
	b.scripted.capacity = map[string]int64{"zone-a": 0, "zone-b": 0}
	b.settle()
	b.checkReads(3, map[string]int64{"zone-a": 0, "zone-b": 0, "zone-never-seen": all, nowhere: all})
	b.scripted.capacity = map[string]int64{"zone-a": 1 << 40, "zone-b": 64 << 40}
	b.settle()
	b.checkReads(2, map[string]int64{"zone-a": 1 << 40, "zone-b": 64 << 40})
}

func TestAnUnavailableDriverChangesNothing(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.tellsCapacity(nil)
	b.settle()
	b.checkReads(1, map[string]int64{"zone-a": all, "zone-b": all, nowhere: all})
	if b.scripted.calls != 1 {
		t.Errorf("a driver that doesn't answer was asked %d times for one class", b.scripted.calls)
	}
}

// What the driver doesn't say is told once it lasts, once a minute for all classes, and not as long as a single answer is missing.
func TestWhoeverAsksIsToldOfCapacitiesThatAreNotKnown(t *testing.T) {
	other := provisionertest.Class(nil)
	other.Name = "other"
	b := newBench(t, provisionertest.Class(nil), other)
	var told []error
	b.config.Unknown = func(err error) { told = append(told, err) }
	b.tellsCapacity(map[string]int64{"zone-a": 64 << 40, "zone-b": 0})
	b.settle()
	b.scripted.capacity, b.scripted.code = nil, codes.PermissionDenied
	for _, step := range []struct {
		after time.Duration
		told  int
	}{{0, 0}, {30 * time.Second, 0}, {30 * time.Second, 1}, {30 * time.Second, 1}, {30 * time.Second, 2}} {
		b.clock = b.clock.Add(step.after)
		b.settle()
		if len(told) != step.told {
			t.Fatalf("told %d times after %v more, want %d: %v", len(told), step.after, step.told, told)
		}
		b.checkReads(4, map[string]int64{"zone-a": 64 << 40, "zone-b": 0, nowhere: 64 << 40})
	}
	if status.Code(errors.Unwrap(told[0])) != codes.PermissionDenied {
		t.Errorf("told was %v", told[0])
	}
	b.scripted.capacity = map[string]int64{"zone-a": 64 << 40, "zone-b": 64 << 40}
	b.settle()
	b.scripted.capacity = nil
	b.settle()
	if len(told) != 2 {
		t.Errorf("a single answer that is missing was told of: %v", told[2:])
	}
}

// A class that the driver can't read must not look sold out: the claim's event says what is wrong with it.
func TestAnInvalidClassIsNotSoldOut(t *testing.T) {
	for name, class := range map[string]*storagev1.StorageClass{
		"to the driver":      provisionertest.Class(map[string]string{"type": "cloud_nonsense"}),
		"to the provisioner": provisionertest.Class(map[string]string{"topodisk.io/strict-topology": "perhaps"}),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, class)
			b.tellsCapacity(nil)
			b.scripted.code = codes.InvalidArgument
			b.settle()
			b.checkReads(1, map[string]int64{"zone-a": all, "zone-b": all, nowhere: all})
		})
	}
}

func TestAZoneScaledToZeroKeepsItsException(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.tellsCapacity(map[string]int64{"zone-a": 0, "zone-b": 64 << 40})
	b.settle()
	b.topology = nodeZones{"zone-b"}
	b.settle()
	b.checkReads(2, map[string]int64{"zone-a": 0, "zone-b": 64 << 40})
	b.scripted.capacity["zone-a"] = 64 << 40
	b.settle()
	b.checkReads(1, map[string]int64{"zone-a": 64 << 40, "zone-b": 64 << 40})
}

// before writes the objects of the version before exceptions: one a zone.
func (b *bench) before(said map[string]int64) {
	b.t.Helper()
	for zone, bytes := range said {
		object := b.config.newObject(scope{class: "essd", zone: zone}, bytes)
		if _, err := b.api.StorageV1().CSIStorageCapacities("kube-system").Create(b.t.Context(), object, metav1.CreateOptions{}); err != nil {
			b.t.Fatal(err)
		}
		if err := b.objects.Add(object); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestObjectsOfAnEarlierVersionAreAdopted(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.before(map[string]int64{"zone-a": 64 << 40, "zone-b": 0, "zone-gone": 64 << 40})
	b.tellsCapacity(map[string]int64{"zone-a": 64 << 40, "zone-b": 0, "zone-gone": 64 << 40})
	b.settle()
	b.checkReads(2, map[string]int64{"zone-a": 64 << 40, "zone-b": 0, "zone-gone": 64 << 40, nowhere: 64 << 40})
	if creates, updates := objectActions(b, "create"), objectActions(b, "update"); creates != 4 || updates != 0 {
		t.Errorf("%d creates, of which three are the test's, and %d updates; want 4 and 0", creates, updates)
	}
}

// An object without labels is found by its name.
func TestAnObjectWithoutLabelsIsWritten(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.settle()
	unlabelled := b.written()[0].DeepCopy()
	unlabelled.Labels = nil
	if _, err := b.api.StorageV1().CSIStorageCapacities("kube-system").Update(b.t.Context(), unlabelled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.objects.Replace(nil, ""); err != nil { // the informer lists by labels
		t.Fatal(err)
	}
	b.settle()
	objects := b.written()
	if len(objects) != 1 || objects[0].Name != unlabelled.Name || objects[0].Labels[driverLabel] != provisionertest.DriverName {
		t.Errorf("the objects are %v", objects)
	}
}

func TestObjectsOfDeletedClassesAreDeleted(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.settle()
	b.sellOut()
	b.settle()
	if err := b.classes.Delete(provisionertest.Class(nil)); err != nil {
		t.Fatal(err)
	}
	b.settle()
	b.checkReads(0, nil)
}

func TestClassesWithStockHaveOneObject(t *testing.T) {
	var classes []*storagev1.StorageClass
	for _, name := range []string{"essd", "other"} {
		class := provisionertest.Class(nil)
		class.Name = name
		classes = append(classes, class)
	}
	b := newBench(t, classes...)
	zones, said := nodeZones{"zone-a", "zone-b"}, map[string]int64{}
	for n := range 20 {
		zones = append(zones, fmt.Sprintf("zone-%d", n))
	}
	for _, zone := range zones {
		said[zone] = 64 << 40
	}
	b.topology = zones
	b.tellsCapacity(said)
	b.settle()
	b.checkReads(2, map[string]int64{"zone-0": 64 << 40, "zone-19": 64 << 40})
}

func TestCapacitiesEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, provisionertest.Class(nil))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		synctest.Wait()
		if creates := objectActions(b, "create"); creates != 1 {
			t.Errorf("%d objects were made", creates)
		}
		cancel()
		<-done
	})
}

func TestWithdrawDeletesEverything(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	b.settle()
	b.sellOut()
	b.settle()
	foreign := b.config.newObject(scope{class: "essd", zone: "zone-c"}, 0)
	foreign.Name, foreign.Labels = "foreign", map[string]string{driverLabel: provisionertest.DriverName, managedByLabel: "external-provisioner"}
	if _, err := b.api.StorageV1().CSIStorageCapacities("kube-system").Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.syncCSIDriver(t.Context(), csiDriver); err != nil || !b.isEnabled() {
		t.Fatalf("not announced: %v", err)
	}
	b.api.ClearActions()
	for _, want := range []int{2, 0} {
		deleted, err := Withdraw(t.Context(), b.api, provisionertest.DriverName, "kube-system")
		if err != nil || deleted != want || b.isEnabled() {
			t.Fatalf("%d deleted, want %d; announced %v, %v", deleted, want, b.isEnabled(), err)
		}
	}
	if left := b.written(); len(left) != 1 || left[0].Name != "foreign" {
		t.Errorf("left are %v", left)
	}
	var order []string
	for _, a := range b.api.Actions() {
		if verb := a.GetVerb(); verb != "get" && verb != "list" {
			order = append(order, verb+" "+a.GetResource().Resource)
		}
	}
	want := []string{"update csistoragecapacities", "patch csidrivers", "delete csistoragecapacities", "delete csistoragecapacities"}
	if !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

// What can't be listed or raised must not keep the scheduler looking; what it looks at must not be deleted.
func TestWithdrawContinuesAfterErrors(t *testing.T) {
	for name, test := range map[string]struct {
		verb, resource string
		announced      bool
		left           int
	}{
		"list objects":  {"list", "csistoragecapacities", false, 1},
		"raise objects": {"update", "csistoragecapacities", false, 0},
		"patch driver":  {"patch", "csidrivers", true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, provisionertest.Class(nil))
			b.tellsCapacity(map[string]int64{"zone-a": 1 << 40, "zone-b": 1 << 40})
			b.settle()
			if err := b.syncCSIDriver(t.Context(), csiDriver); err != nil {
				t.Fatal(err)
			}
			b.api.PrependReactor(test.verb, test.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("forbidden here")
			})
			if _, err := Withdraw(t.Context(), b.api, provisionertest.DriverName, "kube-system"); err == nil {
				t.Error("no error")
			}
			b.api.ReactionChain = b.api.ReactionChain[1:]
			if b.isEnabled() != test.announced || len(b.written()) != test.left {
				t.Errorf("announced %v, %d objects are left", b.isEnabled(), len(b.written()))
			}
		})
	}
}

func TestWithdrawUpdatesAnObjectOnce(t *testing.T) {
	b := newBench(t, provisionertest.Class(nil))
	object := b.config.newObject(scope{class: "essd"}, all)
	if err := removeLimit(t.Context(), b.api, object); err != nil || objectActions(b, "update") != 0 {
		t.Errorf("%v, %d updates", err, objectActions(b, "update"))
	}
	if q := resource.NewQuantity(all, resource.BinarySI); q.Cmp(*object.Capacity) != 0 {
		t.Errorf("everything is %v", object.Capacity)
	}
}
