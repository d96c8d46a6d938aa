package provisioner

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
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

	"github.com/topodisk/topodisk/provisioner/attempt"
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
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: "i-" + name, TopologyKeys: keys}}},
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
	claim := testClaim(change...)
	claim.Namespace, claim.UID, claim.Spec.StorageClassName = name, types.UID(name), &name
	class := testClass(nil)
	class.Name = name
	x := &claimFixture{controllerFixture: s, t: t, driver: &scriptedDriver{creates: answers}, claim: claim, class: class}
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

// answerNow replaces what the driver answers from now on.
func (x *claimFixture) answerNow(answers ...answer) {
	x.driver.mu.Lock()
	defer x.driver.mu.Unlock()
	x.driver.creates = answers
}

func (x *claimFixture) asked() int { n, _ := x.driver.calls(); return n }

func (x *claimFixture) awaitAsked(more int) {
	x.t.Helper()
	before := x.asked()
	eventually(x.t, "the driver was asked", func() bool { return x.asked() >= before+more })
}

func (x *claimFixture) hasVolume(name string) bool {
	_, err := x.api.CoreV1().PersistentVolumes().Get(context.Background(), name, metav1.GetOptions{})
	return err == nil
}

func (x *claimFixture) awaitVolume(name string) {
	x.t.Helper()
	eventually(x.t, "PersistentVolume "+name+" was saved", func() bool { return x.hasVolume(name) })
}

// isWaiting says whether the claim waits for a Node or CSINode.
func (x *claimFixture) isWaiting() bool { return x.c.exec.table.Phase(x.claim.UID) == attempt.Waiting }

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
	eventually(t, "the claim had an event", func() bool {
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
		x.c.handlers.claimChanged(nil, x.claim)
	}
	other.createClaim()
	other.awaitVolume(later) // by now the queue has been through the earlier claim
	if n := x.asked(); n != 1 {
		t.Errorf("%d CreateVolume calls", n)
	}
}

// The owner of a claim that fails can't have it tried more often by changes of what nothing reads.
func TestANoteOnAClaimIsNoReasonForAnAttempt(t *testing.T) {
	x := newClaimFixture(t, []answer{refused(codes.InvalidArgument)})
	x.createClass()
	x.createClaim()
	eventually(t, "the claim is refused", x.isWaiting)
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

func TestANoteOnAClaimIsNoChange(t *testing.T) {
	b := newBench(t, []answer{refused(codes.InvalidArgument)})
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	seen := testClaim()
	for _, test := range []struct {
		change func(*v1.PersistentVolumeClaim)
		calls  int
	}{
		{func(c *v1.PersistentVolumeClaim) { c.Annotations["note"] = "1" }, 1},
		{func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"note": "1"} }, 1},
		{func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{"example.com/1"} }, 1},
		{func(c *v1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("30Gi")
		}, 2},
	} {
		old, now := seen.DeepCopy(), seen.DeepCopy()
		now.ResourceVersion = strconv.FormatUint(versions.Add(1), 10)
		test.change(now)
		for _, claim := range []*v1.PersistentVolumeClaim{old, now} {
			b.config.TrimClaim(claim)
		}
		b.handlers().claimChanged(old, now)
		b.exec.work(t.Context(), now.UID)
		if calls, _ := b.driver.calls(); calls != test.calls {
			t.Errorf("after %v: %d CreateVolume calls, want %d", now, calls, test.calls)
		}
	}
}

