package provisioner

import (
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/topodisk/topodisk/provisioner/attempt"
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

// Controller is a Provisioner with everything that it watches.
type Controller struct {
	p        *Provisioner
	caches   *watch.Caches
	index    *topology.Index
	exec     *executor
	starter  *lib6.Controller
	deletion *deletion.Controller
	capacity *capacity.Controller // nil without Config.Capacity
	store    *journal.Store       // nil without Config.Namespace
	leading  atomic.Bool
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
	index := topology.NewIndex(config.DriverName)
	commits := newCommits(registry)
	var kept *journal.Store
	var records store = noStore{}
	if config.Namespace != "" {
		kept = newStore(clients.Journal, clients.JournalMetadata, config, commits.Inc)
		records = kept
	}
	broadcaster := record.NewBroadcaster()
	c := &Controller{
		caches:   caches,
		index:    index,
		store:    kept,
		recorder: broadcaster,
		p: &Provisioner{
			config: config, client: clients.Main, metadata: clients.Metadata, driver: driver, topology: index, store: records,
			claims: caches.Claims.GetIndexer(), volumes: caches.Volumes.GetIndexer(), classes: caches.Classes.GetStore(),
			deleter: deletion.NewDeleter(clients.Main, driver, config.Timeout), secrets: &secrets{clients.Main},
			objects: watch.NewObjects(clients.Metadata), refusals: stock.New(time.Now), waitingPods: newWaitingPods(time.Now), duplicates: newDuplicates(),
			events: broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: config.DriverName}),
			now:    time.Now,
		},
	}
	c.exec = newExecutor(c.p)
	c.p.attempts = c.exec.table
	c.p.metrics = newMetrics(registry, c.exec.table, records)
	if caches.Namespaces != nil {
		c.p.namespaces = caches.Namespaces.GetStore()
	}
	c.p.sources = source.NewReader(config.sourceOptions(), clients.Main, clients.Dynamic)
	c.p.protection = source.NewProtection(config.protectionOptions(), clients.Metadata, c.p.sources)
	c.recovery = newRecovery(c.p)
	c.starter = lib6.New(lib6.Config{
		DriverName: config.DriverName, Workers: config.Workers, Starter: c.exec, Client: clients.Main,
		Claims: caches.Claims, Volumes: caches.Volumes, Classes: caches.Classes,
	})
	events := eventsFolded(clients.Events, newEventMemory(time.Now))
	c.deletion = c.exec.newDeletion(caches.Attachments.GetIndexer())
	c.exec.recheckDeletion = c.deletion.Recheck
	if config.Capacity {
		if err := c.publishCapacities(clients.Capacity); err != nil {
			return nil, err
		}
	}
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: events(metav1.NamespaceAll)})
	return c, c.handleEvents()
}

// publishCapacities has CSIStorageCapacity objects kept.
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
	}, client, c.p.driver, c.p.topology, c.p.refusals, c.p.classes, objects.GetStore(), c.p.now)
	changed := func(object *storagev1.CSIStorageCapacity) { c.capacity.Enqueue(object.StorageClassName) }
	return errors.Join(c.caches.Add("CSIStorageCapacities", objects), c.caches.Handle(objects, watch.OnEvent(changed, changed)))
}

// handleEvents registers the handlers of events.
func (c *Controller) handleEvents() error {
	return errors.Join(
		c.caches.Handle(c.caches.Claims, watch.OnEvent(c.claimChanged, c.claimGone)),
		c.caches.Handle(c.caches.Volumes, watch.OnEvent(c.volumeChanged, c.volumeGone)),
		c.caches.Handle(c.caches.Classes, watch.OnEvent(c.classChanged, c.classChanged)),
		c.caches.Handle(c.caches.Attachments, watch.OnEvent(nil, c.deletion.AttachmentDeleted)),
		c.caches.Handle(c.caches.Nodes, watch.OnUpdate(c.nodeChanged, c.nodeGone)),
		c.caches.Handle(c.caches.CSINodes, watch.OnEvent(c.csiNodeChanged, c.csiNodeGone)),
	)
}

// lead says that from now on this process provisions and deletes, and speaks to the owners of claims: until then nothing is
// queued, for nobody would take it off.
func (c *Controller) lead() {
	c.leading.Store(true)
	c.exec.table.Lead(c.p.now())
	for _, object := range c.p.volumes.List() {
		c.volumeChanged(object.(*v1.PersistentVolume))
	}
	for _, object := range c.p.claims.List() {
		c.claimChanged(object.(*v1.PersistentVolumeClaim))
	}
}

func (c *Controller) claimChanged(claim *v1.PersistentVolumeClaim) {
	if c.leading.Load() {
		c.p.protection.ClaimChanged(claim)
		c.p.notifyMigration(claim)
		c.showClaim(claim)
	}
}

