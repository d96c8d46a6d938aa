package claim

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
)

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
	driver   *provisionertest.ScriptedDriver
	zones    *provisionertest.Topology
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
			DriverName: provisionertest.DriverName, Identity: "test-identity", VolumeNamePrefix: "disk", PVNameSource: request.VolumeID,
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
		driver: &provisionertest.ScriptedDriver{Creates: creates}, zones: provisionertest.InZone("zone-a"),
		api: fake.NewClientset(objects...), events: record.NewFakeRecorder(1_000), clock: benchStart,
		metadata: provisionertest.MetadataClient(), dynamic: provisionertest.DynamicClient(), registry: prometheus.NewRegistry(),
	}
	now := func() time.Time { return b.clock }
	config, volumes := testConfig(), cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.VolumeIndexers())
	sources := source.NewReader(source.Options{
		DriverName: provisionertest.DriverName, PreventModeConversion: true, RetryStart: time.Millisecond, RetryMax: time.Second,
	}, b.api, b.dynamic)
	b.Syncer = New(config, Dependencies{
		Client: b.api, Metadata: b.metadata, Driver: b.driver, Deleter: deletion.NewDeleter(b.api, b.driver, config.Timeout), Journal: noJournal{},
		Protection: source.NewProtection(b.metadata, volumes, sources),
		Topology:   b.zones, Sources: sources, Objects: watch.NewObjects(nil), Refusals: stock.New(now), Events: b.events,
		Registry: b.registry, Upstream: lib6.NewMetrics(), Now: now,
		Claims: cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.ClaimIndexers()), Volumes: volumes,
		Classes: cache.NewStore(cache.MetaNamespaceKeyFunc), Namespaces: cache.NewStore(cache.MetaNamespaceKeyFunc),
		Nodes: cache.NewStore(cache.MetaNamespaceKeyFunc),
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
	failures, calls, actions := len(b.failed), len(b.driver.Created), len(b.api.Actions())
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
		if len(b.driver.Created) == calls && pv == nil {
			meaning = notSent
		}
		return pv, meaning, nil
	}
	e, err := b.claims[uid], b.failed[len(b.failed)-1]
	switch {
	case meaning == otherNode:
	case len(b.driver.Created) == calls, csiconn.IsNotAsked(err):
		meaning = notSent
	case e != nil && e.maybeMade && e.volume == nil:
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

const gib = provisionertest.GiB

type answer = provisionertest.Answer

var (
	testClaim   = provisionertest.Claim
	claimOf     = provisionertest.NumberedClaim
	testClass   = provisionertest.Class
	testVolume  = provisionertest.Volume
	made        = provisionertest.Made
	refused     = provisionertest.Refused
	unavailable = provisionertest.Unavailable
	soldOut     = provisionertest.SoldOut
	must        = provisionertest.Must
)

// drained returns the events that were recorded since the last call.
func (b *bench) drained() []string { return provisionertest.Events(b.events) }

// said returns the events that were recorded since the last call, as one text.
func (b *bench) said() string { return strings.Join(b.drained(), "\n") }
