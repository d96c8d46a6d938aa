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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// Controller is a Provisioner with everything that it watches.
type Controller struct {
	p        *Provisioner
	caches   *watch.Caches
	handlers *handlers
	exec     *executor
	starter  *lib6.Controller
	deletion *deletion.Controller
	capacity *capacity.Controller // nil without Config.Capacity
	store    *journal.Store       // nil without Config.Namespace
	recovery *recovery
	recorder record.EventBroadcaster
}

// Clients are one client of the API server for each purpose, so that none waits
// for another's rate limit. JournalMetadata shares the limit of Journal. Metadata and Dynamic share the limit of Main: the
// former watches Nodes and what claims wait for, the latter reads what is no part
// of Kubernetes itself.
type Clients struct {
	Main, Events, Journal, Capacity kubernetes.Interface

	JournalMetadata metadata.Interface

	Metadata metadata.Interface
	Dynamic  dynamic.Interface
}

// NewController wires a Provisioner to the API server. Without a namespace of
// its own it keeps its journal in memory alone.
func NewController(config Config, clients Clients, driver Driver, registry prometheus.Registerer) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	caches, err := watch.NewCaches(watch.Config{
		DriverName: config.DriverName, SourceFinalizer: source.CloneFinalizer, NamespaceLabels: config.NamespaceLabelTags,
	}, clients.Main, clients.Metadata)
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
	events := broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: config.DriverName})
	claims, volumes := caches.Claims.GetIndexer(), caches.Volumes.GetIndexer()
	p := &Provisioner{
		config: config, client: clients.Main, driver: driver, store: records, claims: claims, volumes: volumes,
		deleter: deletion.NewDeleter(clients.Main, volumes, driver, config.Timeout), secrets: &secrets{clients.Main},
		objects: watch.NewObjects(clients.Metadata), refusals: stock.New(time.Now),
		conflicts: newConflicts(clients.Main, claims, volumes, events, time.Now), events: events, now: time.Now,
	}
	exec := newExecutor(p)
	p.attempts = exec.table
	p.metrics = newMetrics(registry, exec.table, records)
	p.duplicates = newDuplicates(config.DriverName, volumes, events, p.metrics.duplicates)
	index := topology.NewIndex(config.DriverName)
	p.resolver = &resolver{
		config: config, client: clients.Main, metadata: clients.Metadata, topology: index, secrets: p.secrets, refusals: p.refusals,
		sources: source.NewReader(config.sourceOptions(), clients.Main, clients.Dynamic),
		classes: caches.Classes.GetStore(), volumes: volumes, events: events,
	}
	if caches.Namespaces != nil {
		p.resolver.namespaces = caches.Namespaces.GetStore()
	}
	p.protection = source.NewProtection(config.protectionOptions(), clients.Metadata, p.resolver.sources)
	c := &Controller{
		p: p, caches: caches, exec: exec, store: kept, recorder: broadcaster, recovery: newRecovery(p),
		deletion: exec.newDeletion(caches.Attachments.GetIndexer()),
		starter: lib6.New(lib6.Config{
			DriverName: config.DriverName, Workers: config.Workers, Starter: exec, Client: clients.Main,
			Claims: caches.Claims, Volumes: caches.Volumes, Classes: caches.Classes,
		}),
	}
	exec.recheckDeletion = c.deletion.Recheck
	c.handlers = &handlers{p: p, deletion: c.deletion, index: index}
	if config.Capacity {
		if err := c.publishCapacities(clients.Capacity); err != nil {
			return nil, err
		}
	}
	sink := foldedEvents(clients.Events, newEventMemory(time.Now))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: sink(metav1.NamespaceAll)})
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
	}, client, c.p.driver, c.handlers.index, c.p.refusals, c.caches.Classes.GetStore(), objects.GetStore(), c.p.now)
	classChanged := func(class *storagev1.StorageClass) { c.capacity.Enqueue(class.Name) }
	changed := func(object *storagev1.CSIStorageCapacity) { c.capacity.Enqueue(object.StorageClassName) }
	return errors.Join(
		c.caches.Handle(c.caches.Classes, watch.OnEvent(classChanged, classChanged)),
		c.caches.Add("CSIStorageCapacities", objects), c.caches.Handle(objects, watch.OnEvent(changed, changed)),
	)
}

// wakeOnReturn has all that waits for the driver tried again when that is back, with as many calls at a time as there are workers.
func (c *Controller) wakeOnReturn(ctx context.Context) {
	for c.p.driver.AwaitReturn(ctx) == nil {
		klog.InfoS("The driver is back")
		c.exec.table.DriverBack()
		c.deletion.RecheckAll()
	}
}

// Start fills the caches, for a stand-by with warm caches takes over without
// delay, and returns an error if ctx ends before they are full. They are kept
// as long as the process lives: what is under way when ctx ends needs them.
func (c *Controller) Start(ctx context.Context) error {
	full, told := make(chan struct{}), make(chan struct{})
	go func() { c.reportUntil(full); close(told) }()
	err := c.caches.Fill(ctx)
	close(full)
	<-told
	if err == nil {
		err = c.recovery.note(stepCaches, nil)
	}
	return err
}

// reportUntil tells every now and then that the caches are not full, until they are.
func (c *Controller) reportUntil(full <-chan struct{}) {
	for {
		select {
		case <-full:
			return
		case <-time.After(recoveryTell):
			_ = c.recovery.note(stepCaches, c.caches.NotFull()) // who stands by has no Lease to give up
		}
	}
}

// catchUp returns once the caches of claims and volumes are at least as new as the
// moment of the call: the process that led before may have saved volumes that the
// watches haven't delivered yet.
func (c *Controller) catchUp(ctx context.Context) error {
	defer func() { go debug.FreeOSMemory() }() // what the caches were compared with
	return c.caches.CatchUp(ctx, func(err error) error { return c.recovery.note(stepCaches, err) })
}

// Run works until ctx ends, and returns when all that was begun has an outcome.
// First of all it catches up with what an earlier process has done, and takes
// up what that has left under way. It returns ErrCannotRecover if that can't be done.
func (c *Controller) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.recovery.lead()
	for _, step := range []func(context.Context) error{c.catchUp, c.recoverAttempts} {
		switch err := step(ctx); {
		case errors.Is(err, ErrCannotRecover):
			return err
		case err != nil:
			return nil // the end came first
		}
	}
	c.handlers.lead()
	if err := c.starter.Run(ctx); err != nil {
		return err
	}
	stopJournal := c.keepJournal(ctx, end)
	var parts sync.WaitGroup
	parts.Go(func() { c.exec.run(ctx) })
	parts.Go(func() { c.deletion.Run(ctx) })
	parts.Go(func() { c.p.protection.Run(ctx) })
	parts.Go(func() { c.wakeOnReturn(ctx) })
	if c.p.config.DriverListsVolumes {
		parts.Go(func() { newOrphans(c.p).run(ctx) })
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
	stopJournal()
	c.recorder.Shutdown()
	if err := context.Cause(ctx); errors.Is(err, leader.ErrLost) {
		return err
	}
	return nil
}