func TestALostVolumeIsReplacedBeforeBinding(t *testing.T) {
	went, came := uniqueName("d-went"), uniqueName("d-came")
	x := newClaimFixture(t, []answer{made(went, 20*gib, "zone-a")})
	x.createClass()
	x.createClaim()
	x.awaitVolume(went)
	eventually(t, "the cache has the volume", func() bool { _, exists, _ := x.c.p.volumes.GetByKey(went); return exists })
	x.answerNow(made(came, 20*gib, "zone-a"))
	if err := x.api.CoreV1().PersistentVolumes().Delete(t.Context(), went, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	x.awaitVolume(came)
}

func TestRescheduleKeepsANewlySelectedNode(t *testing.T) {
	x := newClaimFixture(t, []answer{{err: status.Error(codes.ResourceExhausted, "zone-a is sold out")}})
	x.createClass()
	x.createClaim()
	eventually(t, "the selected node was removed", func() bool {
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
	x := newClaimFixture(t, []answer{unavailable()})
	x.createClass()
	x.createClaim()
	x.awaitAsked(1)
	if err := x.api.StorageV1().StorageClasses().Delete(t.Context(), x.class.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	x.deleteClaim()
	x.awaitAsked(3)
	x.answerNow(made(id, 20*gib, "zone-a"))
	x.awaitVolume(id)
}

func TestAnAttemptOutlivesItsSelectedNode(t *testing.T) {
	id := uniqueName("d-withdrawn")
	x := newClaimFixture(t, []answer{unavailable()})
	x.createClass()
	x.createClaim()
	x.awaitAsked(1)
	x.updateClaim(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnSelectedNode) })
	x.awaitAsked(3)
	x.answerNow(made(id, 20*gib, "zone-a"))
	x.awaitVolume(id)
}

func TestAClaimChangedDuringAnAttemptIsRetried(t *testing.T) {
	id := uniqueName("d-moved")
	x := newClaimFixture(t, []answer{unavailable()})
	x.createClass()
	x.createClaim()
	x.awaitAsked(1)
	x.updateClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = "node-2" })
	x.awaitAsked(3)
	x.answerNow(answer{err: status.Error(codes.ResourceExhausted, "zone-a is sold out")}, made(id, 20*gib, "zone-b"))
	x.awaitVolume(id)
	x.driver.mu.Lock()
	defer x.driver.mu.Unlock()
	last := x.driver.created[len(x.driver.created)-1].AccessibilityRequirements.Preferred[0].Segments[topology.WellKnownZoneKey]
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
	eventually(t, "the claim waited for its node", x.isWaiting)
	if _, err := x.api.StorageV1().CSINodes().Create(t.Context(), csiNode, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	x.awaitVolume(id)
	if x.isWaiting() {
		t.Error("the claim still waits")
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
	eventually(t, "the claim waited for its node", x.isWaiting)
	x.deleteClaim()
	eventually(t, "the claim was forgotten", func() bool { return !x.isWaiting() })
}

func TestAReleasedVolumeIsDeletedOnce(t *testing.T) {
	id := uniqueName("d-released")
	x := newClaimFixture(t, nil)
	x.mu.Lock()
	x.scripts[id] = x.driver
	x.mu.Unlock()
	pv := testVolume(id, func(pv *v1.PersistentVolume) { pv.Finalizers = nil })
	if _, err := x.api.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the PersistentVolume was gone", func() bool { return !x.hasVolume(id) })
	if _, deletes := x.driver.calls(); deletes != 1 {
		t.Errorf("%d DeleteVolume calls", deletes)
	}
}

func TestAPanicFailsTheAttempt(t *testing.T) {
	b := newBench(t, nil)
	b.resolver.topology = nil
	_, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	if err == nil || outcome != attempt.Unchanged || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("got %v, %v", outcome, err)
	}
}

// unknownAction is one that the executor lacks.
type unknownAction struct{ attempt.Resolve }

func TestAnActionThatTheExecutorLacksFails(t *testing.T) {
	b := newBench(t, nil)
	result, ok := b.exec.doOne(t.Context(), "0f1e", unknownAction{}).(attempt.Resolved)
	if !ok || result.Verdict != attempt.NotYet || !strings.Contains(text(result.Err), "unknownAction") {
		t.Errorf("got %v", result)
	}
}

func TestAPanicInANotificationIsRecovered(t *testing.T) {
	b := newBench(t, []answer{refused(codes.InvalidArgument)})
	b.Provisioner.events = nil // Notify panics
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err == nil || outcome != attempt.Finished {
		t.Errorf("got %v, %v", outcome, err)
	}
	if phase := b.attempts.Phase("0f1e"); phase != attempt.Waiting || !b.attempts.Settled("0f1e", "pv", func() {}) {
		t.Errorf("the Record is %v", phase)
	}
}

func TestNoAttemptBeginsWhileDraining(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	b.exec.queue.ShutDown()
	if b.exec.ShouldStart(testClaim()) {
		t.Error("a claim was taken")
	}
}

func TestOnlyItsOwnVolumeEndsAnAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		annotation string
		open       int
	}{
		"its own":         {"disk-0f1e", 0},
		"somebody else's": {"", 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{unavailable()})
			_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			b.attempts.Post("0f1e", attempt.VolumeSeen{Volume: testVolume("d-bp1", func(pv *v1.PersistentVolume) { pv.Annotations[request.AnnVolumeName] = c.annotation })})
			b.exec.work(t.Context(), "0f1e")
			if open := b.open(); open != c.open {
				t.Errorf("%d volumes are under way, want %d", open, c.open)
			}
		})
	}
}

func TestAResyncDoesNotEndTheBackOff(t *testing.T) {
	b := newBench(t, []answer{refused(codes.Internal)})
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	claim := testClaim()
	for _, test := range []struct {
		version string
		calls   int
	}{{"7", 1}, {"8", 2}} {
		claim = claim.DeepCopy()
		claim.ResourceVersion = test.version
		b.handlers().postClaim(claim)
		b.exec.work(t.Context(), claim.UID)
		if calls, _ := b.driver.calls(); calls != test.calls {
			t.Errorf("version %s was shown: %d calls, want %d", test.version, calls, test.calls)
		}
	}
}

func TestAFailedRescheduleDoesNotCallTheDriver(t *testing.T) {
	x := newClaimFixture(t, []answer{soldOutAnswer()})
	refusals := 3
	var mu sync.Mutex
	x.api.PrependReactor("patch", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if action.GetNamespace() != x.claim.Namespace || refusals == 0 {
			return false, nil, nil
		}
		refusals--
		return true, nil, apierrors.NewInternalError(errString("etcd is slow"))
	})
	x.createClass()
	x.createClaim()
	eventually(t, "the selected node was removed", func() bool {
		claim, err := x.api.CoreV1().PersistentVolumeClaims(x.claim.Namespace).Get(t.Context(), "data", metav1.GetOptions{})
		return err == nil && claim.Annotations[request.AnnSelectedNode] == ""
	})
	if n := x.asked(); n != 1 {
		t.Errorf("the driver was asked %d times, want once", n)
	}
}

func TestADeletedClaimIsNotRetried(t *testing.T) {
	x := newClaimFixture(t, []answer{refused(codes.Internal)})
	x.createClass()
	x.createClaim()
	x.awaitAsked(2) // it is tried again
	x.deleteClaim()
	eventually(t, "nothing is tried for it any more", func() bool {
		before := x.asked()
		time.Sleep(2 * testConfig().RetryMax)
		return x.asked() == before
	})
	if r := x.c.exec.table.Request(x.claim.UID); r != nil {
		t.Error("it is in the journal")
	}
}
