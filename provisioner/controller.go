package provisioner

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/provisioner/capacity"
	"github.com/topodisk/topodisk/provisioner/claim"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/lib6"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// Controller provisions and deletes volumes while its process leads.
type Controller struct {
	config   Config
	client   kubernetes.Interface
	driver   Driver
	caches   *watch.Caches
	pods     *watch.Pods // nil without Config.PodClaims
	objects  *watch.Objects
	refusals *stock.Refusals
	events   record.EventRecorder
	metrics  *metrics

	claims     *claim.Syncer
	protection *source.Protection
	starter    *lib6.Controller
	deletion   *deletion.Controller
	capacity   *capacity.Controller // nil without Config.Capacity
	journal    *journal.Store       // nil without Config.Namespace
	recovery   recoveryStatus
	index      *topology.Index
	reported   *lru.Cache // UIDs of claims whose volumes were reported as duplicates
	recorder   record.EventBroadcaster
}

// Clients are clients of the API server with a rate limit for each purpose. Metadata and
// Dynamic share that of Main, JournalMetadata that of Journal. Metadata watches Nodes and
// objects that claims wait for, Dynamic reads custom resources.
type Clients struct {
	Main, Events, Journal, Capacity kubernetes.Interface

	JournalMetadata metadata.Interface

	Metadata metadata.Interface
	Dynamic  dynamic.Interface
}

// NewController returns a Controller that does nothing yet. Without Config.Namespace it
// has no journal.
func NewController(config Config, clients Clients, driver Driver, registry prometheus.Registerer) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	caches, err := watch.NewCaches(config.Options, clients.Main, clients.Metadata)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster()
	c := &Controller{
		config: config, client: clients.Main, driver: driver, caches: caches, objects: watch.NewObjects(clients.Metadata), refusals: stock.New(time.Now),
		events: boundedEvents{broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: config.DriverName})}, recorder: broadcaster,
		index: topology.NewIndex(config.DriverName), reported: lru.New(maxReported),
	}
	if config.PodClaims {
		if c.pods, err = watch.NewPods(clients.Main, func(pod *watch.Pod) { c.claims.PodGone(pod) }); err != nil {
			return nil, err
		}
	}
	upstream, volumes := lib6.NewMetrics(), caches.Volumes.GetIndexer()
	c.metrics = newMetrics(registry, upstream, caches.Classes.GetStore())
	records := c.newJournal(clients)
	sources := source.NewReader(config.sourceOptions(), clients.Main, clients.Dynamic)
	c.protection = source.NewProtection(clients.Metadata, volumes, sources)
	deleter := deletion.NewDeleter(clients.Main, driver, config.Timeout)
	dependencies := claim.Dependencies{
		Client: clients.Main, Metadata: clients.Metadata, Driver: driver, Deleter: deleter, Journal: records, Protection: c.protection,
		Topology: c.index, Sources: sources, Objects: c.objects, Refusals: c.refusals, Events: c.events, Registry: registry, Upstream: upstream, Now: time.Now,
		Claims: caches.Claims.GetIndexer(), Volumes: volumes, Classes: caches.Classes.GetStore(), Nodes: caches.Nodes.GetStore(), Pods: c.pods,
	}
	if caches.Namespaces != nil {
		dependencies.Namespaces = caches.Namespaces.GetStore()
	}
	c.claims = claim.New(config.Config, dependencies)
	c.deletion = deletion.New(deletion.Config{
		Request: config.Options, Workers: config.Workers, RetryStart: config.RetryStart, RetryMax: config.RetryMax,
		Client: clients.Main, Volumes: volumes, Attachments: caches.Attachments.GetIndexer(), Objects: c.objects, Deleter: deleter,
		Claims: c.claims, Events: c.events, Observe: c.metrics.deleted, IsSuperseded: claim.IsSuperseded,
	})
	c.starter = lib6.New(lib6.Config{
		DriverName: config.DriverName, Workers: config.Workers, Starter: c.claims, Client: clients.Main,
		Claims: caches.Claims, Volumes: caches.Volumes, Classes: caches.Classes,
	})
	c.metrics.oldestDeletion(c.deletion.OldestPending)
	if config.Capacity {
		if err := c.publishCapacities(clients.Capacity); err != nil {
			return nil, err
		}
	}
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: newAggregatedEvents(clients.Events)})
	return c, c.register()
}

// newJournal returns the journal of the namespace that is configured, and one that keeps nothing without it.
func (c *Controller) newJournal(clients Clients) claim.Journal {
	if c.config.Namespace == "" {
		c.metrics.journal(func() int { return 0 })
		return noJournal{}
	}
	c.journal = newStore(clients.Journal, clients.JournalMetadata, c.config, c.metrics.commits.Inc)
	c.metrics.journal(c.journal.Size)
	return c.journal
}

