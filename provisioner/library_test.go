package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

// These tests run the library itself, once for all of them: it cannot be
// stopped, and a second one in a process would race with it. Each test has
// objects of its own. What a fake API server cannot show (versions,
// preconditions, finalizers) is shown by test/e2e on a real one.

// driverMux is a Driver that hands each volume's calls to its test's script.
type driverMux struct {
	mu      sync.Mutex
	scripts map[string]*scriptedDriver // by volume name, and by volume ID
}

func (s *driverMux) find(key string) *scriptedDriver {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scripts[key]
}

func (s *driverMux) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, opts ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	return s.find(in.Name).CreateVolume(ctx, in, opts...)
}

func (s *driverMux) DeleteVolume(ctx context.Context, in *csi.DeleteVolumeRequest, opts ...grpc.CallOption) (*csi.DeleteVolumeResponse, error) {
	return s.find(in.VolumeId).DeleteVolume(ctx, in, opts...)
}

func (s *driverMux) AwaitReturn(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *driverMux) GetCapacity(context.Context, *csi.GetCapacityRequest, ...grpc.CallOption) (*csi.GetCapacityResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not in these tests")
}

func (s *driverMux) ListVolumes(context.Context, *csi.ListVolumesRequest, ...grpc.CallOption) (*csi.ListVolumesResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not in these tests")
}

// controllerFixture is the one running Controller of the tests.
type controllerFixture struct {
	api      *fake.Clientset
	metadata *metadatafake.FakeMetadataClient
	c        *Controller
	*driverMux
}

var sharedController = sync.OnceValues(func() (*controllerFixture, error) {
	n1, csiNode1 := node("node-1", "zone-a")
	n2, csiNode2 := node("node-2", "zone-b")
	s := &controllerFixture{
		api: fake.NewClientset(csiNode1, csiNode2), metadata: provisionertest.MetadataClient(n1, n2),
		driverMux: &driverMux{scripts: map[string]*scriptedDriver{}},
	}
	c, err := NewController(testConfig(), Clients{Main: s.api, Events: s.api, Metadata: s.metadata}, s, prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	s.c = c
	ctx := context.Background()
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	go func() { _ = c.Run(ctx) }()
	return s, nil
})

func node(name, zone string) (*metav1.PartialObjectMetadata, *storagev1.CSINode) {
	keys := []string{topology.ZoneKey, topology.WellKnownZoneKey}
	return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{keys[0]: zone, keys[1]: zone}},
		},
		&storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: provisionertest.DriverName, NodeID: "i-" + name, TopologyKeys: keys}}},
		}
}

var named atomic.Int64

// uniqueName returns a name that no object had before: a test may run several times in a process.
func uniqueName(name string) string { return fmt.Sprintf("%s-%d", name, named.Add(1)) }

// claimFixture is one test's claim, with its class and its driver.
type claimFixture struct {
	*controllerFixture
	t      *testing.T
	driver *scriptedDriver
	claim  *v1.PersistentVolumeClaim
	class  *storagev1.StorageClass
}

// newClaimFixture returns a claim that is named after the test.
func newClaimFixture(t *testing.T, answers []answer, change ...func(*v1.PersistentVolumeClaim)) *claimFixture {
	t.Helper()
	s, err := sharedController()
	if err != nil {
		t.Fatal(err)
	}
	name := uniqueName(strings.ToLower(t.Name()))
	claim := provisionertest.Claim(change...)
	claim.Namespace, claim.UID, claim.Spec.StorageClassName = name, types.UID(name), &name
	class := provisionertest.Class(nil)
	class.Name = name
	driver := &scriptedDriver{ScriptedDriver: provisionertest.ScriptedDriver{Creates: answers}}
	x := &claimFixture{controllerFixture: s, t: t, driver: driver, claim: claim, class: class}
	s.mu.Lock()
	s.scripts["disk-"+name] = x.driver
	s.mu.Unlock()
	return x
}

