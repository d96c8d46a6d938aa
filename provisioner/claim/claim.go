// Package claim provisions the volumes of PersistentVolumeClaims.
//
// [Syncer] is level-triggered. The caches, the journal and what is remembered of a claim (memory) say how far it has come; sync, in
// sync.go, reads from top to bottom as the list of what is done next. A goroutine does that for each claim whose turn it is, and may wait
// there for the journal, the driver and the API server. Watches only say that a claim is to be looked at again.
//
//	sync.go       the way of a claim, and what is remembered of it
//	resolve.go    what the driver is asked for
//	create.go     the journal, the call of the driver, and what its answer means (outcome.go)
//	cluster.go    what the caches show of claims, classes and Pods (placement.go)
//	siblings.go   the other claims of a Pod: a volume is held until they have theirs
//	save.go       the PersistentVolume, or the deletion of a volume that nobody needs
//	retry.go      how an attempt ends without a volume, and when the next one begins
//	watches.go    what wakes a claim
//	server.go     what is read of the API server, and written
//	report.go     events and the log
//	conflict.go   the volume that ties the Pod of a claim without stock to a zone
//	metrics.go    the metrics
//
// A volume that may exist is in the journal from before the driver is called until a PersistentVolume stands for it, the driver has said
// that none exists, or an operator has ended the record.
package claim

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/internal/liveness"
	"github.com/topodisk/topodisk/provisioner/internal/turns"
	"github.com/topodisk/topodisk/provisioner/lib6"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// Config is what an operator may choose of provisioning.
type Config struct {
	request.Options

	Timeout    time.Duration // of one call to the driver
	RetryStart time.Duration // back-off after a first failure; doubles with each one
	RetryMax   time.Duration // longest back-off
	// Workers is how many claims of a namespace are worked on at the same time; a quarter more are, and twice as many of all namespaces
	// (package turns). Claims whose volumes are made have turns of their own (turnOf).
	Workers int

	SupportsTopology  bool          // the driver's VOLUME_ACCESSIBILITY_CONSTRAINTS, unless switched off
	NodeGrace         time.Duration // how long a selected node may be without the driver
	DriverModifies    bool          // the driver's MODIFY_VOLUME
	DriverKnowsUse    bool          // the driver deletes a volume only if it was never used when it is asked to
	AttributesClasses bool          // claims may name a VolumeAttributesClass
	RescheduleCodes   []codes.Code  // of CreateVolume, besides ResourceExhausted: the selected node can't have the volume
}

// Driver makes volumes.
type Driver interface {
	// CreateVolume makes a volume or finds the one of the same name. An error that outcomeOf calls final says that none exists or comes to
	// exist, from earlier calls neither; AlreadyExists, that the one that does is another.
	CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, opts ...grpc.CallOption) (*csi.CreateVolumeResponse, error)
}

// Deleter deletes volumes without a PersistentVolume.
type Deleter interface {
	// DeleteUnowned returns a *deletion.OwnedError if a PersistentVolume stands for the volume. It reads all of them, and calls progressed
	// with each page.
	DeleteUnowned(ctx context.Context, id string, secrets map[string]string, progressed func()) error
}

// Journal has what must survive a crash. A key is a claim's UID.
type Journal interface {
	// Put returns nil once the record can be read again after a crash.
	Put(ctx context.Context, key string, record []byte) error
	// Delete deletes a record with the next write, or within ten seconds.
	Delete(key string)
	// Flush returns nil once a record that was deleted can't be read any more.
	Flush(ctx context.Context, key string) error
	// EndRequest returns the reason why an operator wants a record ended, nothing if none does.
	EndRequest(key string) string
	// RejectEnd removes an operator's request; the record stays.
	RejectEnd(key string)
	// Size is the size of all records in bytes; journal.Limit is the largest.
	Size() int
}

// Protection keeps the sources of volumes from being deleted.
type Protection interface {
	// Protect returns nil once the claim's source can't go.
	Protect(ctx context.Context, claim *v1.PersistentVolumeClaim) error
	// Unprotect says that the claim needs its source no longer.
	Unprotect(claim types.UID)
}

// Topology is what is asked of the cluster's zones.
type Topology interface {
	// Require says where a volume may be, in the order of preference; nil says anywhere.
	Require(topology.Question) (*csi.TopologyRequirement, error)
	// Carried says whether a node with the driver has the term's labels.
	Carried(*csi.Topology) bool
}

// Dependencies are what a Syncer works with.
type Dependencies struct {
	Claims     cache.Indexer // PersistentVolumeClaims, trimmed, with watch.ClaimIndexers
	Volumes    cache.Indexer // PersistentVolumes, trimmed, with watch.VolumeIndexers
	Classes    cache.Store   // StorageClasses
	Namespaces cache.Store   // metadata of Namespaces; nil without Options.NamespaceLabelTags
	Nodes      cache.Store   // metadata of Nodes
	Pods       *watch.Pods   // Pods without a node; nil: each claim is provisioned by itself

	Client     kubernetes.Interface
	Metadata   metadata.Interface
	Driver     Driver
	Deleter    Deleter
	Journal    Journal
	Protection Protection
	Topology   Topology
	Sources    *source.Reader
	Objects    *watch.Objects
	Refusals   *stock.Refusals
	Events     record.EventRecorder
	Registry   prometheus.Registerer
	Upstream   lib6.Metrics // under the library's names
	Now        func() time.Time
}

