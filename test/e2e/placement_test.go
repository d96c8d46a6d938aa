//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
)

// restored makes a claim as a backup has it: it names the node that was selected for it once.
func (s *scene) restored(name, class, node string) {
	s.Helper()
	s.Claim(name, class, "20Gi", func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations = map[string]string{lab.SelectedNode: node, "volume.kubernetes.io/storage-provisioner": lab.DriverName}
	})
}

// checkFollows checks that a claim left its node for a node of its Pod's zone.
func (s *scene) checkFollows(claim, from, zone string, disks int) {
	s.Helper()
	_, d := s.boundElsewhere(claim)
	s.running(claim, d)
	if seen := s.selections.Of(claim); len(seen) < 3 || seen[0] != from || seen[1] != "" || s.ZoneOf(seen[2]) != zone || d.Zone != zone {
		s.Errorf("the disk is in %s, selections are %q; want %s, taken back, a node in %s", d.Zone, seen, from, zone)
	}
	if n := succeeded(s.creates(claim)); n != disks {
		s.Errorf("%d CreateDisk calls succeeded, want %d", n, disks)
	}
	s.awaitEvent(claim, soon, from, "no Pod that waits for the claim can run there; Pod "+claim+": its nodeSelector", "zone="+zone)
}

func TestClaimOfABackupFollowsItsPod(t *testing.T) {
	s := newScene(t)
	class, node, zone := s.Class(waits, essdThenAuto), s.Nodes[0], s.Zones()[2]
	s.awaitCapacities(class)
	s.Pod("restored", "restored", inZone(zone))
	s.WaitFor("the scheduler has looked at the Pod", soon, func(ctx context.Context) (bool, error) { // so that the provisioner sees it, too
		pod, err := s.Client.CoreV1().Pods(s.Namespace).Get(ctx, "restored", metav1.GetOptions{})
		return err == nil && len(pod.Status.Conditions) > 0, err
	})
	s.restored("restored", class, node.Name)
	s.checkFollows("restored", node.Name, zone, 1)
}

func TestClaimOfABackupFollowsAPodThatComesAfterItsDisk(t *testing.T) {
	s := newScene(t)
	class, node, zone := s.Class(waits, essdThenAuto), s.Nodes[0], s.Zones()[2]
	s.awaitCapacities(class)
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayAfter: 3 * time.Second, Count: 1})
	s.restored("restored", class, node.Name)
	s.awaitDisk("restored")
	s.Pod("restored", "restored", inZone(zone))
	s.checkFollows("restored", node.Name, zone, 2)
}
