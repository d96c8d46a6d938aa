package provisioner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/topology"
)

// Labels of the CSIStorageCapacity objects that are ours.
const (
	driverLabel    = "csi.storage.k8s.io/drivername"
	managedByLabel = "csi.storage.k8s.io/managed-by"
	managedBy      = "disk-provisioner"
)

// capacityKey is what one CSIStorageCapacity object speaks of.
type capacityKey struct{ class, zone string }

// announcement is the key by which the CSIDriver object is looked at.
var announcement = capacityKey{}

// name is the same for the same key at all times, so that no object is made twice.
func (k capacityKey) name(driver string) string {
	sum := sha256.Sum256([]byte(driver + "/" + k.class + "/" + k.zone))
	return "topodisk-" + hex.EncodeToString(sum[:10])
}

// capacities keeps one CSIStorageCapacity object for each class and zone, so
// that the scheduler chooses no node of a zone that has nothing to give
// (Kubernetes: "Storage Capacity").
type capacities struct {
	p       *Provisioner
	classes cache.Store
	objects cache.Store // CSIStorageCapacity, ours alone
	client  kubernetes.Interface
	queue   workqueue.TypedRateLimitingInterface[capacityKey]

	announced atomic.Bool
}

func newCapacities(p *Provisioner, client kubernetes.Interface, classes, objects cache.Store) *capacities {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[capacityKey](p.config.RetryStart, p.config.RetryMax)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[capacityKey]{Name: "capacities"})
	c := &capacities{p: p, client: client, classes: classes, objects: objects, queue: queue}
	p.soldOut.onChange = c.soldOutChanged
	return c
}

// run works until ctx ends: it looks at everything at once, says so on the
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

// refresh has everything looked at again: what should be there, and what is.
func (c *capacities) refresh() {
	zones := c.zones()
	for _, object := range c.classes.List() {
		if class := object.(*storagev1.StorageClass); c.isWanted(class) {
			for _, zone := range zones {
				c.queue.Add(capacityKey{class.Name, zone})
			}
		}
	}
	for _, object := range c.objects.List() {
		c.queue.Add(keyOf(object.(*storagev1.CSIStorageCapacity)))
	}
}

// soldOutChanged has the zones of a place looked at now, and again when the
// refusal there has ended.
func (c *capacities) soldOutChanged(class string, topologies []*csi.Topology, until time.Time) {
	for _, term := range topologies {
		key := capacityKey{class, zoneOf(term)}
		c.queue.Add(key)
		if left := until.Sub(c.p.now()); left > 0 {
			c.queue.AddAfter(key, left)
		}
	}
}

func (c *capacities) isWanted(class *storagev1.StorageClass) bool {
	late := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	return class.Provisioner == c.p.config.DriverName && (late || c.p.config.CapacityForImmediate)
}

// zones returns the zones in which a node has the driver.
func (c *capacities) zones() []string {
	requirement, err := c.p.topology.Require(topology.Question{Immediate: true})
	if err != nil {
		return nil
	}
	var zones []string
	for _, term := range requirement.GetRequisite() {
		if zone := zoneOf(term); zone != "" {
			zones = append(zones, zone)
		}
	}
	return zones
}

func zoneOf(term *csi.Topology) string {
	if zone := term.GetSegments()[topology.WellKnownZoneKey]; zone != "" {
		return zone
	}
	return term.GetSegments()[topology.ZoneKey]
}

func keyOf(object *storagev1.CSIStorageCapacity) capacityKey {
	key := capacityKey{class: object.StorageClassName}
	if object.NodeTopology != nil {
		key.zone = object.NodeTopology.MatchLabels[topology.WellKnownZoneKey]
	}
	return key
}

func (c *capacities) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	work := c.sync
	if key == announcement {
		work = c.announce
	}
	if err := work(ctx, key); err != nil {
		klog.ErrorS(err, "A capacity could not be told", "class", key.class, "zone", key.zone)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	if !c.announced.Load() && key != announcement {
		c.queue.Add(announcement)
	}
	return true
}

