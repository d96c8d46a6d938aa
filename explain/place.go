package explain

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/explain/fit"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

// Names of what says which disk types a node takes (docs/node-facts.md).
const (
	factsAnnotation = "topodisk.io/ecs-facts"
	typeLabel       = disk.NodeTypeLabel
	available       = "available"
)

// nodeFacts is what is needed of the annotation.
type nodeFacts struct {
	Boot    string   `json:"boot"`
	Zone    string   `json:"zone"`
	Takes   []string `json:"takes"`
	Refuses []string `json:"refuses"`
}

// takesType says whether a node can attach a disk of one of the types, as far as is known, and what says so. A new disk is made of a type
// that the node's labels name, if there are any; one that exists is refused only by a node that is known to refuse its type.
func takesType(node *corev1.Node, types []string, exists bool) (bool, []Evidence) {
	if exists {
		refused, evidence := refusesType(node, types)
		return !refused, evidence
	}
	if fit.TakesType(types...)(node) {
		return true, nil
	}
	evidence := []Evidence{}
	for _, t := range types {
		field := "metadata.labels[" + typeLabel + t + "]"
		evidence = append(evidence, seen(refOf(kindNode, node), field, node.Labels[typeLabel+t]))
	}
	return false, evidence
}

// refusesType says whether a node's annotation says that it can't attach any of the types.
func refusesType(node *corev1.Node, types []string) (bool, []Evidence) {
	facts := factsOnNode(node)
	if facts.Boot != "" && node.Status.NodeInfo.BootID != "" && facts.Boot != node.Status.NodeInfo.BootID {
		return false, nil // the instance may be of another type since
	}
	refuses := func(t string) bool { return slices.Contains(facts.Refuses, t) && !slices.Contains(facts.Takes, t) }
	if slices.ContainsFunc(types, func(t string) bool { return !refuses(t) }) {
		return false, nil
	}
	return true, []Evidence{factsSeen(node)}
}

// factsOnNode returns what ECS says of a node; zero where it isn't known.
func factsOnNode(node *corev1.Node) nodeFacts {
	var facts nodeFacts
	if json.Unmarshal([]byte(node.Annotations[factsAnnotation]), &facts) != nil {
		return nodeFacts{}
	}
	return facts
}

func factsSeen(node *corev1.Node) Evidence {
	return seen(refOf(kindNode, node), "metadata.annotations["+factsAnnotation+"]", node.Annotations[factsAnnotation])
}

// defaultTypes are tried for a class without a type (docs/parameters.md).
var defaultTypes = []string{"cloud_ssd", "cloud_efficiency", "cloud_essd", "cloud_auto"}

// typesOfClass returns the disk types of a class, none if it may be any.
func typesOfClass(class *storagev1.StorageClass) []string {
	said := class.Parameters["type"]
	switch said {
	case "":
		return defaultTypes
	case available:
		return nil
	}
	var types []string
	for _, t := range strings.Split(said, ",") {
		types = append(types, strings.TrimSpace(t))
	}
	return types
}

// typesOfVolume returns the disk type of a volume, none if its PersistentVolume doesn't say, or may say what it was before a change.
func typesOfVolume(pv *corev1.PersistentVolume) []string {
	if pv.Spec.CSI == nil || pv.Spec.VolumeAttributesClassName != nil || pv.Spec.CSI.VolumeAttributes["type"] == "" {
		return nil
	}
	return []string{pv.Spec.CSI.VolumeAttributes["type"]}
}

// PlaceOf returns in words where a volume is: the zones that its node affinity names, or else the regions.
func PlaceOf(pv *corev1.PersistentVolume) string {
	if zones := topology.ZonesOfVolume(pv); len(zones) > 0 {
		return strings.Join(zones, " or ")
	}
	if regions := topology.AffinityValues(pv, func(key string) bool { return key == topology.RegionKey }); len(regions) > 0 {
		return strings.Join(regions, " or ")
	}
	return "the place that its node affinity names"
}

// waitsForNode says whether claims of a class wait until the scheduler has selected a node.
func waitsForNode(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

func selectedNode(claim *corev1.PersistentVolumeClaim) string {
	return claim.Annotations[request.AnnSelectedNode]
}

// selectedEvidence is the evidence of which node is selected; empty if none is.
func selectedEvidence(claim *corev1.PersistentVolumeClaim) Evidence {
	return seen(refOf(kindClaim, claim), "metadata.annotations["+request.AnnSelectedNode+"]", selectedNode(claim))
}
