// Package lib6 is the only user of sig-storage-lib-external-provisioner v6.
//
// The library queues claims and decides which of them are this provisioner's and ready to
// be provisioned. For each it calls Provision, which calls Starter.Start and returns an
// IgnoredError: retries, events, metrics and PersistentVolumes are not the library's.
//
// What it relies on, by the lines of controller/controller.go in v6.3.0, each pinned
// by a test:
//
//	635   constructing the controller writes into the scheme that every client reads, so it is constructed before any of them works
//	708   constructing it registers its handler of claims: that is deferred until this process leads
//	735   constructing it registers a handler of volumes: none is registered here
//	1050  a claim that is in no cache, and not in progress, is dropped
//	1152  a claim with a volume is dropped without an error, and so is one that ShouldProvision refuses (1157)
//	1164  the claim's provisioner is known by the older one of its two annotations alone (83): package watch keeps both alike
//	1171  the class may bind late, and must exist (1167): every class exists here, without a binding mode
//	1338  a PersistentVolume named pvc-UID would end the claim: none is shown here
//	1367  the class must name this provisioner: every class here does
//	1380  the selected node must exist: every node does here
//	1399  an event is written before each attempt: it is dropped
//	1403  an IgnoredError that is not wrapped ends the attempt without an event, and without a retry (1094)
package lib6

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v6/controller"
	libmetrics "sigs.k8s.io/sig-storage-lib-external-provisioner/v6/controller/metrics"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// libraryVersion is the Kubernetes version given to the library: it disables its support
// of old ones.
const libraryVersion = "v1.30.0"

// Starter starts the provisioning of claims.
type Starter interface {
	// ShouldStart says whether to start the claim, which is this provisioner's and has no volume.
	ShouldStart(claim *v1.PersistentVolumeClaim) bool
	// Start starts the claim. It must not block.
	Start(claim *v1.PersistentVolumeClaim)
}

// Config configures the library.
type Config struct {
	DriverName string
	Workers    int
	Starter    Starter
	Client     kubernetes.Interface // none of its methods sends a request
	// Claims, Volumes and Classes are run by the caller. Claims has watch.ClaimIndexers.
	Claims, Volumes, Classes cache.SharedIndexInformer
}

// Controller is the library's.
type Controller struct {
	provision *controller.ProvisionController
	claims    *claims
}

// New returns a Controller that does nothing yet. No client may be in use during the call.
func New(c Config) *Controller {
	claims := &claims{SharedIndexInformer: c.Claims, Indexer: c.Claims.GetIndexer(), driver: c.DriverName}
	core := c.Client.CoreV1()
	return &Controller{claims: claims, provision: controller.NewProvisionController(
		silent{c.Client, core, core.Events(metav1.NamespaceAll)},
		c.DriverName,
		provisioner{c.Starter},
		libraryVersion,
		controller.LeaderElection(false), // the lock that it uses no longer exists in Kubernetes
		controller.Threadiness(c.Workers),
		controller.ClaimsInformer(claims),
		controller.VolumesInformer(volumes{c.Volumes}),
		controller.ClassesInformer(classes{SharedIndexInformer: c.Classes, driver: c.DriverName}),
		controller.NodesLister(anyNode{}),
		controller.MetricsInstance(NewMetrics()), // not registered
	)}
}

// Run runs the library until the process ends: it can't be stopped. Claims are queued from
// now on, so that none is queued while the process stands by.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.claims.register(); err != nil {
		return err
	}
	go c.provision.Run(context.WithoutCancel(ctx))
	return nil
}

// Metrics are the metrics of the library's names.
type Metrics = libmetrics.Metrics

// NewMetrics returns metrics under the library's names, for the caller to update.
func NewMetrics() Metrics { return libmetrics.New(libmetrics.ControllerSubsystem) }

// provisioner is what the library calls.
type provisioner struct{ starter Starter }

