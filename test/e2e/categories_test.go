//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/nodefacts"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/topology"
)

// oldType is an instance type that takes cloud_efficiency and no disk of the ESSD series.
const oldType = "ecs.i2.xlarge"

func TestPodStaysOffANodeThatCannotAttachItsDisk(t *testing.T) {
	s := newScene(t)
	zone, good := s.firstZone()
	old := s.oldNode(zone)
	class := s.Class(waits, map[string]string{"type": "cloud_essd", "categoryAffinity": "true"})

	s.cordon(good, true) // the old node is the only one left
	s.podWithClaim("picky", class, "20Gi", inZone(zone))
	s.awaitEvent("picky", soon, "ResourceExhausted", "takes none", "cloud_essd")
	s.cordon(good, false)
	b, d := s.boundElsewhere("picky")
	if diff := cmp.Diff(demands(zone, "cloud_essd"), b.Volume.Spec.NodeAffinity.Required.NodeSelectorTerms); diff != "" {
		t.Errorf("the volume's affinity (-want +got):\n%s", diff)
	}
	s.runsOnOneOf("picky", good)
	if seen := s.selections.Of("picky"); len(seen) < 3 || seen[0] != old || seen[1] != "" {
		t.Errorf("selections are %q, want %s, taken back, another node", seen, old)
	}
	for _, call := range s.creates("picky") {
		if call.Disk != d.ID {
			t.Errorf("ECS was asked for a disk for a node that takes none: %+v", call)
		}
	}

	s.cordon(good, true)
	s.deletePods()
	s.Pod("again", "picky", inZone(zone))
	s.awaitUnschedulable("again", "1 node(s) didn't match PersistentVolume's node affinity")
	s.cordon(good, false)
	s.runsOnOneOf("again", good)
}

func TestVolumeIsUsableOnANodeWithWellKnownLabels(t *testing.T) {
	s := newScene(t)
	zone, good := s.firstZone()
	s.podWithClaim("easy", s.Class(waits, map[string]string{"type": "cloud_essd"}), "20Gi", inZone(zone))
	b, _ := s.bound("easy", late)
	if diff := cmp.Diff(demands(zone, ""), b.Volume.Spec.NodeAffinity.Required.NodeSelectorTerms); diff != "" {
		t.Errorf("the volume's affinity (-want +got):\n%s", diff)
	}
	s.podWithClaim("picky", s.Class(waits, map[string]string{"type": "cloud_essd", "categoryAffinity": "true"}), "20Gi", inZone(zone))
	s.bound("picky", late)

	bare := s.bareNode(zone)
	s.cordon(good, true)
	s.deletePods()
	s.Pod("easy-again", "easy", inZone(zone))
	s.Pod("picky-again", "picky", inZone(zone))
	s.runsOnOneOf("easy-again", []string{bare})
	s.awaitUnschedulable("picky-again", "1 node(s) didn't match PersistentVolume's node affinity")
}

func TestClassOfSeveralTypesFitsTheSelectedNode(t *testing.T) {
	s := newScene(t)
	zone, _ := s.firstZone()
	old := s.oldNode(zone)
	class := s.Class(waits, map[string]string{"type": "cloud_essd,cloud_auto,cloud_efficiency", "categoryAffinity": "true"})
	s.podWithClaim("modest", class, "20Gi", onNode(old)) // the scheduler may know of cordoned nodes too late
	b, d := s.bound("modest", soon)
	if d.Category != "cloud_efficiency" {
		t.Errorf("the disk is %s, want cloud_efficiency, which the node takes", d.Category)
	}
	if diff := cmp.Diff(demands(zone, "cloud_efficiency"), b.Volume.Spec.NodeAffinity.Required.NodeSelectorTerms); diff != "" {
		t.Errorf("the volume's affinity (-want +got):\n%s", diff)
	}
	if calls := s.creates("modest"); len(calls) != 1 {
		t.Errorf("ECS got %d CreateDisk calls, want 1: the others' types can't be attached", len(calls))
	}
	s.runsOnOneOf("modest", []string{old})
}

// demands is the affinity of a volume in a zone, with a category if its class wants that.
func demands(zone string, category disk.Category) []corev1.NodeSelectorTerm {
	var all []corev1.NodeSelectorRequirement
	if category != "" {
		all = append(all, corev1.NodeSelectorRequirement{Key: disk.NodeTypeLabel + string(category),
			Operator: corev1.NodeSelectorOpIn, Values: []string{"available"}})
	}
	all = append(all, corev1.NodeSelectorRequirement{Key: topology.WellKnownZoneKey, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}})
	return []corev1.NodeSelectorTerm{{MatchExpressions: all}}
}

// firstZone returns a zone and its nodes, once it is known what these take.
func (s *scene) firstZone() (zone string, nodes []string) {
	s.Helper()
	zone = s.Zones()[0]
	for _, n := range s.Nodes {
		if n.Zone == zone {
			s.awaitTakes(n.Name, "cloud_essd", true)
			nodes = append(nodes, n.Name)
		}
	}
	return zone, nodes
}

