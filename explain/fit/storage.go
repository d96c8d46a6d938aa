package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// VolumeAffinity returns whether a node matches what the volume's node affinity requires; without any, every node does.
func VolumeAffinity(volume *corev1.PersistentVolume) func(*corev1.Node) bool {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return func(*corev1.Node) bool { return true }
	}
	return matcher(nodeaffinity.NewLazyErrorNodeSelector(volume.Spec.NodeAffinity.Required))
}

// AllowedTopologies returns whether a node's labels match a term of a class's allowedTopologies; without any, every node does. Labels are
// compared as they are, so the two keys of a zone are two labels. A term without expressions matches no node.
func AllowedTopologies(terms []corev1.TopologySelectorTerm) func(*corev1.Node) bool {
	return func(node *corev1.Node) bool {
		return len(terms) == 0 || slices.ContainsFunc(terms, func(term corev1.TopologySelectorTerm) bool { return matches(term, node.Labels) })
	}
}

func matches(term corev1.TopologySelectorTerm, labels map[string]string) bool {
	return len(term.MatchLabelExpressions) > 0 &&
		!slices.ContainsFunc(term.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			value, has := labels[e.Key]
			return !has || !slices.Contains(e.Values, value)
		})
}

// Capacity is a CSIStorageCapacity with its selector.
type Capacity struct {
	*storagev1.CSIStorageCapacity
	selector labels.Selector
}

// Capacities returns those of a class, by name. One without a selector, or with one that is none, speaks of no node.
func Capacities(of []storagev1.CSIStorageCapacity, class string) []Capacity {
	var found []Capacity
	for i := range of {
		object := &of[i]
		if object.StorageClassName != class || object.NodeTopology == nil {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(object.NodeTopology); err == nil {
			found = append(found, Capacity{object, selector})
		}
	}
	slices.SortFunc(found, func(a, b Capacity) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Matches says whether the object speaks of a node.
func (c Capacity) Matches(node *corev1.Node) bool { return c.selector.Matches(labels.Set(node.Labels)) }

// Size returns the largest volume that the object speaks of, in bytes, and the name of its field; nil if it says nothing.
func (c Capacity) Size() (*resource.Quantity, string) {
	if c.MaximumVolumeSize != nil {
		return c.MaximumVolumeSize, "maximumVolumeSize"
	}
	return c.Capacity, "capacity"
}

// HasCapacity returns whether one of a class's objects says that a node can have a volume of the size, or any at all if it is zero. The
// caller knows whether the scheduler looks at them (CSIDriver, storageCapacity).
func HasCapacity(of []Capacity, size resource.Quantity) func(*corev1.Node) bool {
	enough := func(c Capacity) bool {
		most, _ := c.Size()
		return most != nil && most.Sign() > 0 && most.Cmp(size) >= 0
	}
	return func(node *corev1.Node) bool {
		return slices.ContainsFunc(of, func(c Capacity) bool { return c.Matches(node) && enough(c) })
	}
}

// TakesType returns whether a node can attach a new disk of one of the categories: where the node's labels name any, one of these must
// be available (disk.NodeTypeLabel).
func TakesType(types ...string) func(*corev1.Node) bool {
	return func(node *corev1.Node) bool {
		known := false
		for name, value := range node.Labels {
			t, ok := strings.CutPrefix(name, disk.NodeTypeLabel)
			if !ok {
				continue
			}
			if known = true; value == "available" && slices.Contains(types, t) {
				return true
			}
		}
		return !known
	}
}
