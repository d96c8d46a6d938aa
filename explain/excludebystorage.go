package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/topodisk/topodisk/explain/fit"
	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/topology"
)

// excludeByVolume excludes the nodes that can't have one volume, or a volume that is to be made.
func excludeByVolume(c *cluster, x *feasibility, need storage) {
	switch {
	case need.volume != nil:
		excludeByPlace(x, need)
		excludeByType(x, need, typesOfVolume(need.volume))
	case need.claim.Spec.VolumeName == "" && need.class != nil && need.class.Provisioner == c.Driver:
		excludeByAllowed(x, need)
		excludeBySoldOut(c, x, need)
		excludeByZoneLabels(c, x)
		excludeByCapacity(c, x, need) // later, for of two equal reasons the later is kept
		excludeByType(x, need, typesOfClass(need.class))
	}
}

// excludeByPlace excludes the nodes outside of the volume's node affinity.
func excludeByPlace(x *feasibility, need storage) {
	pv := need.volume
	x.excludeUnless(fit.VolumeAffinity(pv), "volume "+pv.Name, func() *reason {
		return &reason{cause: NoNodeInVolumeZone, volume: pv, claim: need.claim,
			message: fmt.Sprintf("PersistentVolume %s of claim %s is in %s", pv.Name, need.claim.Name, PlaceOf(pv)),
			evidence: func(*corev1.Node) []Evidence {
				return []Evidence{seen(refOf(kindVolume, pv), "spec.nodeAffinity", pv.Spec.NodeAffinity)}
			}}
	})
}

// excludeByAllowed excludes the nodes outside of the class's allowedTopologies.
func excludeByAllowed(x *feasibility, need storage) {
	class := need.class
	x.excludeUnless(fit.AllowedTopologies(class.AllowedTopologies), "allowed "+class.Name, func() *reason {
		return &reason{cause: AllowedTopologiesTooSmall,
			message: fmt.Sprintf("allowedTopologies of class %s don't have them", class.Name),
			evidence: func(*corev1.Node) []Evidence {
				return []Evidence{seen(refOf(kindClass, class), "allowedTopologies", class.AllowedTopologies)}
			}}
	})
}

// isMislabelled says whether disk-provisioner makes no volume for a node because its zone labels disagree.
func (c *cluster) isMislabelled(node *corev1.Node) bool {
	return c.isRead(kindCSINode, "") && topologyProblem(c, node) == topology.NodeMislabelled
}

// excludeByZoneLabels excludes the nodes whose zone labels disagree.
func excludeByZoneLabels(c *cluster, x *feasibility) {
	x.excludeUnless(func(n *corev1.Node) bool { return !c.isMislabelled(n) }, "zone labels", func() *reason {
		return &reason{cause: ZoneLabelsDisagree, message: "their zone labels name different zones",
			evidence: func(n *corev1.Node) []Evidence { return zoneLabelsVerdict(n).Evidence }}
	})
}

// excludeByCapacity excludes the nodes of which no CSIStorageCapacity says that they can have a volume of the claim's size. None speaks of
// nodes whose zone labels disagree.
func excludeByCapacity(c *cluster, x *feasibility, need storage) {
	if c.CSIDriver != nil && (c.CSIDriver.Spec.StorageCapacity == nil || !*c.CSIDriver.Spec.StorageCapacity) {
		return
	}
	objects := fit.Capacities(c.Capacities, need.class.Name)
	if len(objects) == 0 || !c.isRead(kindCapacity, "") {
		return // disk-provisioner makes some at once; those that weren't read may say enough
	}
	wants := need.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	has := fit.HasCapacity(objects, wants)
	x.excludeUnless(func(n *corev1.Node) bool { return has(n) || c.isMislabelled(n) }, "capacity "+need.claim.Name, func() *reason {
		return &reason{cause: ZoneSoldOut, claim: need.claim,
			message: fmt.Sprintf("no disk of %s of class %s is to be had there", wants.String(), need.class.Name),
			evidence: func(n *corev1.Node) []Evidence {
				return append(typeEvidence(need.class), capacityEvidence(objects, n)...)
			}}
	})
}

func capacityEvidence(objects []fit.Capacity, node *corev1.Node) []Evidence {
	var found []Evidence
	for _, o := range objects {
		if o.Matches(node) {
			size, field := o.Size()
			found = append(found, seen(refOf(kindCapacity, o), field, quantityText(size)))
		}
	}
	return found
}

func quantityText(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return q.String()
}

