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

	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/provisioner/capacity"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/lib6"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// Controller provisions and deletes volumes while its process leads.
type Controller struct {
	p        *Provisioner
	caches   *watch.Caches
	pods     *watch.Pods // nil without Config.PodClaims
	handlers *handlers
	exec     *executor
	starter  *lib6.Controller
	deletion *deletion.Controller
	capacity *capacity.Controller // nil without Config.Capacity
	store    *journal.Store       // nil without Config.Namespace
	recovery *recoveryStatus

	recovered []*request.Request // by this process, until it handles claims
	recorder  record.EventBroadcaster
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
	caches, err := watch.NewCaches(watch.Config{Requests: config.Options, SourceFinalizer: source.CloneFinalizer}, clients.Main, clients.Metadata)
	if err != nil {
		return nil, err
	}
	commits := newCommits(registry)
	var kept *journal.Store
	var records store = noStore{}
	if config.Namespace != "" {
		kept = newStore(clients.Journal, clients.JournalMetadata, config, commits.Inc)
		records = kept
	}
	broadcaster := record.NewBroadcaster()
	events := boundedEvents{broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: config.DriverName})}
	claims, volumes := caches.Claims.GetIndexer(), caches.Volumes.GetIndexer()
	p := &Provisioner{
		config: config, client: clients.Main, driver: driver, store: records, claims: claims, volumes: volumes,
		deleter: deletion.NewDeleter(clients.Main, driver, config.Timeout),
		objects: watch.NewObjects(clients.Metadata), refusals: stock.New(time.Now),
		conflicts: newConflicts(clients.Main, claims, volumes, events, time.Now), events: events, now: time.Now,
	}
	exec := newExecutor(p)
	p.attempts = exec.table
	p.metrics = newMetrics(registry, exec.table, records, caches.Classes.GetStore())
	p.duplicates = newDuplicates(config.DriverName, volumes, events, p.metrics.duplicates)
	index := topology.NewIndex(config.DriverName)
	p.resolver = &resolver{
		config: config, client: clients.Main, metadata: clients.Metadata, topology: index, refusals: p.refusals,
		sources: source.NewReader(config.sourceOptions(), clients.Main, clients.Dynamic),
		classes: caches.Classes.GetStore(), volumes: volumes, events: events,
	}
	if caches.Namespaces != nil {
		p.resolver.namespaces = caches.Namespaces.GetStore()
	}
	p.protection = source.NewProtection(config.protectionOptions(), clients.Metadata, volumes, p.resolver.sources)
	c := &Controller{
		p: p, caches: caches, exec: exec, store: kept, recorder: broadcaster, recovery: newRecoveryStatus(p),
		deletion: exec.newDeletion(caches.Attachments.GetIndexer()),
		starter: lib6.New(lib6.Config{
			DriverName: config.DriverName, Workers: config.Workers, Starter: exec, Client: clients.Main,
			Claims: caches.Claims, Volumes: caches.Volumes, Classes: caches.Classes,
		}),
	}
	registerOldestDeletion(registry, c.deletion.OldestPending)
	c.handlers = &handlers{p: p, deletion: c.deletion, index: index}
	if config.PodClaims {
		if c.pods, err = watch.NewPods(clients.Main, c.handlers.podGone); err != nil {
			return nil, err
		}
		p.siblings = &siblings{p: p, pods: c.pods}
		p.resolver.siblings, p.conflicts.pods = p.siblings, c.pods
		if config.SupportsTopology {
			p.resolver.placement = &placement{pods: c.pods, nodes: caches.Nodes.GetStore(), claims: claims, volumes: volumes}
		}
	}
	if config.Capacity {
		if err := c.publishCapacities(clients.Capacity); err != nil {
			return nil, err
		}
	}
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: newAggregatedEvents(clients.Events, time.Now)})
	return c, c.handlers.register(caches)
}