// publishCapacities creates the controller of CSIStorageCapacity objects.
func (c *Controller) publishCapacities(client kubernetes.Interface) error {
	config := c.config
	objects := capacity.NewInformer(client, config.DriverName, config.Namespace, watch.Resync)
	c.capacity = capacity.NewController(capacity.Config{
		DriverName: config.DriverName, Namespace: config.Namespace, Owner: config.CapacityOwner,
		PollInterval: config.CapacityPoll, Timeout: config.Timeout, RetryStart: config.RetryStart, RetryMax: config.RetryMax,
		GetCapacity: config.DriverTellsCapacity,
		Parameters: func(class *storagev1.StorageClass) (map[string]string, error) {
			settings, err := config.ClassSettings(class)
			return settings.Parameters, err
		},
		Unknown: c.capacityUnknown,
	}, client, c.driver, c.index, c.refusals, c.caches.Classes.GetStore(), objects.GetStore(), time.Now)
	classChanged := func(class *storagev1.StorageClass) { c.capacity.Enqueue(class.Name) }
	changed := func(object *storagev1.CSIStorageCapacity) { c.capacity.Enqueue(object.StorageClassName) }
	return errors.Join(
		c.caches.Handle(c.caches.Classes, watch.OnEvent(classChanged, classChanged)),
		c.caches.Add("CSIStorageCapacities", objects), c.caches.Handle(objects, watch.OnEvent(changed, changed)),
	)
}

// wakeOnReturn retries all claims and deletions that may wait for the driver whenever it is back.
func (c *Controller) wakeOnReturn(ctx context.Context) {
	for c.driver.AwaitReturn(ctx) == nil {
		klog.InfoS("The driver is back")
		c.claims.DriverBack()
		c.deletion.RecheckAll()
	}
}

// Start returns once the caches are full, or an error if ctx ends before. A process that
// stands by calls it, too, to take over without delay. The informers outlive ctx, because
// the attempts under way when it ends need the caches.
func (c *Controller) Start(ctx context.Context) error {
	full, done := make(chan struct{}), make(chan struct{})
	go func() { c.reportUntil(full); close(done) }()
	err := c.caches.Fill(ctx)
	if err == nil {
		c.pods.Fill(ctx)
	}
	close(full)
	<-done
	if err == nil {
		err = c.noteRecovery(stepCaches, nil)
	}
	return err
}

// reportUntil reports every reportInterval that the caches are not full, until they are.
func (c *Controller) reportUntil(full <-chan struct{}) {
	for {
		select {
		case <-full:
			return
		case <-time.After(reportInterval):
			_ = c.noteRecovery(stepCaches, c.caches.NotFull()) // a process that stands by has no Lease to release
		}
	}
}

// catchUp returns once the caches of claims and volumes are at least as new as the API
// server's state at the call: the former leader may have saved volumes that the watches
// have not delivered yet.
func (c *Controller) catchUp(ctx context.Context) error {
	defer func() { go debug.FreeOSMemory() }() // the lists that the caches were compared with
	return c.caches.CatchUp(ctx, func(err error) error { return c.noteRecovery(stepCaches, err) })
}

// Run leads until ctx ends, and returns when no call is under way. It begins with the
// recovery: it catches up with earlier leaders and recovers their attempts. It returns
// ErrCannotRecover if that fails for too long.
func (c *Controller) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.recovery.lead()
	for _, step := range []func(context.Context) error{c.catchUp, c.recoverRequests} {
		switch err := step(ctx); {
		case errors.Is(err, ErrCannotRecover):
			return err
		case err != nil:
			return nil // ctx has ended
		}
	}
	if err := c.lead(); err != nil {
		return err
	}
	if err := c.starter.Run(ctx); err != nil {
		return err
	}
	c.work(ctx, end)
	c.recorder.Shutdown()
	if err := context.Cause(ctx); errors.Is(err, leader.ErrLost) {
		return err
	}
	return nil
}

// work provisions and deletes until ctx ends, and returns when no call is under way, the finalizers of sources that are not
// needed any more are removed, and the journal is written. It calls end if another process leads.
func (c *Controller) work(ctx context.Context, end context.CancelCauseFunc) {
	stopJournal := c.keepJournal(ctx, end)
	stopProtection := inBackground(ctx, c.protection.Run)
	var parts sync.WaitGroup
	parts.Go(func() { c.claims.Run(ctx) })
	parts.Go(func() { c.deletion.Run(ctx) })
	parts.Go(func() { c.wakeOnReturn(ctx) })
	if c.config.DriverListsVolumes {
		parts.Go(func() { newHourlyAudit(c).run(ctx) })
	}
	switch {
	case c.capacity != nil:
		parts.Go(func() { c.capacity.Run(ctx) })
	case c.config.Namespace != "":
		parts.Go(func() {
			config := c.config
			capacity.WithdrawWithRetries(ctx, c.client, config.DriverName, config.Namespace, config.RetryStart, config.RetryMax)
		})
	}
	parts.Wait()
	c.objects.Stop()
	stopProtection()
	stopJournal()
}

// inBackground runs a part of the leader that outlives ctx. stop ends it, and returns when it has ended.
func inBackground(ctx context.Context, part func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { part(ctx); close(done) }()
	return func() { cancel(); <-done }
}
