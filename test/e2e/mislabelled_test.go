//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/controlplane"
	"github.com/topodisk/topodisk/topology"
)

// ratherOn has the scheduler choose that node whenever it may.
func ratherOn(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		there := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
		pod.Spec.SchedulerName = controlplane.PreferringScheduler
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: there}},
		}}
	}
}

// labelNode changes labels of a node.
func (s *scene) labelNode(ctx context.Context, name string, changed map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changed}})
	if err != nil {
		return err
	}
	_, err = s.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// awaitSpoken waits until a class has an object that speaks of a node, or none.
func (s *scene) awaitSpoken(class, node string, yes bool) {
	s.Helper()
	s.WaitFor(fmt.Sprintf("objects of class %s speak of %s: %t", class, node, yes), soon, func(ctx context.Context) (bool, error) {
		objects, err := s.objects(ctx, class)
		if err != nil {
			return false, err
		}
		n, err := s.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		spoken := slices.ContainsFunc(objects, func(o storagev1.CSIStorageCapacity) bool {
			selector, err := metav1.LabelSelectorAsSelector(o.NodeTopology)
			return err == nil && selector.Matches(labels.Set(n.Labels)) && o.MaximumVolumeSize.Value() > 0
		})
		return spoken == yes, nil
	})
}

// TestAMislabelledNodeDoesNotGetItsClaimsBack: the scheduler likes no other node as well, and must not select it again and again.
func TestAMislabelledNodeDoesNotGetItsClaimsBack(t *testing.T) {
	const unknown = "cn-hangzhou-x"
	for name, test := range map[string]struct {
		wrong map[string]string
		says  []string

		atOnce bool // the provisioner knows that by itself
	}{
		"labels that disagree": {
			map[string]string{topology.WellKnownZoneKey: unknown}, []string{topology.WellKnownZoneKey, topology.ZoneKey, "must agree"}, true,
		},
		"a zone that ECS does not know": {
			map[string]string{topology.WellKnownZoneKey: unknown, topology.ZoneKey: unknown}, []string{"InvalidZoneId.NotFound"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.awaitLook(true)
			class, node := s.Class(waits, essdThenAuto), s.Nodes[0]
			s.awaitCapacities(class)
			right := map[string]string{topology.WellKnownZoneKey: node.Zone, topology.ZoneKey: node.Zone}
			if test.atOnce { // else the objects don't speak of the node when the scheduler looks
				s.stopProvisioner()
			}
			s.Afterwards("label "+node.Name, soon, func(ctx context.Context) error { return s.labelNode(ctx, node.Name, right) })
			var captive string
			var seen []string
			for try := 1; try <= 5; try++ {
				s.Must(s.labelNode(s.Context(), node.Name, test.wrong))
				captive = fmt.Sprintf("captive-%d", try)
				s.podWithClaim(captive, class, "20Gi", ratherOn(node.Name))
				if selected := s.awaitSelection(captive); selected != node.Name {
					t.Fatalf("%s was selected first, want %s", selected, node.Name)
				}
				began := time.Now()
				if test.atOnce {
					s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, quickElection...))
				}
				_, d := s.boundElsewhere(captive)
				s.running(captive, d)
				seen = s.selections.Of(captive)
				t.Logf("it runs %.1f s after its node was selected, with selections %q", time.Since(began).Seconds(), seen)
				if test.atOnce || d.Zone != node.Zone || len(seen) > 1 {
					break
				}
				t.Logf("the provisioner had yet to see the labels: the disk is in %s, where the node was; once more", d.Zone)
				s.Must(s.labelNode(s.Context(), node.Name, right))
				s.awaitSpoken(class, node.Name, true)
			}
			if len(seen) < 3 || len(seen) > 5 || seen[1] != "" { // once more while the objects are replaced
				t.Errorf("selections are %q, want %s, taken back, another node", seen, node.Name)
			}
			s.awaitEvent(captive, soon, append(test.says, unknown)...)

			s.awaitSpoken(class, node.Name, false)
			s.podWithClaim("later", class, "20Gi", ratherOn(node.Name))
			_, d := s.bound("later", late)
			s.running("later", d)
			if seen := s.selections.Of("later"); slices.Contains(seen, node.Name) {
				t.Errorf("%s is selected still: %q", node.Name, seen)
			}

			s.Must(s.labelNode(s.Context(), node.Name, right))
			s.awaitSpoken(class, node.Name, true)
			s.podWithClaim("mended", class, "20Gi", ratherOn(node.Name))
			if selected := s.awaitSelection("mended"); selected != node.Name {
				t.Errorf("%s was selected, want %s", selected, node.Name)
			}
			_, d = s.bound("mended", late)
			s.running("mended", d)
		})
	}
}