// publishCapacities creates the controller of CSIStorageCapacity objects.
func (c *Controller) publishCapacities(client kubernetes.Interface) error {
	config := c.p.config
	objects := capacity.NewInformer(client, config.DriverName, config.Namespace, watch.Resync)
	c.capacity = capacity.NewController(capacity.Config{
		DriverName: config.DriverName, Namespace: config.Namespace, Owner: config.CapacityOwner,
		Threads: config.CapacityThreads, PollInterval: config.CapacityPoll, Timeout: config.Timeout, RetryStart: config.RetryStart, RetryMax: config.RetryMax,
		ForImmediate: config.CapacityForImmediate, GetCapacity: config.DriverTellsCapacity,
		Parameters: func(class *storagev1.StorageClass) (map[string]string, error) {
			settings, err := config.ClassSettings(class)
			return settings.Parameters, err
		},
		Unknown: c.p.capacityUnknown,
	}, client, c.p.driver, c.handlers.index, c.p.refusals, c.caches.Classes.GetStore(), objects.GetStore(), c.p.now)
	classChanged := func(class *storagev1.StorageClass) { c.capacity.Enqueue(class.Name) }
	changed := func(object *storagev1.CSIStorageCapacity) { c.capacity.Enqueue(object.StorageClassName) }
	return errors.Join(
		c.caches.Handle(c.caches.Classes, watch.OnEvent(classChanged, classChanged)),
		c.caches.Add("CSIStorageCapacities", objects), c.caches.Handle(objects, watch.OnEvent(changed, changed)),
	)
}

// wakeOnReturn retries all claims and deletions that may wait for the driver whenever it is back.
func (c *Controller) wakeOnReturn(ctx context.Context) {
	for c.p.driver.AwaitReturn(ctx) == nil {
		klog.InfoS("The driver is back")
		c.exec.table.DriverBack()
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
		err = c.recovery.note(stepCaches, nil)
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
			_ = c.recovery.note(stepCaches, c.caches.NotFull()) // a process that stands by has no Lease to release
		}
	}
}

// catchUp returns once the caches of claims and volumes are at least as new as the API
// server's state at the call: the former leader may have saved volumes that the watches
// have not delivered yet.
func (c *Controller) catchUp(ctx context.Context) error {
	defer func() { go debug.FreeOSMemory() }() // the lists that the caches were compared with
	return c.caches.CatchUp(ctx, func(err error) error { return c.recovery.note(stepCaches, err) })
}

// Run leads until ctx ends, and returns when no call is under way. It begins with the
// recovery: it catches up with earlier leaders and recovers their attempts. It returns
// ErrCannotRecover if that fails for too long.
func (c *Controller) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.recovery.lead()
	for _, step := range []func(context.Context) error{c.catchUp, c.recoverAttempts} {
		switch err := step(ctx); {
		case errors.Is(err, ErrCannotRecover):
			return err
		case err != nil:
			return nil // ctx has ended
		}
	}
	if err := c.handlers.lead(c.caches); err != nil {
		return err
	}
	c.postGone()
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
	stopProtection := inBackground(ctx, c.p.protection.Run)
	var parts sync.WaitGroup
	parts.Go(func() { c.exec.run(ctx) })
	parts.Go(func() { c.deletion.Run(ctx) })
	parts.Go(func() { c.wakeOnReturn(ctx) })
	if c.p.config.DriverListsVolumes {
		parts.Go(func() { newHourlyAudit(c.p).run(ctx) })
	}
	switch {
	case c.capacity != nil:
		parts.Go(func() { c.capacity.Run(ctx) })
	case c.p.config.Namespace != "":
		parts.Go(func() {
			config := c.p.config
			capacity.WithdrawWithRetries(ctx, c.p.client, config.DriverName, config.Namespace, config.RetryStart, config.RetryMax)
		})
	}
	parts.Wait()
	c.p.objects.Stop()
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
