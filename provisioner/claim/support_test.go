package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
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

	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/lib6"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// scriptedDriver answers CreateVolume calls in turn, the last answer again and again, and records every request.
type scriptedDriver struct {
	provisionertest.DeletingDriver

	mu      sync.Mutex
	creates []answer
	created []*csi.CreateVolumeRequest
	first   []bool // of created, whether it was said to be the first call
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

// noJournal keeps no record.
type noJournal struct{}

func (noJournal) Put(context.Context, string, []byte) error { return nil }
func (noJournal) Delete(string)                             {}
func (noJournal) Flush(context.Context, string) error       { return nil }
func (noJournal) EndRequest(string) string                  { return "" }
func (noJournal) RejectEnd(string)                          {}
func (noJournal) Size() int                                 { return 0 }

// bench is a Syncer on a fake API server, whose caches show what tests put there.
type bench struct {
	*Syncer
	driver   *scriptedDriver
	zones    *zones
	events   *record.FakeRecorder
	api      *fake.Clientset
	metadata *metadatafake.FakeMetadataClient
	dynamic  *dynamicfake.FakeDynamicClient
	registry *prometheus.Registry
	clock    time.Time
	failed   []error // of attempts, in their order
}

// benchStart is when a bench's clock begins.
var benchStart = time.Unix(1700000000, 0)

func testConfig() Config {
	return Config{
		Options: request.Options{
			DriverName: driverName, Identity: "test-identity", VolumeNamePrefix: "disk", PVNameSource: request.VolumeID,
			StrictTopology: true, ImmediateTopology: true, DefaultFSType: "ext4", ClaimAnnotations: []string{"alibabacloud.com/kms-key-id"},
		},
		Timeout: 10 * time.Second, RetryStart: time.Millisecond, RetryMax: time.Second, Workers: 2,
		SupportsTopology: true, NodeGrace: time.Minute, DriverKnowsUse: true, AttributesClasses: true,
	}
}

// newBench returns a bench that keeps time by its clock; its Now may be set to time.Now.
func newBench(t testing.TB, creates []answer, objects ...runtime.Object) *bench {
	t.Helper()
	b := &bench{
		driver: &scriptedDriver{creates: creates}, zones: inZone("zone-a"),
		api: fake.NewClientset(objects...), events: record.NewFakeRecorder(1_000), clock: benchStart,
		metadata: provisionertest.MetadataClient(), dynamic: provisionertest.DynamicClient(), registry: prometheus.NewRegistry(),
	}
	now := func() time.Time { return b.clock }
	config, volumes := testConfig(), cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.VolumeIndexers())
	sources := source.NewReader(source.Options{DriverName: driverName, PreventModeConversion: true}, b.api, b.dynamic)
	b.Syncer = New(config, Dependencies{
		Client: b.api, Metadata: b.metadata, Driver: b.driver, Deleter: deletion.NewDeleter(b.api, b.driver, config.Timeout), Journal: noJournal{},
		Protection: source.NewProtection(source.ProtectionOptions{RetryStart: time.Millisecond, RetryMax: time.Second}, b.metadata, volumes, sources),
		Topology:   b.zones, Sources: sources, Objects: watch.NewObjects(nil), Refusals: stock.New(now), Events: b.events,
		Registry: b.registry, Upstream: lib6.NewMetrics(), Now: now,
		Claims: cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.ClaimIndexers()), Volumes: volumes,
		Classes: cache.NewStore(cache.MetaNamespaceKeyFunc), Namespaces: cache.NewStore(cache.MetaNamespaceKeyFunc), Nodes: cache.NewStore(cache.MetaNamespaceKeyFunc),
	})
	b.metrics.onFailure = func(err error) { b.failed = append(b.failed, err) }
	t.Cleanup(func() { b.queue.ShutDown() })
	t.Cleanup(b.removeFinalizers)
	return b
}

// removeFinalizers removes the finalizers of sources that nobody uses any more. No source is protected afterwards.
func (b *bench) removeFinalizers() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	b.Protection.(*source.Protection).Run(ended)
}

// provision makes one attempt for the claim, as the cache shows it from then on, and returns the volume that came of it, what the driver's
// answer meant, notSent if it was not asked, and the error that the attempt ended with.
func (b *bench) provision(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (*v1.PersistentVolume, outcome, error) {
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
	claim.ResourceVersion = strconv.Itoa(1000 + len(b.failed)) // later than before
	if err := errors.Join(b.Classes.Add(class), b.Claims.Add(claim)); err != nil {
		return nil, notSent, err
	}
	b.Start(claim)
	return b.attempt(ctx, claim.UID)
}

// attempt has a claim looked at once.
func (b *bench) attempt(ctx context.Context, uid types.UID) (*v1.PersistentVolume, outcome, error) {
	failures, calls, actions := len(b.failed), len(b.driver.created), len(b.api.Actions())
	b.work(ctx, uid)
	var pv *v1.PersistentVolume
	meaning := noVolume
	for _, action := range b.api.Actions()[actions:] {
		if action.Matches("create", "persistentvolumes") {
			pv = action.(interface{ GetObject() runtime.Object }).GetObject().(*v1.PersistentVolume)
		}
		if action.Matches("patch", "persistentvolumeclaims") {
			meaning = otherNode
		}
	}
	if len(b.failed) == failures {
		if len(b.driver.created) == calls && pv == nil {
			meaning = notSent
		}
		return pv, meaning, nil
	}
	e, err := b.claims[uid], b.failed[len(b.failed)-1]
	switch {
	case meaning == otherNode:
	case len(b.driver.created) == calls, csiconn.IsNotAsked(err):
		meaning = notSent
	case e != nil && e.unknown && e.volume == nil:
		meaning = maybeVolume
	case e != nil && e.volume != nil: // it is made, and could not be saved
		meaning = notSent
	}
	return nil, meaning, err
}

// next has the queue's next claim looked at.
func (b *bench) next(ctx context.Context) {
	uid, _ := b.queue.Get()
	defer b.queue.Done(uid)
	b.work(ctx, uid)
}

// state says in a word how far a claim has come: none, returned, waiting, unknown, held, unsaved, saved.
func (b *bench) state(uid types.UID) string {
	e := b.claims[uid]
	switch {
	case e == nil:
		return "none"
	case e.request == nil && e.pv != "":
		return "saved"
	case e.request == nil && e.failure == nil:
		return "returned"
	case e.request == nil:
		return "waiting"
	case e.volume == nil:
		return "unknown"
	case e.failure.awaitsSibling():
		return "held"
	}
	return "unsaved"
}

// open is the number of volumes under way.
func (b *bench) open() int { all, _ := b.Open(); return all }

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

type errString string

func (e errString) Error() string { return string(e) }

// said returns the events that were recorded since the last call, as one text.
func (b *bench) said() string { return strings.Join(b.drained(), "\n") }