// showClaim tells the claim's Record. A claim that has none gets one ahead of its turn if its request can be prefetched.
func (c *Controller) showClaim(claim *v1.PersistentVolumeClaim) {
	if changed := (attempt.ClaimChanged{Claim: claim}); !c.exec.table.Post(claim.UID, changed) && c.p.classAhead(claim) != nil {
		c.exec.table.Begin(claim.UID, changed)
	}
}

// showVolume tells the Record of the PersistentVolume's claim. As long as the cache shows the claim without a volume, the
// Record remembers that it has one: once the cache has shown that the claim is bound, it never shows less.
func (c *Controller) showVolume(pv *v1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return
	}
	seen := attempt.VolumeSeen{Volume: pv}
	if claim := c.p.claimOf(pv); claim != nil && claim.Spec.VolumeName == "" || claim == nil && mayBeBound(pv) {
		c.exec.table.Begin(ref.UID, seen)
		return
	}
	c.exec.table.Post(ref.UID, seen)
}

// mayBeBound says whether Kubernetes may be about to bind a claim to the PersistentVolume, or has just done so.
func mayBeBound(pv *v1.PersistentVolume) bool {
	return pv.Status.Phase != v1.VolumeReleased && pv.Status.Phase != v1.VolumeFailed
}

// claimOf returns the claim that the PersistentVolume is for as the cache shows it, nil if it doesn't.
func (p *Provisioner) claimOf(pv *v1.PersistentVolume) *v1.PersistentVolumeClaim {
	object, exists, err := p.claims.GetByKey(pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name)
	if err != nil || !exists || object.(*v1.PersistentVolumeClaim).UID != pv.Spec.ClaimRef.UID {
		return nil
	}
	return object.(*v1.PersistentVolumeClaim)
}

func (c *Controller) claimGone(claim *v1.PersistentVolumeClaim) {
	c.exec.table.Post(claim.UID, attempt.ClaimGone{})
}

func (c *Controller) volumeChanged(pv *v1.PersistentVolume) {
	if !c.leading.Load() {
		return
	}
	c.showVolume(pv)
	c.p.notifyDuplicates(pv)
	if pv.DeletionTimestamp != nil || !request.HasFinalizer(pv) {
		c.volumeGoes(pv)
	}
	c.deletion.VolumeChanged(pv)
}

// volumeGoes hears that a claim's PersistentVolume is about to go, or can go without us: no record of the journal may lean on it
// any more.
func (c *Controller) volumeGoes(pv *v1.PersistentVolume) {
	if claim := request.ClaimUID(pv); claim != "" {
		c.p.store.Expedite(string(claim))
	}
}

func (c *Controller) volumeGone(pv *v1.PersistentVolume) {
	if !c.leading.Load() {
		return
	}
	c.volumeGoes(pv)
	c.deletion.VolumeDeleted(pv)
	c.exec.table.Post(request.ClaimUID(pv), attempt.VolumeGone{Name: pv.Name})
}

func (c *Controller) enqueueCapacity(class *storagev1.StorageClass) {
	if c.capacity != nil {
		c.capacity.Enqueue(class.Name)
	}
}

func (c *Controller) classChanged(class *storagev1.StorageClass) {
	c.enqueueCapacity(class)
	c.exec.table.ClassChanged(class.Name)
}

// nodeChanged ignores the heartbeat: only labels matter.
func (c *Controller) nodeChanged(old, now *metav1.PartialObjectMetadata) {
	if old != nil && maps.Equal(old.Labels, now.Labels) {
		return
	}
	c.index.SetNode(&v1.Node{ObjectMeta: now.ObjectMeta})
	if old == nil || !sameButFor(c.p.config.ExtraLabelPrefix, old.Labels, now.Labels) {
		c.exec.table.NodeChanged(now.Name)
	}
}

// sameButFor says whether labels differ in nothing but those with a prefix: what a
// node can attach opens no zone that wasn't there, and is written on every node at
// once when a cluster begins to say so.
func sameButFor(prefix string, a, b map[string]string) bool {
	rest := func(labels map[string]string) map[string]string {
		labels = maps.Clone(labels)
		maps.DeleteFunc(labels, func(key, _ string) bool { return prefix != "" && strings.HasPrefix(key, prefix) })
		return labels
	}
	return maps.Equal(rest(a), rest(b))
}

func (c *Controller) nodeGone(node *metav1.PartialObjectMetadata) {
	c.index.DeleteNode(node.Name)
	c.exec.table.NodeChanged(node.Name)
}

func (c *Controller) csiNodeChanged(node *storagev1.CSINode) {
	c.index.SetCSINode(node)
	c.exec.table.NodeChanged(node.Name)
}

func (c *Controller) csiNodeGone(node *storagev1.CSINode) {
	c.index.DeleteCSINode(node.Name)
	c.exec.table.NodeChanged(node.Name)
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
	c.lead()
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
		parts.Go(func() { c.p.countOrphans(ctx) })
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
