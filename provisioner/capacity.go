package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/topology"
)

// announcement is the key by which the CSIDriver object is looked at. No class
// has an empty name.
const announcement = ""

// capacities keeps the CSIStorageCapacity objects of every class: a general one
// for everywhere, and one for each zone that has less to give, which the general
// one leaves out (Kubernetes: "Storage Capacity"). So a zone without a node, and a
// node that an autoscaler only thinks of, are never taken for full.
type capacities struct {
	p       *Provisioner
	classes cache.Store
	objects cache.Store // CSIStorageCapacity, ours alone
	client  kubernetes.Interface
	queue   workqueue.TypedRateLimitingInterface[string] // names of classes

	announced atomic.Bool
}

func newCapacities(p *Provisioner, client kubernetes.Interface, classes, objects cache.Store) *capacities {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](p.config.RetryStart, p.config.RetryMax)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "capacities"})
	c := &capacities{p: p, client: client, classes: classes, objects: objects, queue: queue}
	p.refusals.OnChange(c.refusalChanged)
	return c
}

// run works until ctx ends: it looks at every class at once, says so on the
// CSIDriver object, and looks again every poll interval.
func (c *capacities) run(ctx context.Context) {
	var group utilwait.Group
	for range c.p.config.CapacityThreads {
		group.StartWithContext(ctx, func(ctx context.Context) {
			for c.next(ctx) {
			}
		})
	}
	group.StartWithContext(ctx, c.poll)
	<-ctx.Done()
	c.queue.ShutDown()
	group.Wait()
}

func (c *capacities) poll(ctx context.Context) {
	utilwait.UntilWithContext(ctx, func(context.Context) {
		c.refresh()
		c.queue.Add(announcement)
	}, c.p.config.CapacityPoll)
}

// refresh has every class looked at again, and every class that objects are left of.
func (c *capacities) refresh() {
	for _, object := range c.classes.List() {
		if class := object.(*storagev1.StorageClass); c.isWanted(class) {
			c.queue.Add(class.Name)
		}
	}
	for _, object := range c.objects.List() {
		c.queue.Add(object.(*storagev1.CSIStorageCapacity).StorageClassName)
	}
}

// refusalChanged has the class looked at now, and again when the refusal has ended.
func (c *capacities) refusalChanged(class string, until time.Time) {
	c.queue.Add(class)
	if left := until.Sub(c.p.now()); left > 0 {
		c.queue.AddAfter(class, left)
	}
}

func (c *capacities) isWanted(class *storagev1.StorageClass) bool {
	late := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	return class.Provisioner == c.p.config.DriverName && (late || c.p.config.CapacityForImmediate)
}

func (c *capacities) next(ctx context.Context) bool {
	class, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(class)
	work := c.sync
	if class == announcement {
		work = c.announce
	}
	if err := work(ctx, class); err != nil {
		klog.ErrorS(err, "The capacities of a class could not be told in full", "class", class)
		c.queue.AddRateLimited(class)
		return true
	}
	c.queue.Forget(class)
	if !c.announced.Load() && class != announcement {
		c.queue.Add(announcement)
	}
	return true
}

// sync makes the objects of a class what they should be, and writes nothing if they are.
func (c *capacities) sync(ctx context.Context, name string) error {
	shown := objectsOf(name, c.objects.List())
	wanted, err := c.wanted(ctx, name, shown)
	if sameObjects(wanted, shown) {
		return err
	}
	return errors.Join(err, c.write(ctx, name, wanted))
}

// wanted returns the objects that a class should have, those of exceptions first:
// none if the class is gone or of no interest. With an error that says what could
// not be found out it returns what follows from the rest.
func (c *capacities) wanted(ctx context.Context, name string, shown []*storagev1.CSIStorageCapacity) ([]*storagev1.CSIStorageCapacity, error) {
	class := c.class(name)
	if class == nil {
		return nil, nil
	}
	known, err := c.askAll(ctx, class, shown)
	var wanted []*storagev1.CSIStorageCapacity
	var less []string
	for _, zone := range slices.Sorted(maps.Keys(known.zones)) {
		if bytes := min(known.zones[zone], c.p.refusals.Most(class, zone)); bytes < known.general {
			less = append(less, zone)
			wanted = append(wanted, c.object(scope{class: name, zone: zone}, bytes))
		}
	}
	return append(wanted, c.object(scope{class: name, but: less}, known.general)), err
}

// class returns a class that there should be objects of, else nil.
func (c *capacities) class(name string) *storagev1.StorageClass {
	object, exists, err := c.classes.GetByKey(name)
	if err != nil || !exists || !c.isWanted(object.(*storagev1.StorageClass)) {
		return nil
	}
	return object.(*storagev1.StorageClass)
}

