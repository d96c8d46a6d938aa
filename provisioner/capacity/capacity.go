// Package capacity publishes in CSIStorageCapacity objects how large a volume of each
// class may be in each zone. A class has one general object for every place, and one for
// each zone that has less, which the general object excludes (Kubernetes: "Storage
// Capacity"). So a zone without a node, and a node that an autoscaler only plans, never
// count as full. None speaks of nodes that can't be used, so that the scheduler doesn't
// select them.
package capacity

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/topology"
)

// Config is what an operator and the driver's capabilities say of capacities.
type Config struct {
	DriverName   string
	Namespace    string                 // of the objects
	Owner        *metav1.OwnerReference // of the objects; nil for none
	PollInterval time.Duration          // how often the capacities of all classes are read
	Timeout      time.Duration          // of one call to the driver
	RetryStart   time.Duration          // back-off after a first failure; doubles with each one
	RetryMax     time.Duration          // longest back-off
	GetCapacity  bool                   // the driver's GET_CAPACITY

	// Parameters returns the parameters of a class for the driver. An error says that no
	// volume can be made of the class.
	Parameters func(*storagev1.StorageClass) (map[string]string, error)

	// Unknown is told of what the driver answered, once it has not said for UnknownAfter how much there is, and then at
	// most once in that time. The objects stay as they are.
	Unknown func(error)
}

// UnknownAfter is how long it takes before somebody is told that the capacities are not known.
const UnknownAfter = time.Minute

// Driver is what is asked of the CSI driver.
type Driver interface {
	// GetCapacity returns the maximum volume size in a topology, or anywhere. It is called only if Config.GetCapacity.
	GetCapacity(ctx context.Context, in *csi.GetCapacityRequest, opts ...grpc.CallOption) (*csi.GetCapacityResponse, error)
}

// Topology is what is asked of the cluster's zones and nodes.
type Topology interface {
	// Require says where a volume may be.
	Require(topology.Question) (*csi.TopologyRequirement, error)
	// Mislabelled returns the hostname labels of the nodes for which no volume can be made, sorted.
	Mislabelled() []string
	// OnMislabelled has changed called whenever Mislabelled has another answer.
	OnMislabelled(changed func())
}

// maxUnusable bounds the nodes that an object leaves out, and with them its size.
const maxUnusable = 100

// csiDriver is the key of the queue for the CSIDriver object. No class has an empty name.
const csiDriver = ""

// Controller keeps the CSIStorageCapacity objects of every class up to date, and sets the
// storageCapacity of the CSIDriver object.
type Controller struct {
	config   Config
	client   kubernetes.Interface
	driver   Driver
	topology Topology
	refusals *stock.Refusals
	classes  cache.Store
	objects  cache.Store // CSIStorageCapacity objects, by NewInformer
	now      func() time.Time
	queue    workqueue.TypedRateLimitingInterface[string] // names of classes, and csiDriver

	// Of the one goroutine that syncs:

	enabled      bool      // storageCapacity of the CSIDriver was set
	unknownSince time.Time // when the driver first didn't say how much there is, or was told of last; zero: it does
}

// NewInformer returns an informer of the CSIStorageCapacity objects that a Controller
// of the driver has written.
func NewInformer(client kubernetes.Interface, driver, namespace string, resync time.Duration) cache.SharedIndexInformer {
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selectorOf(driver) }))
	return factory.Storage().V1().CSIStorageCapacities().Informer()
}

// NewController returns a Controller that writes nothing before Run. It observes refusals
// by itself; changes of classes and objects are enqueued.
func NewController(
	config Config, client kubernetes.Interface, driver Driver, zones Topology, refusals *stock.Refusals, classes, objects cache.Store, now func() time.Time,
) *Controller {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](config.RetryStart, config.RetryMax)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "capacities"})
	c := &Controller{
		config: config, client: client, driver: driver, topology: zones, refusals: refusals, classes: classes, objects: objects, now: now, queue: queue,
	}
	refusals.OnChange(c.refusalChanged)
	zones.OnMislabelled(c.enqueueAll)
	return c
}

