package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// scriptedDriver answers CreateVolume calls in turn, the last answer again
// and again, and records every request.
type scriptedDriver struct {
	provisionertest.DeletingDriver

	mu      sync.Mutex
	creates []answer
	created []*csi.CreateVolumeRequest
	first   []bool   // of created, whether it was said to be the first call
	listed  []string // volume names, a page each; nil for no answer
	lists   int
}

type answer struct {
	volume *csi.Volume
	err    error
}

func made(id string, bytes int64, zone string) answer {
	return answer{volume: &csi.Volume{
		VolumeId: id, CapacityBytes: bytes,
		VolumeContext:      map[string]string{"type": "cloud_essd"},
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{topology.WellKnownZoneKey: zone}}},
	}}
}

func (d *scriptedDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, _ ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sent, _ := metadata.FromOutgoingContext(ctx)
	d.first = append(d.first, slices.Equal(sent.Get("topodisk-first-call"), []string{"true"}))
	d.created = append(d.created, proto.Clone(in).(*csi.CreateVolumeRequest))
	if len(d.creates) == 0 {
		return nil, errors.New("no answer is scripted")
	}
	next := d.creates[0]
	if len(d.creates) > 1 {
		d.creates = d.creates[1:]
	}
	if next.err != nil {
		return nil, next.err
	}
	return &csi.CreateVolumeResponse{Volume: next.volume}, nil
}

func (d *scriptedDriver) GetCapacity(context.Context, *csi.GetCapacityRequest, ...grpc.CallOption) (*csi.GetCapacityResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not in these tests")
}

func (d *scriptedDriver) ListVolumes(_ context.Context, in *csi.ListVolumesRequest, _ ...grpc.CallOption) (*csi.ListVolumesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lists++
	if d.listed == nil {
		return nil, status.Error(codes.Unavailable, "no answer is scripted")
	}
	at, _ := strconv.Atoi(in.StartingToken)
	response := &csi.ListVolumesResponse{}
	if at < len(d.listed) {
		context := map[string]string{volumeNameKey: d.listed[at]}
		response.Entries = []*csi.ListVolumesResponse_Entry{{Volume: &csi.Volume{VolumeId: "d-" + d.listed[at], VolumeContext: context}}}
	}
	if at+1 < len(d.listed) {
		response.NextToken = strconv.Itoa(at + 1)
	}
	return response, nil
}

func (d *scriptedDriver) AwaitReturn(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (d *scriptedDriver) calls() (creates, deletes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.created), d.Deletes()
}

// zones is a Topology with one answer.
type zones struct {
	requirement *csi.TopologyRequirement
	err         error
	mu          sync.Mutex
	asked       []topology.Question
	deserted    bool // no node is there
}

func (z *zones) Carried(*csi.Topology) bool { return !z.deserted }

func (z *zones) Require(q topology.Question) (*csi.TopologyRequirement, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked = append(z.asked, q)
	return z.requirement, z.err
}

func inZone(zone string) *zones {
	term := []*csi.Topology{{Segments: map[string]string{topology.WellKnownZoneKey: zone}}}
	return &zones{requirement: &csi.TopologyRequirement{Requisite: term, Preferred: term}}
}

// bench is a Provisioner without the library, on a fake API server.
type bench struct {
	*Provisioner
	driver *scriptedDriver
	zones  *zones
	api    *fake.Clientset
	events *record.FakeRecorder
	clock  time.Time

	metadata *metadatafake.FakeMetadataClient
	dynamic  *dynamicfake.FakeDynamicClient
	registry *prometheus.Registry

	exec    *executor
	actions []attempt.Action // that were done
}

// provision makes one attempt for the claim and returns the volume that came of it, and what the driver's answer
// means, or attempt.Unchanged if there was none; the error is that of the attempt.
func (b *bench) provision(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (*v1.PersistentVolume, attempt.Outcome, error) {
	class, claim = class.DeepCopy(), claim.DeepCopy()
	if request.ClassName(claim) != class.Name {
		claim.Spec.StorageClassName = &class.Name
	}
	delete(claim.Annotations, request.AnnSelectedNode)
	if node == "" {
		class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
	} else {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, request.AnnSelectedNode, node)
	}
	if err := b.resolver.classes.Add(class); err != nil {
		return nil, attempt.Finished, err
	}
	begin := len(b.actions)
	claim.ResourceVersion = strconv.Itoa(7 + begin) // later than before
	switch b.attempts.Phase(claim.UID) {
	case attempt.New, attempt.Prefetched, attempt.Unselected:
		b.attempts.Begin(claim.UID, attempt.Started{Claim: claim})
	case attempt.Waiting:
		b.attempts.Post(claim.UID, attempt.ClaimChanged{Claim: claim})
	default:
		b.attempts.Post(claim.UID, attempt.Woken{})
	}
	b.exec.work(ctx, claim.UID)
	return b.result(b.actions[begin:])
}