// askAll asks the driver for the largest volumes of a class, without regard to
// what it has refused. What the driver can't answer now stays as the objects say;
// where they say nothing, and where the driver knows of no volume in any zone, a
// zone is taken to have everything.
func (c *capacities) askAll(ctx context.Context, class *storagev1.StorageClass, shown []*storagev1.CSIStorageCapacity) (sizes, error) {
	before, known := sizesOf(shown), sizes{general: math.MaxInt64, zones: map[string]int64{}}
	settings, err := c.p.config.ClassSettings(class)
	asks := err == nil && c.p.config.DriverTellsCapacity // no volume can be made of a class that is wrong, which each claim is told
	var failed error
	answer := func(where *csi.Topology, before int64) int64 {
		if !asks {
			return math.MaxInt64
		}
		if failed != nil { // it would not answer now either
			return before
		}
		said, err := c.ask(ctx, settings.Parameters, where)
		switch {
		case status.Code(err) == codes.InvalidArgument:
			return math.MaxInt64 // a claim is told what is wrong, if it comes that far
		case err != nil:
			failed = fmt.Errorf("GetCapacity of class %s in %v: %w", class.Name, where.GetSegments(), err)
			return before
		}
		return said
	}
	if known.general = answer(nil, before.general); known.general == 0 {
		known.general = math.MaxInt64 // of zones that nobody knows this says nothing
	}
	for _, zone := range c.zones(class, before) {
		known.zones[zone] = answer(&csi.Topology{Segments: map[string]string{topology.WellKnownZoneKey: zone}}, before.of(zone))
	}
	return known, failed
}

// ask returns the size of the largest volume that the driver has there now, or
// anywhere if where is nil.
func (c *capacities) ask(ctx context.Context, parameters map[string]string, where *csi.Topology) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.p.config.Timeout)
	defer cancel()
	response, err := c.p.driver.GetCapacity(ctx, &csi.GetCapacityRequest{Parameters: maps.Clone(parameters), AccessibleTopology: where})
	if err != nil {
		return 0, err
	}
	if largest := response.GetMaximumVolumeSize(); largest != nil {
		return largest.GetValue(), nil
	}
	return response.GetAvailableCapacity(), nil
}

// zones returns, sorted, the zones that may be exceptions: those that the class
// allows, or else those of nodes; those that are exceptions now, for a zone doesn't
// sell again because its last node is gone; and those that were just refused.
func (c *capacities) zones(class *storagev1.StorageClass, before sizes) []string {
	zones := append(slices.Collect(maps.Keys(before.zones)), c.p.refusals.Zones(class)...)
	requirement, err := c.p.topology.Require(topology.Question{Allowed: class.AllowedTopologies, Immediate: true})
	if err == nil { // else there is no node yet, or claims are told what is wrong with the class
		for _, term := range requirement.GetRequisite() {
			zones = append(zones, topology.ZoneOfTerm(term))
		}
	}
	slices.Sort(zones)
	return slices.DeleteFunc(slices.Compact(zones), func(zone string) bool { return zone == "" })
}

// write makes the objects of a class the wanted ones.
//
// The scheduler takes a node if one of the objects that match it says enough, and
// what an object speaks of can't be changed. So all that is wanted is written before
// anything that it replaces is deleted. In between two objects may speak of a zone,
// of which the larger one counts: at worst one more claim is refused and moves on.
// In the other order a zone would be without an object and all its Pods would be
// turned away, and if the process ended there, until another one leads.
//
// What there is it reads anew: the cache may not show its own last writes yet, and
// would have it delete the one general object that is left.
func (c *capacities) write(ctx context.Context, class string, wanted []*storagev1.CSIStorageCapacity) error {
	objects := c.client.StorageV1().CSIStorageCapacities(c.p.config.Namespace)
	list, err := objects.List(ctx, metav1.ListOptions{LabelSelector: ourObjects(c.p.config.DriverName)})
	if err != nil {
		return err
	}
	replaced := map[string]*storagev1.CSIStorageCapacity{}
	for i := range list.Items {
		if object := &list.Items[i]; object.StorageClassName == class {
			replaced[object.Name] = object
		}
	}
	for _, object := range wanted {
		if err := put(ctx, objects, replaced[object.Name], object); err != nil {
			return err
		}
		delete(replaced, object.Name)
	}
	for name := range replaced {
		if err := ignoreNotFound(objects.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	return nil
}

// put writes an object unless it is as wanted.
func put(ctx context.Context, objects storagev1client.CSIStorageCapacityInterface, old, wanted *storagev1.CSIStorageCapacity) error {
	switch {
	case old == nil:
		_, err := objects.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	case sameObject(old, wanted):
		return nil
	}
	update := old.DeepCopy()
	update.Capacity, update.MaximumVolumeSize, update.OwnerReferences = wanted.Capacity, wanted.MaximumVolumeSize, wanted.OwnerReferences
	_, err := objects.Update(ctx, update, metav1.UpdateOptions{})
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// announce sets the CSIDriver's storageCapacity once every class has its general
// object: from then on the scheduler takes a class without one for sold out. It
// looks again at every poll, for whoever installs the CSIDriver anew may have set
// it back.
func (c *capacities) announce(ctx context.Context, _ string) error {
	if !c.complete() {
		return nil
	}
	if err := setStorageCapacity(ctx, c.client, c.p.config.DriverName, true); err != nil {
		return err
	}
	c.announced.Store(true)
	return nil
}

// complete says whether every class that should have a general object has one.
func (c *capacities) complete() bool {
	general := map[string]bool{}
	for _, object := range c.objects.List() {
		if object := object.(*storagev1.CSIStorageCapacity); scopeOf(object).zone == "" {
			general[object.StorageClassName] = true
		}
	}
	for _, object := range c.classes.List() {
		if class := object.(*storagev1.StorageClass); c.isWanted(class) && !general[class.Name] {
			return false
		}
	}
	return true
}