// Run works until ctx ends. It syncs every class at once, and again every poll interval.
func (c *Controller) Run(ctx context.Context) {
	var group utilwait.Group
	group.StartWithContext(ctx, func(ctx context.Context) { // one class after the other: few are to be read at once
		for c.processNext(ctx) {
		}
	})
	group.StartWithContext(ctx, c.poll)
	<-ctx.Done()
	c.queue.ShutDown()
	group.Wait()
}

// Enqueue syncs a class after a change of it or of one of its objects.
func (c *Controller) Enqueue(class string) { c.queue.Add(class) }

func (c *Controller) poll(ctx context.Context) {
	utilwait.UntilWithContext(ctx, func(context.Context) {
		c.enqueueAll()
		c.queue.Add(csiDriver)
	}, c.config.PollInterval)
}

// enqueueAll enqueues every class, and every class name that an object has.
func (c *Controller) enqueueAll() {
	for _, object := range c.classes.List() {
		if class := object.(*storagev1.StorageClass); c.isPublished(class) {
			c.queue.Add(class.Name)
		}
	}
	for _, object := range c.objects.List() {
		c.queue.Add(object.(*storagev1.CSIStorageCapacity).StorageClassName)
	}
}

// refusalChanged syncs the class now, and again when the refusal ends.
func (c *Controller) refusalChanged(class string, until time.Time) {
	c.queue.Add(class)
	if left := until.Sub(c.now()); left > 0 {
		c.queue.AddAfter(class, left)
	}
}

// isPublished says whether a class should have objects.
func (c *Controller) isPublished(class *storagev1.StorageClass) bool {
	waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	return class.Provisioner == c.config.DriverName && waits
}

func (c *Controller) processNext(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	sync := c.syncClass
	if key == csiDriver {
		sync = c.syncCSIDriver
	}
	if err := sync(ctx, key); err != nil {
		klog.ErrorS(err, "Updating the CSIStorageCapacity objects of a class failed", "class", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	if !c.enabled && key != csiDriver {
		c.queue.Add(csiDriver)
	}
	return true
}

// syncClass makes the objects of a class the desired ones, and writes nothing if they are.
func (c *Controller) syncClass(ctx context.Context, name string) error {
	shown := objectsOf(name, c.objects.List())
	desired, err := c.desired(ctx, name, shown)
	if equalObjects(desired, shown) {
		return err
	}
	return errors.Join(err, c.write(ctx, name, desired))
}

// desired returns the objects that a class should have, those of zones first: none if the
// class is gone or not published. With an error about what could not be read it returns
// what follows from the rest.
func (c *Controller) desired(ctx context.Context, name string, shown []*storagev1.CSIStorageCapacity) ([]*storagev1.CSIStorageCapacity, error) {
	class := c.class(name)
	if class == nil {
		return nil, nil
	}
	known, err := c.query(ctx, class, shown)
	unusable := c.topology.Mislabelled()
	if len(unusable) > maxUnusable {
		klog.InfoS("More nodes have zone labels that disagree than CSIStorageCapacity objects can leave out", "nodes", len(unusable), "leftOut", maxUnusable)
		unusable = unusable[:maxUnusable]
	}
	var desired []*storagev1.CSIStorageCapacity
	var exceptions []string
	for _, zone := range slices.Sorted(maps.Keys(known.zones)) {
		if bytes := min(known.zones[zone], c.refusals.Most(class, zone)); bytes < known.general {
			exceptions = append(exceptions, zone)
			desired = append(desired, c.config.newObject(scope{class: name, zone: zone, unusable: unusable}, bytes))
		}
	}
	return append(desired, c.config.newObject(scope{class: name, except: exceptions, unusable: unusable}, known.general)), err
}

// class returns a published class, else nil.
func (c *Controller) class(name string) *storagev1.StorageClass {
	object, exists, err := c.classes.GetByKey(name)
	if err != nil || !exists || !c.isPublished(object.(*storagev1.StorageClass)) {
		return nil
	}
	return object.(*storagev1.StorageClass)
}
