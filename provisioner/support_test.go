package provisioner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/provisioner/claim"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/lib6"
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

func (d *scriptedDriver) CreateVolume(_ context.Context, in *csi.CreateVolumeRequest, _ ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
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
}

func (z *zones) Carried(*csi.Topology) bool { return true }

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

// bench is a Controller without the library, on a fake API server. Its caches show what tests put there.
type bench struct {
	*Controller
	driver *scriptedDriver
	zones  *zones
	api    *fake.Clientset
	events *record.FakeRecorder

	metadata *metadatafake.FakeMetadataClient
	dynamic  *dynamicfake.FakeDynamicClient
	registry *prometheus.Registry
}

func testConfig() Config {
	return Config{
		Config: claim.Config{
			Options: request.Options{
				DriverName: driverName, Identity: "test-identity", VolumeNamePrefix: "disk", PVNameSource: request.VolumeID,
				StrictTopology: true, ImmediateTopology: true, DefaultFSType: "ext4", ClaimAnnotations: []string{"alibabacloud.com/kms-key-id"},
			},
			Timeout: 10 * time.Second, RetryStart: time.Millisecond, RetryMax: time.Second, Workers: 2,
			SupportsTopology: true, NodeGrace: time.Minute, DriverKnowsUse: true, AttributesClasses: true,
		},
		PreventModeConversion: true,
	}
}

// newBench wires what NewController does but for the library, of which a process has one.
func newBench(t testing.TB, creates []answer, changes ...func(*Config)) *bench {
	t.Helper()
	config := testConfig()
	for _, change := range changes {
		change(&config)
	}
	b := &bench{
		driver: &scriptedDriver{creates: creates}, zones: inZone("zone-a"), api: fake.NewClientset(), events: record.NewFakeRecorder(1_000),
		metadata: provisionertest.MetadataClient(), dynamic: provisionertest.DynamicClient(), registry: prometheus.NewRegistry(),
	}
	caches, err := watch.NewCaches(watch.Config{Requests: config.Options, SourceFinalizer: source.CloneFinalizer}, b.api, b.metadata)
	must(t, err)
	c := &Controller{
		config: config, client: b.api, driver: b.driver, caches: caches, objects: watch.NewObjects(nil),
		refusals: stock.New(time.Now), events: b.events, now: time.Now,
	}
	b.Controller = c
	upstream, volumes := lib6.NewMetrics(), caches.Volumes.GetIndexer()
	c.metrics = newMetrics(b.registry, upstream, caches.Classes.GetStore())
	records := c.newJournal(Clients{Journal: b.api, JournalMetadata: configMapsOf(b.api)})
	sources := source.NewReader(config.sourceOptions(), b.api, b.dynamic)
	c.protection = source.NewProtection(config.protectionOptions(), b.metadata, volumes, sources)
	deleter := deletion.NewDeleter(b.api, b.driver, config.Timeout)
	c.claims = claim.New(config.Config, claim.Dependencies{
		Client: b.api, Metadata: b.metadata, Driver: b.driver, Deleter: deleter, Journal: records, Protection: c.protection, Topology: b.zones,
		Sources: sources, Objects: c.objects, Refusals: c.refusals, Events: b.events, Registry: b.registry, Upstream: upstream, Now: time.Now,
		Claims: caches.Claims.GetIndexer(), Volumes: volumes, Classes: caches.Classes.GetStore(), Nodes: caches.Nodes.GetStore(),
	})
	c.deletion = deletion.New(
		deletion.Options{Request: config.Options, Workers: config.Workers, RetryStart: config.RetryStart, RetryMax: config.RetryMax},
		deletion.Dependencies{
			Client: b.api, Volumes: volumes, Attachments: caches.Attachments.GetIndexer(), Objects: c.objects, Deleter: deleter,
			Claims: c.claims, Events: b.events, Now: time.Now, Observe: c.metrics.deleted,
		})
	c.handlers = &handlers{Controller: c, index: topology.NewIndex(driverName), duplicates: newDuplicates(driverName, volumes, b.events, c.metrics.duplicates)}
	c.recovery = newRecoveryStatus(c)
	t.Cleanup(func() { // ends the queues; a deletion may be begun meanwhile, and wait for the journal
		if c.journal != nil {
			defer inBackground(t.Context(), func(ctx context.Context) { c.journal.Run(ctx, func(error) {}) })()
		}
		for _, run := range []func(context.Context){c.claims.Run, c.deletion.Run, c.protection.Run} {
			run(endedContext())
		}
	})
	return b
}

// configMapsOf returns a client of the metadata of an API server's ConfigMaps, whose versions are counted from now on: client-go's fake gives
// none.
func configMapsOf(api *fake.Clientset) *metadatafake.FakeMetadataClient {
	versions := 1
	api.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(clienttesting.CreateAction); ok { // an update, too
			versions++
			write.GetObject().(*v1.ConfigMap).ResourceVersion = strconv.Itoa(versions)
		}
		return false, nil, nil
	})
	objects := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	objects.PrependReactor("get", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		configMap, err := api.CoreV1().ConfigMaps(action.GetNamespace()).Get(context.Background(), action.(clienttesting.GetAction).GetName(), metav1.GetOptions{})
		return true, &metav1.PartialObjectMetadata{ObjectMeta: configMap.ObjectMeta}, err
	})
	return objects
}

// show has the caches show objects.
func (b *bench) show(t testing.TB, objects ...any) {
	t.Helper()
	for _, object := range objects {
		switch object.(type) {
		case *v1.PersistentVolumeClaim:
			must(t, b.caches.Claims.GetIndexer().Add(object))
		case *v1.PersistentVolume:
			must(t, b.caches.Volumes.GetIndexer().Add(object))
		case *storagev1.StorageClass:
			must(t, b.caches.Classes.GetIndexer().Add(object))
		default:
			t.Fatalf("no cache has a %T", object)
		}
	}
}

// provisions has claims worked on until end is called, which returns when none is.
func (b *bench) provisions(ctx context.Context) (end func()) {
	return inBackground(ctx, b.claims.Run)
}

// open is the number of volumes under way.
func (b *bench) open() int { all, _ := b.claims.Open(); return all }

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// claimOf returns the nth of many claims.
func claimOf(n int) *v1.PersistentVolumeClaim {
	return testClaim(func(c *v1.PersistentVolumeClaim) {
		c.Name, c.UID = fmt.Sprint("data-", n), types.UID(fmt.Sprintf("uid-%d", n))
	})
}

// requestFor returns the request for claim shop/data, as if its UID were the nth one.
func requestFor(t *testing.T, n int) *request.Request {
	t.Helper()
	claim := testClaim(func(c *v1.PersistentVolumeClaim) { c.UID = types.UID(fmt.Sprintf("uid-%d", n)) })
	plan, err := request.NewPlan(testConfig().Options, claim, testClass(nil), "node-1")
	must(t, err)
	encoded, err := plan.Request(request.Inputs{Requirement: inZone("zone-a").requirement}).Encode()
	must(t, err)
	r, err := request.Decode(encoded)
	must(t, err)
	return r
}

func refused(code codes.Code) answer { return answer{err: status.Error(code, "no")} }

func unavailable() answer { return answer{err: status.Error(codes.Unavailable, "lost")} }

func soldOutAnswer() answer {
	return answer{err: status.Error(codes.ResourceExhausted, "zone-a is sold out")}
}

type errString string

func (e errString) Error() string { return string(e) }

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