// result returns the outcome of an attempt from its actions.
func (b *bench) result(actions []attempt.Action) (pv *v1.PersistentVolume, outcome attempt.Outcome, err error) {
	outcome = attempt.Unchanged
	for _, action := range actions {
		switch a := action.(type) {
		case attempt.CountFailure:
			err = a.Err
		case attempt.CountAnswer:
			outcome = a.Outcome
		case attempt.CountReschedule:
			outcome = attempt.Reschedule
		case attempt.SaveVolume:
			pv = a.Request.PersistentVolume(b.config.Options, a.Volume)
		case attempt.Report:
			return pv, attempt.Finished, nil
		}
	}
	return nil, outcome, err
}

// restart replaces the executor, without Records.
func (b *bench) restart() {
	b.exec = newExecutor(b.Provisioner)
	b.exec.trace = func(_ types.UID, action attempt.Action) { b.actions = append(b.actions, action) }
	b.attempts = b.exec.table
}

// open is the number of volumes under way.
func (b *bench) open() int { all, _ := b.attempts.Open(); return all }

// benchStart is when a bench's clock begins.
var benchStart = time.Unix(1700000000, 0)

func testConfig() Config {
	return Config{
		Options: request.Options{
			DriverName: driverName, Identity: "test-identity", VolumeNamePrefix: "disk", VolumeNameUUID: -1, PVNameSource: request.VolumeID,
			StrictTopology: true, ImmediateTopology: true, DefaultFSType: "ext4", ClaimAnnotations: []string{"alibabacloud.com/kms-key-id"},
		},
		Timeout: 10 * time.Second, RetryStart: time.Millisecond, RetryMax: time.Second, Workers: 2, SaveWorkers: 3,
		SupportsTopology: true, NodeGrace: time.Minute,
		DriverKnowsUse: true, AttributesClasses: true, PreventModeConversion: true, SourceThreads: 1,
	}
}

func newBench(t testing.TB, creates []answer, objects ...runtime.Object) *bench {
	t.Helper()
	b := &bench{
		driver: &scriptedDriver{creates: creates}, zones: inZone("zone-a"),
		api: fake.NewClientset(objects...), events: record.NewFakeRecorder(1_000), clock: benchStart,
		metadata: provisionertest.MetadataClient(), dynamic: provisionertest.DynamicClient(),
	}
	b.registry = prometheus.NewRegistry()
	now := func() time.Time { return b.clock }
	b.Provisioner = &Provisioner{
		client: b.api, driver: b.driver, store: noStore{}, objects: watch.NewObjects(nil), refusals: stock.New(now),
		claims:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		volumes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.VolumeIndexers()),
		events:  b.events, now: now,
	}
	b.resolver = &resolver{
		client: b.api, metadata: b.metadata, topology: b.zones, refusals: b.refusals, events: b.events,
		classes: cache.NewStore(cache.MetaNamespaceKeyFunc), volumes: b.volumes, namespaces: cache.NewStore(cache.MetaNamespaceKeyFunc),
	}
	b.conflicts = newConflicts(b.api, b.claims, b.volumes, b.events, now)
	b.configure(testConfig())
	b.deleter = deletion.NewDeleter(b.api, b.driver, b.config.Timeout)
	b.restart()
	b.metrics = newMetrics(b.registry, b.attempts, b.store, b.resolver.classes)
	b.duplicates = newDuplicates(driverName, b.volumes, b.events, b.metrics.duplicates)
	t.Cleanup(func() { b.exec.queue.ShutDown() })
	t.Cleanup(b.removeFinalizers)
	return b
}

// configure replaces the configuration of all but the executor: see restart.
func (b *bench) configure(config Config) {
	if b.protection != nil {
		b.removeFinalizers() // ends its queue
	}
	b.config, b.resolver.config = config, config
	b.resolver.sources = source.NewReader(config.sourceOptions(), b.api, b.dynamic)
	b.protection = source.NewProtection(config.protectionOptions(), b.metadata, b.volumes, b.resolver.sources)
}

// handlers are the event handlers of a process that leads.
func (b *bench) handlers() *handlers { return &handlers{p: b.Provisioner} }

// removeFinalizers removes the finalizers of sources that nobody uses any more. No
// source is protected afterwards.
func (b *bench) removeFinalizers() {
	b.protection.Run(endedContext())
}

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

const (
	driverName = provisionertest.DriverName
	gib        = provisionertest.GiB
)

var (
	testClaim  = provisionertest.Claim
	testClass  = provisionertest.Class
	testVolume = provisionertest.Volume
	must       = provisionertest.Must
)

// drained returns the events that were recorded since the last call.
func (b *bench) drained() []string { return provisionertest.Events(b.events) }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("it never happened that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func text(err error) string { return fmt.Sprint(err) }
