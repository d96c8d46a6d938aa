package capacity

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/topology"
)

// Labels of the CSIStorageCapacity objects that are ours.
const (
	driverLabel    = "csi.storage.k8s.io/drivername"
	managedByLabel = "csi.storage.k8s.io/managed-by"
	managedBy      = "disk-provisioner"
)

// selectorOf selects the CSIStorageCapacity objects that are ours.
func selectorOf(driver string) string {
	return driverLabel + "=" + driver + "," + managedByLabel + "=" + managedBy
}

// scope is what one CSIStorageCapacity object is about: a class in one zone, or
// everywhere except in some zones, also on nodes without a zone label. It leaves out nodes that can't be used.
type scope struct {
	class    string
	zone     string   // empty in the scope of a general object
	except   []string // zones, sorted
	unusable []string // nodes by their hostname label, sorted
}

// name is a hash of the scope: equal scopes have one object, and different ones have
// different objects, for the scope of an object is immutable. The name of a zone's object
// is the one that earlier versions gave it.
func (s scope) name(driver string) string {
	where := s.zone
	if len(s.except) > 0 {
		where = "!" + strings.Join(s.except, ",") // no zone's name begins so
	}
	if len(s.unusable) > 0 {
		where += "#" + strings.Join(s.unusable, ",") // no zone's name has it
	}
	sum := sha256.Sum256([]byte(driver + "/" + s.class + "/" + where))
	return "topodisk-" + hex.EncodeToString(sum[:10])
}

// selector matches the nodes of the scope.
func (s scope) selector() *metav1.LabelSelector {
	selector := &metav1.LabelSelector{} // every node
	if s.zone != "" {
		selector.MatchLabels = map[string]string{topology.WellKnownZoneKey: s.zone}
	}
	exclude := func(key string, values []string) {
		if len(values) > 0 {
			selector.MatchExpressions = append(selector.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values})
		}
	}
	exclude(topology.WellKnownZoneKey, s.except)
	exclude(corev1.LabelHostname, s.unusable)
	return selector
}

func scopeOf(object *storagev1.CSIStorageCapacity) scope {
	s := scope{class: object.StorageClassName}
	if object.NodeTopology != nil {
		s.zone = object.NodeTopology.MatchLabels[topology.WellKnownZoneKey]
	}
	return s
}

// newObject returns the object of a scope.
func (c Config) newObject(s scope, bytes int64) *storagev1.CSIStorageCapacity {
	quantity := resource.NewQuantity(bytes, resource.BinarySI)
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.name(c.DriverName), Namespace: c.Namespace,
			Labels: map[string]string{driverLabel: c.DriverName, managedByLabel: managedBy}, OwnerReferences: c.owners(),
		},
		StorageClassName:  s.class,
		NodeTopology:      s.selector(),
		Capacity:          quantity,
		MaximumVolumeSize: quantity,
	}
}

// owners returns the owner whose deletion deletes the objects: without one they outlive
// this program, and the scheduler still uses them.
func (c Config) owners() []metav1.OwnerReference {
	if c.Owner == nil {
		return nil
	}
	return []metav1.OwnerReference{*c.Owner}
}

// objectsOf returns the objects of a class.
func objectsOf(class string, objects []any) []*storagev1.CSIStorageCapacity {
	var found []*storagev1.CSIStorageCapacity
	for _, object := range objects {
		if object := object.(*storagev1.CSIStorageCapacity); object.StorageClassName == class {
			found = append(found, object)
		}
	}
	return found
}

// equalObjects says whether the objects that exist are the desired ones.
func equalObjects(desired, shown []*storagev1.CSIStorageCapacity) bool {
	return len(desired) == len(shown) && !slices.ContainsFunc(desired, func(want *storagev1.CSIStorageCapacity) bool {
		return !slices.ContainsFunc(shown, func(now *storagev1.CSIStorageCapacity) bool { return now.Name == want.Name && equalObject(now, want) })
	})
}

// equalObject compares what is mutable of an object.
func equalObject(a, b *storagev1.CSIStorageCapacity) bool {
	return equality.Semantic.DeepEqual(a.Capacity, b.Capacity) && equality.Semantic.DeepEqual(a.MaximumVolumeSize, b.MaximumVolumeSize) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// sizes are maximum volume sizes of a class, in bytes.
type sizes struct {
	general int64            // in any zone
	zones   map[string]int64 // in zones that are, or may be, exceptions
}

// sizesOf returns the sizes of a class' objects.
func sizesOf(objects []*storagev1.CSIStorageCapacity) sizes {
	said := sizes{general: math.MaxInt64, zones: map[string]int64{}}
	for _, object := range objects {
		switch zone := scopeOf(object).zone; {
		case object.Capacity == nil:
		case zone != "":
			said.zones[zone] = object.Capacity.Value()
		default:
			said.general = object.Capacity.Value()
		}
	}
	return said
}

// in returns the size in a zone: unlimited, unless it is known to have less.
func (s sizes) in(zone string) int64 {
	if bytes, ok := s.zones[zone]; ok {
		return bytes
	}
	return math.MaxInt64
}
