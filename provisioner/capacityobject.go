package provisioner

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"

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

// ourObjects selects the CSIStorageCapacity objects that are ours.
func ourObjects(driver string) string {
	return driverLabel + "=" + driver + "," + managedByLabel + "=" + managedBy
}

// scope is what one CSIStorageCapacity object speaks of: a class in one zone, or
// in all places but some zones. A node without a zone label is such a place.
type scope struct {
	class string
	zone  string   // empty in the scope of a general object
	but   []string // sorted
}

// name is the same for the same scope at all times, so that no object is made
// twice, and differs for different ones, for the scope of an object is for good.
// The name of a zone's object is the one that earlier versions gave it.
func (s scope) name(driver string) string {
	where := s.zone
	if len(s.but) > 0 {
		where = "!" + strings.Join(s.but, ",") // no zone's name begins so
	}
	sum := sha256.Sum256([]byte(driver + "/" + s.class + "/" + where))
	return "topodisk-" + hex.EncodeToString(sum[:10])
}

// selector matches the nodes of the scope.
func (s scope) selector() *metav1.LabelSelector {
	switch {
	case s.zone != "":
		return &metav1.LabelSelector{MatchLabels: map[string]string{topology.WellKnownZoneKey: s.zone}}
	case len(s.but) > 0:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: topology.WellKnownZoneKey, Operator: metav1.LabelSelectorOpNotIn, Values: s.but},
		}}
	}
	return &metav1.LabelSelector{} // every node
}

func scopeOf(object *storagev1.CSIStorageCapacity) scope {
	s := scope{class: object.StorageClassName}
	if object.NodeTopology != nil {
		s.zone = object.NodeTopology.MatchLabels[topology.WellKnownZoneKey]
	}
	return s
}

// object returns an object that says how large a volume is to be had in its scope.
func (c *capacities) object(s scope, bytes int64) *storagev1.CSIStorageCapacity {
	quantity := resource.NewQuantity(bytes, resource.BinarySI)
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.name(c.p.config.DriverName), Namespace: c.p.config.Namespace,
			Labels: map[string]string{driverLabel: c.p.config.DriverName, managedByLabel: managedBy}, OwnerReferences: c.owners(),
		},
		StorageClassName:  s.class,
		NodeTopology:      s.selector(),
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

// sameObjects says whether what is there is what is wanted.
func sameObjects(wanted, shown []*storagev1.CSIStorageCapacity) bool {
	return len(wanted) == len(shown) && !slices.ContainsFunc(wanted, func(want *storagev1.CSIStorageCapacity) bool {
		return !slices.ContainsFunc(shown, func(now *storagev1.CSIStorageCapacity) bool { return now.Name == want.Name && sameObject(now, want) })
	})
}

// sameObject compares all of an object of one name that ever changes.
func sameObject(a, b *storagev1.CSIStorageCapacity) bool {
	return equality.Semantic.DeepEqual(a.Capacity, b.Capacity) && equality.Semantic.DeepEqual(a.MaximumVolumeSize, b.MaximumVolumeSize) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// sizes are those of the largest volumes that are to be had of a class, in bytes.
type sizes struct {
	general int64            // in any zone
	zones   map[string]int64 // in each zone that is, or may be, an exception
}

// sizesOf returns what the objects of a class say.
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

// of returns what is to be had in a zone: everything, unless it is known to have less.
func (s sizes) of(zone string) int64 {
	if bytes, ok := s.zones[zone]; ok {
		return bytes
	}
	return math.MaxInt64
}
