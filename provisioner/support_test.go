package provisioner

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/lru"

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

// scriptedDriver lists volumes, too.
type scriptedDriver struct {
	provisionertest.ScriptedDriver
	listed []string // volume names, a page each; nil for no answer
}

func (d *scriptedDriver) GetCapacity(context.Context, *csi.GetCapacityRequest, ...grpc.CallOption) (*csi.GetCapacityResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not in these tests")
}

func (d *scriptedDriver) ListVolumes(_ context.Context, in *csi.ListVolumesRequest, _ ...grpc.CallOption) (*csi.ListVolumesResponse, error) {
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

// bench is a Controller without the library, on a fake API server. Its caches show what tests put there.
type bench struct {
	*Controller
	driver *scriptedDriver
	zones  *provisionertest.Topology
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
				DriverName: provisionertest.DriverName, Identity: "test-identity", VolumeNamePrefix: "disk", PVNameSource: request.VolumeID,
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
		driver: &scriptedDriver{ScriptedDriver: provisionertest.ScriptedDriver{Creates: creates}}, zones: provisionertest.InZone("zone-a"),
		api: fake.NewClientset(), events: record.NewFakeRecorder(1_000),
		metadata: provisionertest.MetadataClient(), dynamic: provisionertest.DynamicClient(), registry: prometheus.NewRegistry(),
	}
	caches, err := watch.NewCaches(config.Options, b.api, b.metadata)
	must(t, err)
	c := &Controller{
		config: config, client: b.api, driver: b.driver, caches: caches, objects: watch.NewObjects(nil),
		refusals: stock.New(time.Now), events: b.events,
	}
	b.Controller = c
	upstream, volumes := lib6.NewMetrics(), caches.Volumes.GetIndexer()
	c.metrics = newMetrics(b.registry, upstream, caches.Classes.GetStore())
	records := c.newJournal(Clients{Journal: b.api, JournalMetadata: provisionertest.ConfigMapMetadata(b.api)})
	sources := source.NewReader(config.sourceOptions(), b.api, b.dynamic)
	c.protection = source.NewProtection(b.metadata, volumes, sources)
	deleter := deletion.NewDeleter(b.api, b.driver, config.Timeout)
	c.claims = claim.New(config.Config, claim.Dependencies{
		Client: b.api, Metadata: b.metadata, Driver: b.driver, Deleter: deleter, Journal: records, Protection: c.protection, Topology: b.zones,
		Sources: sources, Objects: c.objects, Refusals: c.refusals, Events: b.events, Registry: b.registry, Upstream: upstream, Now: time.Now,
		Claims: caches.Claims.GetIndexer(), Volumes: volumes, Classes: caches.Classes.GetStore(), Nodes: caches.Nodes.GetStore(),
	})
	c.deletion = deletion.New(deletion.Config{
		Request: config.Options, Workers: config.Workers, RetryStart: config.RetryStart, RetryMax: config.RetryMax,
		Client: b.api, Volumes: volumes, Attachments: caches.Attachments.GetIndexer(), Objects: c.objects, Deleter: deleter,
		Claims: c.claims, Events: b.events, Observe: c.metrics.deleted, IsSuperseded: claim.IsSuperseded,
	})
	c.index, c.reported = topology.NewIndex(config.DriverName), lru.New(maxReported)
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

// requestFor returns the request for claim shop/data, as if its UID were the nth one.
func requestFor(t *testing.T, n int) *request.Request {
	t.Helper()
	claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.UID = types.UID(fmt.Sprintf("uid-%d", n)) })
	plan, err := request.NewPlan(testConfig().Options, claim, provisionertest.Class(nil), "node-1")
	must(t, err)
	encoded, err := plan.Request(request.Inputs{Requirement: provisionertest.InZone("zone-a").Requirement}).Encode()
	must(t, err)
	r, err := request.Decode(encoded)
	must(t, err)
	return r
}

const gib = provisionertest.GiB

type answer = provisionertest.Answer

var (
	made = provisionertest.Made
	must = provisionertest.Must
)