// createNode puts a Node where its metadata is watched, and where it is asked for.
func (x *claimFixture) createNode(n *metav1.PartialObjectMetadata) {
	x.t.Helper()
	if _, err := x.api.CoreV1().Nodes().Create(x.t.Context(), &v1.Node{ObjectMeta: n.ObjectMeta}, metav1.CreateOptions{}); err != nil {
		x.t.Fatal(err)
	}
	nodes := x.metadata.Resource(v1.SchemeGroupVersion.WithResource("nodes")).(metadatafake.MetadataClient)
	if _, err := nodes.CreateFake(n, metav1.CreateOptions{}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *claimFixture) createClass() {
	x.t.Helper()
	if _, err := x.api.StorageV1().StorageClasses().Create(x.t.Context(), x.class, metav1.CreateOptions{}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *claimFixture) createClaim() {
	x.t.Helper()
	if _, err := x.api.CoreV1().PersistentVolumeClaims(x.claim.Namespace).Create(x.t.Context(), x.claim, metav1.CreateOptions{}); err != nil {
		x.t.Fatal(err)
	}
}

// versions counts the versions of claims that updateClaim writes.
var versions atomic.Uint64

func init() { versions.Store(7) } // of those that tests create

// updateClaim writes a new version of the claim.
func (x *claimFixture) updateClaim(change func(*v1.PersistentVolumeClaim)) {
	x.t.Helper()
	claim := x.claim.DeepCopy()
	change(claim)
	claim.ResourceVersion = strconv.FormatUint(versions.Add(1), 10)
	if _, err := x.api.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(x.t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *claimFixture) deleteClaim() {
	x.t.Helper()
	if err := x.api.CoreV1().PersistentVolumeClaims(x.claim.Namespace).Delete(x.t.Context(), x.claim.Name, metav1.DeleteOptions{}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *claimFixture) asked() int { n, _ := x.driver.Calls(); return n }

func (x *claimFixture) awaitAsked(more int) {
	x.t.Helper()
	before := x.asked()
	provisionertest.Eventually(x.t, "the driver was asked", func() bool { return x.asked() >= before+more })
}

func (x *claimFixture) hasVolume(name string) bool {
	_, err := x.api.CoreV1().PersistentVolumes().Get(context.Background(), name, metav1.GetOptions{})
	return err == nil
}

func (x *claimFixture) awaitVolume(name string) {
	x.t.Helper()
	provisionertest.Eventually(x.t, "PersistentVolume "+name+" was saved", func() bool { return x.hasVolume(name) })
}

// failures is how many attempts have failed since there is the class.
func (x *claimFixture) failures() float64 {
	return testutil.ToFloat64(x.c.metrics.upstream.PersistentVolumeClaimProvisionFailedTotal.WithLabelValues(x.class.Name))
}

// isKnown says whether something is remembered of the claim.
func (x *claimFixture) isKnown() bool { return !x.c.claims.ShouldStart(x.claim) }

// isUnderWay says whether the claim's volume may exist without a PersistentVolume.
func (x *claimFixture) isUnderWay() bool {
	return slices.ContainsFunc(x.c.claims.Requests(), func(r *request.Request) bool { return r.Claim.UID == x.claim.UID })
}

// isWaiting says whether an attempt for the claim has failed, and no volume can exist.
func (x *claimFixture) isWaiting() bool { return x.failures() > 0 && x.isKnown() && !x.isUnderWay() }

// done lists what was done in the claim's namespace, or to the object named.
func (x *claimFixture) done(verb, resource, name string) []clienttesting.Action {
	var list []clienttesting.Action
	for _, a := range x.api.Actions() {
		if !a.Matches(verb, resource) {
			continue
		}
		named, ok := a.(interface{ GetName() string })
		if a.GetNamespace() == x.claim.Namespace || ok && named.GetName() == name {
			list = append(list, a)
		}
	}
	return list
}

func TestAClaimIsProvisionedWithOneWrite(t *testing.T) {
	id := uniqueName("d-onewrite")
	x := newClaimFixture(t, []answer{made(id, 20*gib, "zone-a")})
	x.createClass()
	x.createClaim()
	x.awaitVolume(id)
	provisionertest.Eventually(t, "the claim had an event", func() bool {
		for _, a := range x.done("create", "events", "") {
			if a.(clienttesting.CreateAction).GetObject().(*v1.Event).Reason == "ProvisioningSucceeded" {
				return true
			}
		}
		return false
	})
	for _, verb := range []string{"get", "update", "patch"} {
		for _, resource := range []string{"persistentvolumeclaims", "nodes"} {
			if list := x.done(verb, resource, "node-1"); len(list) != 0 {
				t.Errorf("needless calls: %v", list)
			}
		}
	}
}

func TestAClaimWithAVolumeGetsNoSecondOne(t *testing.T) {
	id, later := uniqueName("d-once"), uniqueName("d-later")
	x := newClaimFixture(t, []answer{made(id, 20*gib, "zone-a")})
	x.createClass()
	x.createClaim()
	x.awaitVolume(id)
	other := newClaimFixture(t, []answer{made(later, 20*gib, "zone-a")})
	other.claim.Spec.StorageClassName = &x.class.Name
	for range 5 {
		x.c.claimChanged(nil, x.claim)
	}
	other.createClaim()
	other.awaitVolume(later) // by now the queue has been through the earlier claim
	if n := x.asked(); n != 1 {
		t.Errorf("%d CreateVolume calls", n)
	}
}

// The owner of a claim that fails can't have it tried more often by changes of what nothing reads.
func TestANoteOnAClaimIsNoReasonForAnAttempt(t *testing.T) {
	x := newClaimFixture(t, []answer{provisionertest.Refused(codes.InvalidArgument)})
	x.createClass()
	x.createClaim()
	provisionertest.Eventually(t, "the claim is refused", x.isWaiting)
	began := time.Now()
	for n := range 100 {
		x.updateClaim(func(c *v1.PersistentVolumeClaim) {
			c.Annotations["note"], c.Labels = strconv.Itoa(n), map[string]string{"note": strconv.Itoa(n)}
			c.Finalizers = []string{fmt.Sprint("example.com/", n)}
		})
	}
	x.updateClaim(func(c *v1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("30Gi") // which is read
	})
	x.awaitAsked(1)
	// One at first, one for the class if its event comes late, one for the change that is read, and those of the back-off of a second and more.
	if n, most := x.asked(), 3+int(time.Since(began)/time.Second); n > most {
		t.Errorf("%d CreateVolume calls for 100 notes, want %d at most", n, most)
	}
}

func TestALostVolumeIsReplacedBeforeBinding(t *testing.T) {
	went, came := uniqueName("d-went"), uniqueName("d-came")
	x := newClaimFixture(t, []answer{made(went, 20*gib, "zone-a")})
	x.createClass()
	x.createClaim()
	x.awaitVolume(went)
	provisionertest.Eventually(t, "the cache has the volume", func() bool { _, exists, _ := x.c.caches.Volumes.GetStore().GetByKey(went); return exists })
	x.driver.SetCreates(made(came, 20*gib, "zone-a"))
	if err := x.api.CoreV1().PersistentVolumes().Delete(t.Context(), went, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	x.awaitVolume(came)
}

func TestRescheduleKeepsANewlySelectedNode(t *testing.T) {
	x := newClaimFixture(t, []answer{provisionertest.SoldOut()})
	x.createClass()
	x.createClaim()
	provisionertest.Eventually(t, "the selected node was removed", func() bool {
		claim, err := x.api.CoreV1().PersistentVolumeClaims(x.claim.Namespace).Get(t.Context(), "data", metav1.GetOptions{})
		return err == nil && claim.Annotations[request.AnnSelectedNode] == ""
	})
	for _, a := range x.done("patch", "persistentvolumeclaims", "") {
		patch := a.(clienttesting.PatchAction)
		body := string(patch.GetPatch())
		if patch.GetPatchType() != types.JSONPatchType || !strings.Contains(body, fmt.Sprintf(`"path":"/metadata/uid","value":%q`, x.claim.UID)) ||
			!strings.Contains(body, `{"op":"test","path":"/metadata/annotations/volume.kubernetes.io~1selected-node","value":"node-1"}`) {
			t.Errorf("patch %s", body)
		}
	}
	if list := x.done("update", "persistentvolumeclaims", ""); len(list) != 0 {
		t.Errorf("the claim was written back: %v", list)
	}
}

func TestAnAttemptOutlivesItsClaimAndClass(t *testing.T) {
	id := uniqueName("d-outlives")
	x := newClaimFixture(t, []answer{provisionertest.Unavailable()})
	x.createClass()
	x.createClaim()
	x.awaitAsked(1)
	if err := x.api.StorageV1().StorageClasses().Delete(t.Context(), x.class.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	x.deleteClaim()
	x.awaitAsked(3)
	x.driver.SetCreates(made(id, 20*gib, "zone-a"))
	x.awaitVolume(id)
}

func TestAnAttemptOutlivesItsSelectedNode(t *testing.T) {
	id := uniqueName("d-withdrawn")
	x := newClaimFixture(t, []answer{provisionertest.Unavailable()})
	x.createClass()
	x.createClaim()
	x.awaitAsked(1)
	x.updateClaim(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnSelectedNode) })
	x.awaitAsked(3)
	x.driver.SetCreates(made(id, 20*gib, "zone-a"))
	x.awaitVolume(id)
}

func TestAClaimChangedDuringAnAttemptIsRetried(t *testing.T) {
	id := uniqueName("d-moved")
	x := newClaimFixture(t, []answer{provisionertest.Unavailable()})
	x.createClass()
	x.createClaim()
	x.awaitAsked(1)
	x.updateClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = "node-2" })
	x.awaitAsked(3)
	x.driver.SetCreates(provisionertest.SoldOut(), made(id, 20*gib, "zone-b"))
	x.awaitVolume(id)
	last := x.driver.LastCreated().AccessibilityRequirements.Preferred[0].Segments[topology.WellKnownZoneKey]
	if last != "zone-b" {
		t.Errorf("asked for %s", last)
	}
}

func TestAClaimWaitsForClassAndDriver(t *testing.T) {
	name, id := uniqueName("node-9"), uniqueName("d-waited")
	x := newClaimFixture(t, []answer{made(id, 20*gib, "zone-a")}, func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = name })
	n, csiNode := node(name, "zone-a")
	x.createNode(n)
	x.createClaim()
	x.createClass()
	provisionertest.Eventually(t, "the claim waited for its node", x.isWaiting)
	if _, err := x.api.StorageV1().CSINodes().Create(t.Context(), csiNode, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	x.awaitVolume(id)
	provisionertest.Eventually(t, "its request ended", func() bool { return !x.isUnderWay() })
	failures := x.failures()
	time.Sleep(2 * testConfig().RetryMax)
	if now := x.failures(); now != failures || x.asked() != 1 {
		t.Errorf("the claim still waits: %v attempts have failed since, and the driver was asked %d times", now-failures, x.asked())
	}
}

func TestADeletedWaitingClaimIsForgotten(t *testing.T) {
	name := uniqueName("node-8")
	x := newClaimFixture(t, nil, func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = name })
	n, _ := node(name, "")
	n.Labels = nil
	x.createNode(n)
	x.createClass()
	x.createClaim()
	provisionertest.Eventually(t, "the claim waited for its node", x.isWaiting)
	x.deleteClaim()
	provisionertest.Eventually(t, "the claim was forgotten", func() bool { return !x.isKnown() })
}

func TestAReleasedVolumeIsDeletedOnce(t *testing.T) {
	id := uniqueName("d-released")
	x := newClaimFixture(t, nil)
	x.mu.Lock()
	x.scripts[id] = x.driver
	x.mu.Unlock()
	pv := provisionertest.Volume(id, func(pv *v1.PersistentVolume) { pv.Finalizers = nil })
	if _, err := x.api.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	provisionertest.Eventually(t, "the PersistentVolume was gone", func() bool { return !x.hasVolume(id) })
	if _, deletes := x.driver.Calls(); deletes != 1 {
		t.Errorf("%d DeleteVolume calls", deletes)
	}
}

func TestAFailedRescheduleDoesNotCallTheDriver(t *testing.T) {
	x := newClaimFixture(t, []answer{provisionertest.SoldOut()})
	refusals := 3
	var mu sync.Mutex
	x.api.PrependReactor("patch", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if action.GetNamespace() != x.claim.Namespace || refusals == 0 {
			return false, nil, nil
		}
		refusals--
		return true, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
	})
	x.createClass()
	x.createClaim()
	provisionertest.Eventually(t, "the selected node was removed", func() bool {
		claim, err := x.api.CoreV1().PersistentVolumeClaims(x.claim.Namespace).Get(t.Context(), "data", metav1.GetOptions{})
		return err == nil && claim.Annotations[request.AnnSelectedNode] == ""
	})
	if n := x.asked(); n != 1 {
		t.Errorf("the driver was asked %d times, want once", n)
	}
}

func TestADeletedClaimIsNotRetried(t *testing.T) {
	x := newClaimFixture(t, []answer{provisionertest.Refused(codes.Internal)})
	x.createClass()
	x.createClaim()
	x.awaitAsked(2) // it is tried again
	x.deleteClaim()
	provisionertest.Eventually(t, "nothing is tried for it any more", func() bool {
		before := x.asked()
		time.Sleep(2 * testConfig().RetryMax)
		return x.asked() == before
	})
	if x.isUnderWay() || x.isKnown() {
		t.Error("it is in the journal, or something is remembered of it")
	}
}