// Syncer provisions the volumes of claims.
type Syncer struct {
	Config
	Dependencies
	api      apiServer
	siblings siblings
	// newRequest returns what the driver is asked for, errNotOurs, a *failure, a *topology.Error or why there is no request yet.
	newRequest func(context.Context, *v1.PersistentVolumeClaim) (*request.Request, error)
	// reportConflict says so if the Pod of a claim without stock is tied to the zone by another volume.
	reportConflict func(context.Context, *request.Request)
	metrics        *metrics
	queue          workqueue.TypedDelayingInterface[types.UID]
	turns          *turns.Turns
	liveness       *liveness.Monitor

	mu     sync.Mutex // of all below; a task holds it except while task.unlocked waits
	claims map[types.UID]*entry
	// leadingSince is when this process began to lead; zero: it doesn't.
	leadingSince time.Time

	openVolumes, unknownVolumes atomic.Int64 // see counts: metrics are read without the lock
}

// entry is a claim that this process works on or remembers.
type entry struct {
	memory
	namespace string
	working   bool   // a task is under way
	bytes     int    // of the open request in the journal
	class     string // of the claim, as the last task saw it
	node      string // that was selected then; empty for none
	began     time.Time
	counted   counts // of this claim in openVolumes and unknownVolumes
}

// counts are numbers of volumes.
type counts struct {
	open    int64 // under way
	unknown int64 // of unknown outcome
}

// New returns a Syncer that does nothing yet.
func New(config Config, dependencies Dependencies) *Syncer {
	s := &Syncer{
		Config: config, Dependencies: dependencies, claims: map[types.UID]*entry{}, liveness: liveness.New(),
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.UID]{Name: "claims"}),
		turns: turns.New(config.Workers + config.Workers/4),
	}
	s.api, s.siblings, s.newRequest = &apiClient{client: s.Client}, s, s.requestOf
	s.reportConflict = newConflicts(s).report
	s.metrics = newMetrics(s)
	return s
}

// Run works until ctx ends, and returns when no claim is worked on: what is queued then is left to the next leader.
func (s *Syncer) Run(ctx context.Context) {
	s.liveness.Start()
	defer s.liveness.Stop()
	turns.Serve(ctx, s.turns, s.queue, s.turnOf, s.work)
}

// CheckLiveness returns an error if the queue was not served for longer than limit.
func (s *Syncer) CheckLiveness(limit time.Duration) error { return s.liveness.Check(limit) }

// turnOf returns whose turn a claim waits for: its namespace's or, if its volume is made, that of such claims of the namespace, for they do not
// wait for the driver.
func (s *Syncer) turnOf(uid types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.claims[uid]; {
	case e == nil:
		return ""
	case e.volume != nil:
		return e.namespace + "/made"
	default:
		return e.namespace
	}
}

// recount keeps the numbers of volumes under way. s.mu is held.
func (s *Syncer) recount(e *entry) {
	var now counts
	if e.request != nil {
		now.open = 1
		if e.maybeMade && e.volume == nil {
			now.unknown = 1
		}
	}
	s.openVolumes.Add(now.open - e.counted.open)
	s.unknownVolumes.Add(now.unknown - e.counted.unknown)
	e.counted = now
}

// work syncs a claim, and has it queued again. What is queued when the process ends is left to the next one.
func (s *Syncer) work(ctx context.Context, uid types.UID) {
	if s.queue.ShuttingDown() {
		return
	}
	s.liveness.Worked(string(uid))
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.claims[uid]
	if e == nil {
		return
	}
	e.working = true
	defer func() { e.working = false; s.recount(e) }()
	defer func() {
		if r := recover(); r != nil {
			klog.ErrorS(nil, "A panic while provisioning", "claim", uid, "panic", r, "stack", string(debug.Stack()))
			s.queue.AddAfter(uid, s.RetryMax)
		}
	}()
	if again := s.newTask(ctx, uid, e).sync(); again > 0 {
		s.queue.AddAfter(uid, again)
	}
}

// unlocked does what waits for somebody else, without the lock, within a time that does not depend on whom is asked. A panic is an error: what
// it has come to is unknown.
func (t *task) unlocked(do func(ctx context.Context) error) (err error) {
	t.recount(t.entry)
	t.mu.Unlock()
	defer t.mu.Lock()
	defer t.liveness.Progressed()
	ctx, cancel := context.WithTimeout(t.ctx, t.ActionTimeout())
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			klog.ErrorS(nil, "A panic while provisioning", "claim", t.uid, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error: %v", r)
		}
	}()
	return do(ctx)
}

// ActionTimeout bounds each action for a claim: a call of the driver and the requests to the API server that belong to it.
func (c Config) ActionTimeout() time.Duration { return c.Timeout + time.Minute }
