package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/explain/fit"
	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/provisioner/request"
)

// SoldOut tells which unbound claims and which classes would wait, or go elsewhere, if a zone had no more disks of a category. The error
// says that the cluster has no such zone, or ECS no such category.
func SoldOut(f *Facts, zone, category string) (*Plan, error) {
	if err := f.checkZone(zone); err != nil {
		return nil, err
	}
	if err := CheckType(category); err != nil {
		return nil, err
	}
	p := &Plan{Kind: KindSoldOut, Driver: f.Driver}
	p.needs(f, "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "StorageClass", "CSIStorageCapacity", "CSIDriver")
	s := &soldOut{Facts: f, Plan: p, zone: disk.Zone(zone), category: disk.Category(category)}
	s.nodes = newNodes(f, func(*corev1.Node) bool { return false })
	for i := range f.Classes {
		if class := &f.Classes[i]; class.Provisioner == f.Driver {
			s.findClass(class)
		}
	}
	s.findClaims()
	p.unchecked("what ECS has to sell elsewhere",
		"a zone counts as having a type unless CSIStorageCapacity objects say that it is sold out of the whole class")
	count := func(kind string, effect Effect) int {
		n := 0
		for _, x := range p.Findings {
			if x.Object.Kind == kind && x.Effect == effect {
				n++
			}
		}
		return n
	}
	p.Summary = fmt.Sprintf("without %s in %s: %s would wait and %d go elsewhere; of the classes, %d would make no disk and %d others than now",
		category, zone, counted(count("PersistentVolumeClaim", Waits), "unbound claim"), count("PersistentVolumeClaim", Elsewhere),
		count("StorageClass", Waits), count("StorageClass", Elsewhere))
	return p, nil
}

// Types returns the categories that SoldOut takes, sorted.
func Types() []string {
	var types []string
	for _, c := range disk.Categories() {
		types = append(types, string(c))
	}
	return types
}

// CheckType returns an error unless the driver makes disks of the category.
func CheckType(category string) error {
	traits, known := disk.Category(category).Traits()
	switch {
	case known && traits.Barred != "":
		return fmt.Errorf("TYPE %q is no disk of this driver: %s; allowed are %s", category, traits.Barred, disk.List(disk.Categories()))
	case !known:
		return fmt.Errorf("TYPE %q is no disk category of ECS: allowed are %s", category, disk.List(disk.Categories()))
	}
	return nil
}

// soldOut is a Plan of its kind as it is made.
type soldOut struct {
	*Facts
	*Plan
	zone     disk.Zone
	category disk.Category
	nodes    *nodes
}

// offer is a kind of disk that may be had in a zone.
type offer struct {
	zone   disk.Zone
	choice disk.Choice
}

// offers returns what a class may become on the nodes, in the class's order of types. Size is that of the claim, 0 if it isn't known.
func (s *soldOut) offers(class *storagev1.StorageClass, parsed params.Class, among set, size resource.Quantity) []offer {
	takes := map[disk.Zone][]*corev1.Node{}
	for i, node := range s.nodes.left {
		if zone := disk.Zone(s.nodes.zones[i]); among[i] && zone != "" && (len(parsed.Zones) == 0 || slices.Contains(parsed.Zones, zone)) {
			takes[zone] = append(takes[zone], node)
		}
	}
	hasCapacity := s.hasCapacity(class.Name, size)
	var all []offer
	for _, choice := range parsed.Choices {
		takesType := fit.TakesType(string(choice.Category))
		for _, zone := range slices.Sorted(maps.Keys(takes)) {
			if slices.ContainsFunc(takes[zone], takesType) && (zone == s.zone || slices.ContainsFunc(takes[zone], hasCapacity)) {
				all = append(all, offer{zone, choice})
			}
		}
	}
	return all
}

// hasCapacity returns whether the CSIStorageCapacity objects let a class have a disk of the size on a node, which is so where there are
// none, or where the scheduler ignores them.
func (s *soldOut) hasCapacity(class string, size resource.Quantity) func(*corev1.Node) bool {
	object, of := s.driverObject(), fit.Capacities(s.Capacities, class)
	if object == nil || object.Spec.StorageCapacity == nil || !*object.Spec.StorageCapacity || len(of) == 0 {
		return func(*corev1.Node) bool { return true }
	}
	return fit.HasCapacity(of, size)
}

// lost returns what of the offers is left without the zone's disks of the category, and whether that is less.
func (s *soldOut) lost(all []offer) (rest []offer, less bool) {
	rest = slices.DeleteFunc(slices.Clone(all), func(o offer) bool { return o.zone == s.zone && o.choice.Category == s.category })
	return rest, len(rest) < len(all)
}

// instead says what is to be had instead.
func (s *soldOut) instead(rest []offer) string {
	var here, there []string
	for _, o := range rest {
		if o.zone == s.zone {
			here = append(here, o.choice.String())
		} else {
			there = append(there, string(o.zone))
		}
	}
	slices.Sort(there)
	there = slices.Compact(there)
	switch {
	case len(here) == 0:
		return "goes to " + orList(there)
	case len(there) == 0:
		return fmt.Sprintf("gets %s in %s", orList(here), s.zone)
	}
	return fmt.Sprintf("gets %s in %s, or goes to %s", orList(here), s.zone, orList(there))
}

func orList(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// classNodes returns the nodes that a class allows.
func (s *soldOut) classNodes(class *storagev1.StorageClass) set {
	if len(class.AllowedTopologies) > 0 {
		return s.nodes.fitTopologies(class.AllowedTopologies)
	}
	return s.nodes.matching("all", nil, func(*corev1.Node) bool { return true })
}

func (s *soldOut) parse(class *storagev1.StorageClass) (params.Class, error) {
	return params.Parse(withoutProvisioners(class.Parameters), nil, params.Warn)
}

func (s *soldOut) findClass(class *storagev1.StorageClass) {
	object := explain.Ref{Kind: "StorageClass", Name: class.Name}
	parsed, err := s.parse(class)
	if err != nil {
		s.find(Note, object, "makes no disks anyway: %v", err)
		return
	}
	rest, less := s.lost(s.offers(class, parsed, s.classNodes(class), resource.Quantity{}))
	switch {
	case !less:
	case len(rest) == 0:
		s.find(Waits, object, "allows no other zone and no other type that the nodes there take")
	default:
		s.find(Elsewhere, object, "%s", s.instead(rest))
	}
}

// findClaims finds what would become of the claims that have no volume yet.
func (s *soldOut) findClaims() {
	pods := s.podsByClaim()
	for i := range s.Claims {
		c := &s.Claims[i]
		class := s.class(request.ClassName(c))
		if c.Spec.VolumeName != "" || class == nil || class.Provisioner != s.Driver {
			continue
		}
		parsed, err := s.parse(class)
		if err != nil {
			continue // which the class's finding says
		}
		among, why := s.claimNodes(class, pods[c.Namespace+"/"+c.Name])
		rest, less := s.lost(s.offers(class, parsed, among, c.Spec.Resources.Requests[corev1.ResourceStorage]))
		switch {
		case !less:
		case len(rest) == 0:
			s.find(Waits, claimRef(c), "StorageClass %s has nothing else to make it of%s", class.Name, why)
		default:
			s.find(Elsewhere, claimRef(c), "%s", s.instead(rest))
		}
	}
}

// podsByClaim returns the Pods that use each claim, by the claim's namespace/name.
func (s *soldOut) podsByClaim() map[string][]*corev1.Pod {
	pods := map[string][]*corev1.Pod{}
	for i := range s.Pods {
		if p := &s.Pods[i]; !podclaims.HasEnded(p) {
			for _, claim := range s.nodes.claimsOf(p) {
				key := claim.Namespace + "/" + claim.Name
				pods[key] = append(pods[key], p)
			}
		}
	}
	return pods
}

// claimNodes returns the nodes that a claim's class and Pods allow, and says in words which Pods those are.
func (s *soldOut) claimNodes(class *storagev1.StorageClass, pods []*corev1.Pod) (among set, why string) {
	among = s.classNodes(class)
	if class.VolumeBindingMode == nil || *class.VolumeBindingMode == storagev1.VolumeBindingImmediate {
		return among, ""
	}
	for _, p := range pods {
		for _, constraint := range s.nodes.constraintsOf(p) {
			narrower := intersect(among, constraint.fits)
			if !slices.Equal(narrower, among) {
				why = " on the nodes that Pod " + p.Name + " can be on"
			}
			among = narrower
		}
	}
	return among, why
}