// oldNode adds a node of oldType until the test is over, and returns when it is known what it takes.
func (s *scene) oldNode(zone string) string {
	s.Helper()
	n := lab.Node{Name: "node-old", Instance: "i-bp1labold", Type: oldType, Region: s.Nodes[0].Region, Zone: zone}
	s.Must(s.Simulator.AddInstance(s.Context(), n.Instance, n.Zone, n.Type))
	s.Cleanup(func() {
		if err := s.Simulator.RemoveInstance(context.Background(), n.Instance); err != nil {
			s.Errorf("release instance: %v", err)
		}
	})
	s.addNode(n)
	s.awaitTakes(n.Name, "cloud_efficiency", true)
	s.awaitTakes(n.Name, "cloud_essd", false)
	return n.Name
}

// bareNode adds a node that stands for no instance, until the test is over: nothing is known of it but what everybody's
// nodes say.
func (s *scene) bareNode(zone string) string {
	s.Helper()
	n := lab.Node{Name: "node-bare", Instance: "bare", Type: "ecs.g6.xlarge", Region: s.Nodes[0].Region, Zone: zone}
	s.addNode(n)
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, topology.ZoneKey)
	_, err := s.Client.CoreV1().Nodes().Patch(s.Context(), n.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
	return n.Name
}

// addNode registers a node until the test is over. Its Pods go before it does.
func (s *scene) addNode(n lab.Node) {
	s.Helper()
	s.Must(s.ReturnNode(s.Context(), n))
	s.Cleanup(func() {
		s.deletePodsOf(n.Name)
		ctx := context.Background()
		if err := s.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
			s.Errorf("remove node: %v", err)
		}
		if err := s.Client.StorageV1().CSINodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
			s.Errorf("remove CSINode: %v", err)
		}
	})
}

// awaitTakes waits until it is known of a node what it takes, and that a category is among it or not.
func (s *scene) awaitTakes(node string, category disk.Category, takes bool) {
	s.Helper()
	s.WaitFor(fmt.Sprintf("node %s takes %s: %v", node, category, takes), late, func(ctx context.Context) (bool, error) {
		n, err := s.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		facts := n.Annotations[nodefacts.Annotation]
		if label := n.Labels[disk.NodeTypeLabel+string(category)]; facts == "" || (label == "available") != takes {
			return false, fmt.Errorf("it says %q, and the label is %q", facts, label)
		}
		return true, nil
	})
}

// cordon keeps new Pods off nodes, or lets them on again, at the latest when the test is over.
func (s *scene) cordon(nodes []string, off bool) {
	s.Helper()
	set := func(off bool) error {
		for _, node := range nodes {
			patch := fmt.Sprintf(`{"spec":{"unschedulable":%v}}`, off)
			if _, err := s.Client.CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
	s.Must(set(off))
	if off {
		s.Cleanup(func() {
			if err := set(false); err != nil {
				s.Errorf("uncordon: %v", err)
			}
		})
	}
}

// deletePods deletes the scene's Pods and waits until they have gone.
func (s *scene) deletePods() {
	s.Helper()
	s.deletePodsThat(metav1.ListOptions{})
}

// deletePodsOf deletes the scene's Pods on a node and waits until they have gone. It is done before the node goes: those of a
// node that is gone are left to Kubernetes' garbage collection, which takes a minute or more.
func (s *scene) deletePodsOf(node string) {
	s.Helper()
	s.deletePodsThat(metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
}

func (s *scene) deletePodsThat(are metav1.ListOptions) {
	s.Helper()
	ctx := context.Background()
	pods := s.Client.CoreV1().Pods(s.Namespace)
	s.Must(pods.DeleteCollection(ctx, metav1.DeleteOptions{}, are))
	s.Must(s.Await(ctx, "no such Pod is left of "+s.Namespace, late, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, are)
		return err == nil && len(list.Items) == 0, err
	}))
}

// runsOnOneOf waits for a Pod to run and checks where.
func (s *scene) runsOnOneOf(pod string, nodes []string) {
	s.Helper()
	p, err := s.AwaitRunning(s.Context(), s.Namespace, pod, late)
	s.Must(err)
	if !slices.Contains(nodes, p.Spec.NodeName) {
		s.Errorf("Pod %s runs on %s, want one of %v", pod, p.Spec.NodeName, nodes)
	}
}

// awaitUnschedulable waits until the scheduler says that no node will do for a Pod, for the reason given among others.
func (s *scene) awaitUnschedulable(pod, reason string) {
	s.Helper()
	s.WaitFor("Pod "+pod+" has no node: "+reason, soon, func(ctx context.Context) (bool, error) {
		p, err := s.Client.CoreV1().Pods(s.Namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if p.Spec.NodeName != "" {
			return false, fmt.Errorf("it is on node %s", p.Spec.NodeName)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				if strings.Contains(c.Message, reason) {
					return true, nil
				}
				err = fmt.Errorf("the scheduler says %q", c.Message)
			}
		}
		return false, err
	})
}