// sync makes one object what it should be.
func (c *capacities) sync(ctx context.Context, key capacityKey) error {
	client := c.client.StorageV1().CSIStorageCapacities(c.p.config.Namespace)
	name := key.name(c.p.config.DriverName)
	object, exists, err := c.objects.GetByKey(c.p.config.Namespace + "/" + name)
	if err != nil {
		return err
	}
	class, wanted := c.class(key)
	if !wanted {
		if !exists {
			return nil
		}
		return ignoreNotFound(client.Delete(ctx, name, metav1.DeleteOptions{}))
	}
	bytes, err := c.bytes(ctx, class, key.zone)
	if err != nil {
		return err
	}
	quantity := resource.NewQuantity(bytes, resource.BinarySI)
	if !exists {
		_, err := client.Create(ctx, c.object(name, key, quantity), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache will show it, and it is looked at again
		}
		return err
	}
	now := object.(*storagev1.CSIStorageCapacity)
	if now.Capacity != nil && now.Capacity.Cmp(*quantity) == 0 && equality.Semantic.DeepEqual(now.OwnerReferences, c.owners()) {
		return nil
	}
	update := now.DeepCopy()
	update.Capacity, update.MaximumVolumeSize, update.OwnerReferences = quantity, quantity, c.owners()
	_, err = client.Update(ctx, update, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// class returns the key's class, and false if there should be no such object.
func (c *capacities) class(key capacityKey) (*storagev1.StorageClass, bool) {
	object, exists, err := c.classes.GetByKey(key.class)
	if err != nil || !exists {
		return nil, false
	}
	class := object.(*storagev1.StorageClass)
	if !c.isWanted(class) {
		return nil, false
	}
	for _, zone := range c.zones() {
		if zone == key.zone {
			return class, true
		}
	}
	return nil, false
}

func (c *capacities) object(name string, key capacityKey, quantity *resource.Quantity) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: c.p.config.Namespace,
			Labels: map[string]string{driverLabel: c.p.config.DriverName, managedByLabel: managedBy}, OwnerReferences: c.owners(),
		},
		StorageClassName:  key.class,
		NodeTopology:      &metav1.LabelSelector{MatchLabels: map[string]string{topology.WellKnownZoneKey: key.zone}},
		Capacity:          quantity,
		MaximumVolumeSize: quantity,
	}
}

// owners returns who the objects go with: without it they would outlive this
// program, and the scheduler would go on believing them.
func (c *capacities) owners() []metav1.OwnerReference {
	if c.p.config.CapacityOwner == nil {
		return nil
	}
	return []metav1.OwnerReference{*c.p.config.CapacityOwner}
}

// bytes returns the size of the largest volume that the zone has to give: what
// the driver says, and no more than what it has not just refused.
func (c *capacities) bytes(ctx context.Context, class *storagev1.StorageClass, zone string) (int64, error) {
	most := int64(math.MaxInt64)
	if c.p.config.DriverTellsCapacity {
		said, err := c.ask(ctx, class, zone)
		if err != nil {
			return 0, err
		}
		most = said
	}
	return min(most, c.p.soldOut.most(class, zone)), nil
}

func (c *capacities) ask(ctx context.Context, class *storagev1.StorageClass, zone string) (int64, error) {
	settings, err := c.p.settings(class)
	if err != nil {
		return 0, nil // no volume can be made of such a class, which each claim is told
	}
	ctx, cancel := context.WithTimeout(ctx, c.p.config.Timeout)
	defer cancel()
	response, err := c.p.driver.GetCapacity(ctx, &csi.GetCapacityRequest{
		Parameters:         maps.Clone(settings.parameters),
		AccessibleTopology: &csi.Topology{Segments: map[string]string{topology.WellKnownZoneKey: zone}},
	})
	if err != nil {
		return 0, fmt.Errorf("GetCapacity of class %s in %s: %w", class.Name, zone, err)
	}
	if largest := response.GetMaximumVolumeSize(); largest != nil {
		return largest.GetValue(), nil
	}
	return response.GetAvailableCapacity(), nil
}

// announce sets the CSIDriver's storageCapacity once the objects are there:
// from then on the scheduler takes a zone without an object for an empty one.
// It looks again at every poll, for whoever installs the CSIDriver anew may
// have set it back.
func (c *capacities) announce(ctx context.Context, _ capacityKey) error {
	if !c.complete() {
		return nil
	}
	drivers := c.client.StorageV1().CSIDrivers()
	driver, err := drivers.Get(ctx, c.p.config.DriverName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !ptr.Deref(driver.Spec.StorageCapacity, false) {
		if _, err := drivers.Patch(ctx, driver.Name, types.MergePatchType, []byte(`{"spec":{"storageCapacity":true}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		klog.InfoS("The scheduler looks at capacities from now on", "driver", driver.Name)
	}
	c.announced.Store(true)
	return nil
}

// complete says whether every object that should be there is.
func (c *capacities) complete() bool {
	zones := c.zones()
	for _, object := range c.classes.List() {
		class := object.(*storagev1.StorageClass)
		if !c.isWanted(class) {
			continue
		}
		for _, zone := range zones {
			name := capacityKey{class.Name, zone}.name(c.p.config.DriverName)
			if _, exists, err := c.objects.GetByKey(c.p.config.Namespace + "/" + name); err != nil || !exists {
				return false
			}
		}
	}
	return len(zones) > 0
}