// started is the reason of the IgnoredError.
const started = "the claim is provisioned outside of the library"

// Provision implements controller.Provisioner.
func (p provisioner) Provision(_ context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	p.starter.Start(options.PVC)
	return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: started}
}

// Delete implements controller.Provisioner. It is never called: see ShouldDelete.
func (provisioner) Delete(context.Context, *v1.PersistentVolume) error {
	return &controller.IgnoredError{Reason: "volumes are deleted by another controller"}
}

// ShouldProvision implements controller.Qualifier.
func (p provisioner) ShouldProvision(_ context.Context, claim *v1.PersistentVolumeClaim) bool {
	return p.starter.ShouldStart(claim)
}

// ShouldDelete implements controller.DeletionGuard.
func (provisioner) ShouldDelete(context.Context, *v1.PersistentVolume) bool { return false }

// SupportsBlock implements controller.BlockProvisioner.
func (provisioner) SupportsBlock(context.Context) bool { return true }

// claims is an informer that shows the library only this provisioner's claims.
type claims struct {
	cache.SharedIndexInformer
	cache.Indexer
	driver  string
	handler cache.ResourceEventHandler // the library's
	resync  time.Duration
}

// AddEventHandlerWithResyncPeriod keeps the library's handler for register.
func (c *claims) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	c.handler, c.resync = handler, resync
	return nil, nil
}

// register registers the library's handler, for this provisioner's claims only.
func (c *claims) register() error {
	ours := func(object any) bool {
		claim, ok := object.(*v1.PersistentVolumeClaim)
		return ok && request.IsOurs(claim, c.driver)
	}
	_, err := c.SharedIndexInformer.AddEventHandlerWithResyncPeriod(cache.FilteringResourceEventHandler{FilterFunc: ours, Handler: c.handler}, c.resync)
	return err
}

// AddIndexers ignores the library's index by UID: there is one already.
func (*claims) AddIndexers(cache.Indexers) error { return nil }

// GetIndexer returns the library's view of the cache.
func (c *claims) GetIndexer() cache.Indexer { return c }

// ByIndex is called with the library's one index.
func (c *claims) ByIndex(_, uid string) (objects []any, err error) {
	found, err := watch.ClaimsWithUID(c.Indexer, types.UID(uid))
	for _, claim := range found {
		objects = append(objects, claim)
	}
	return objects, err
}

// volumes is an informer that shows no PersistentVolumes: the Starter knows whether a claim has one.
type volumes struct{ cache.SharedIndexInformer }

// AddEventHandlerWithResyncPeriod registers nothing.
func (volumes) AddEventHandlerWithResyncPeriod(cache.ResourceEventHandler, time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

func (volumes) GetStore() cache.Store { return cache.NewStore(cache.MetaNamespaceKeyFunc) }

// classes is an informer that shows every class as this provisioner's: the Starter checks the class.
type classes struct {
	cache.SharedIndexInformer
	cache.Store
	driver string
}

func (c classes) GetStore() cache.Store { return c }

func (c classes) GetByKey(name string) (any, bool, error) {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: c.driver}, true, nil
}

// anyNode is a lister in which every node exists.
type anyNode struct{}

func (anyNode) List(labels.Selector) ([]*v1.Node, error) { return nil, nil }

func (anyNode) Get(name string) (*v1.Node, error) {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

var _ corelisters.NodeLister = anyNode{}

// silent is a client that drops events: the library's only one is Provisioning, before the attempt.
type silent struct {
	kubernetes.Interface
	corev1client.CoreV1Interface
	corev1client.EventInterface
}

func (s silent) CoreV1() corev1client.CoreV1Interface { return s }

func (s silent) Events(string) corev1client.EventInterface { return s }

func (silent) CreateWithEventNamespace(event *v1.Event) (*v1.Event, error) { return event, nil }

func (silent) PatchWithEventNamespace(event *v1.Event, _ []byte) (*v1.Event, error) {
	return event, nil
}