// capacityUnknown adds to a verdict by what there is to be had that disk-provisioner has just not been told how much that is.
func capacityUnknown(c *cluster, v *Verdict) {
	driver := Ref{Kind: kindCSIDriver, Name: c.Driver}
	event := c.latest(driver, reasonCapacityUnknown)
	if event == nil || c.At.Sub(timeOf(event)) > soldOutFor {
		return
	}
	v.Message += " Whether that is still so is not known: " + sentence(event.Message)
	v.Evidence = append(v.Evidence, eventSeen(event))
	v.Next = append([]shell.Command{describe(driver)}, v.Next...)
	v.Actor, v.Retried = ClusterAdmin, "disk-provisioner, which asks again within a minute"
	if e := errorIn(event); e.cause(creating) == PermissionDenied {
		v.Actor = CloudAdmin
	}
}

func typeEvidence(class *storagev1.StorageClass) []Evidence {
	return []Evidence{seen(refOf(kindClass, class), "parameters.type", class.Parameters["type"])}
}

// soldOutFor is for how long the event of a refusal is taken for the state of the zone: disk-provisioner asks again within a minute, and
// writes the same event once a minute at most.
const soldOutFor = 3 * time.Minute

// excludeBySoldOut excludes the nodes of zones that have just had no disk for the claim.
func excludeBySoldOut(c *cluster, x *feasibility, need storage) {
	event := c.latest(refOf(kindClaim, need.claim), reasonProvisioningFailed)
	if event == nil || c.At.Sub(timeOf(event)) > soldOutFor ||
		event.CreationTimestamp.Time.Before(need.class.CreationTimestamp.Time) {
		return
	}
	refusal := errorIn(event)
	if refusal.cause(creating) != ZoneSoldOut {
		return
	}
	zones := refusal.soldOut()
	isElsewhere := func(node *corev1.Node) bool { return !slices.Contains(zones, topology.ZoneOfLabels(node.Labels)) }
	x.excludeUnless(isElsewhere, "soldout "+need.claim.Name, func() *reason {
		return &reason{cause: ZoneSoldOut, claim: need.claim,
			message:  fmt.Sprintf("%s had no disk of class %s to give", strings.Join(zones, " and "), need.class.Name),
			evidence: func(*corev1.Node) []Evidence { return append(typeEvidence(need.class), eventSeen(event)) }}
	})
}

// excludeByType excludes the nodes that can't attach a disk of any of the types; no types stand for any type.
func excludeByType(x *feasibility, need storage, types []string) {
	if len(types) == 0 {
		return
	}
	takes := func(node *corev1.Node) bool {
		taken, _ := takesType(node, types, need.volume != nil)
		return taken
	}
	x.excludeUnless(takes, "type "+need.claim.Name, func() *reason {
		return &reason{cause: DiskTypeNotTaken, claim: need.claim,
			message: fmt.Sprintf("they can't attach %s, the disk type of claim %s", strings.Join(types, " or "), need.claim.Name),
			evidence: func(n *corev1.Node) []Evidence {
				_, evidence := takesType(n, types, need.volume != nil)
				return evidence
			}}
	})
}

// excludeByDriver excludes the nodes on which the driver is not registered.
func excludeByDriver(c *cluster, x *feasibility) {
	if !c.isRead(kindCSINode, "") {
		return
	}
	has := func(node *corev1.Node) bool { return driverOn(c.csiNodes[node.Name], c.Driver) != nil }
	x.excludeUnless(has, "driver", func() *reason {
		return &reason{cause: DriverNotOnNode, message: fmt.Sprintf("driver %s is not registered there", c.Driver),
			evidence: func(n *corev1.Node) []Evidence { return driversOn(c, n.Name) }}
	})
}

// excludeByLimit excludes the nodes that have no attachment left for the Pod's volumes.
func excludeByLimit(c *cluster, x *feasibility) {
	has := func(node *corev1.Node) bool {
		limit := limitOf(c, node.Name)
		if limit == nil {
			return true
		}
		on, more := volumesOn(c, node.Name), 0
		for _, need := range x.needs {
			if need.isOurs(c.Driver) && (need.volume == nil || !on[need.volume.Name]) {
				more++
			}
		}
		return more == 0 || len(on)+more <= int(*limit)
	}
	x.excludeUnless(has, "limit", func() *reason {
		return &reason{cause: AttachLimitReached, message: "they have as many volumes as they take",
			evidence: func(n *corev1.Node) []Evidence { return append(limitOn(c, n.Name), volumesSeen(c, n.Name)...) }}
	})
}
