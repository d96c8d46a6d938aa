//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// delayedLogs makes ECS take its time for the first disk of the type that the claim logs has: what a test does to that type meanwhile is
// done in time on a busy machine, too, and the driver waits for longer.
var delayedLogs = ecssim.Fault{Action: "CreateDisk", Params: map[string]string{"DiskCategory": "^cloud_auto$"}, Do: ecssim.FaultDelay, DelayBefore: 12 * time.Second, Count: 1}

// podOfTwo makes a Pod with the claims data and logs, of a disk type each, and returns the disk of data, which is there while
// that of logs is not.
func (s *scene) podOfTwo(name string) ecssim.DiskState {
	s.Helper()
	essd, auto := s.Class(waits, map[string]string{"type": "cloud_essd"}), s.Class(waits, map[string]string{"type": "cloud_auto"})
	s.awaitCapacities(essd)
	s.awaitCapacities(auto)
	s.awaitLeaderForNewClaims()
	s.fault(delayedLogs)
	s.Claim("data", essd, "20Gi")
	s.Claim("logs", auto, "40Gi")
	s.Pod(name, "data", func(pod *corev1.Pod) {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "logs"}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "logs", VolumeSource: source})
	})
	d := s.awaitDisk("data")
	s.noVolumes("while the other disk of the Pod is being made")
	return d
}

func (s *scene) noVolumes(when string) {
	s.Helper()
	if volumes, err := s.volumes(s.Context()); err != nil || len(volumes) > 0 {
		s.Errorf("there are %d PersistentVolumes %s, %v", len(volumes), when, err)
	}
}

func TestVolumesOfAPodAreSavedTogether(t *testing.T) {
	s := newScene(t)
	first := s.podOfTwo("pair")
	b, d := s.bound("data", late)
	other, l := s.bound("logs", late)
	if d.ID != first.ID || l.Zone != d.Zone {
		t.Errorf("the disks are %s in %s, want %s, and %s in %s", d.ID, d.Zone, first.ID, l.ID, l.Zone)
	}
	if apart := b.Volume.CreationTimestamp.Sub(other.Volume.CreationTimestamp.Time).Abs(); apart > time.Second {
		t.Errorf("their PersistentVolumes were saved %s apart", apart)
	}
	s.running("pair", d)
}

func TestPodOfTwoClaimsMovesOnWhenTheZoneSellsOutForOne(t *testing.T) {
	s := newScene(t)
	first := s.podOfTwo("pair")
	s.Must(s.Simulator.SetStock(s.Context(), first.Zone, "cloud_auto", simulator.SoldOut))
	_, l := s.boundElsewhere("logs")
	_, d := s.boundElsewhere("data")
	if d.Zone != l.Zone || d.Zone == first.Zone {
		t.Errorf("the disks are in %s and %s, want one zone that is not %s", d.Zone, l.Zone, first.Zone)
	}
	s.running("pair", d)
	if disks, err := s.Simulator.Disks(s.Context(), s.Namespace); err != nil || len(disks) != 2 {
		t.Errorf("ECS has %d disks of the Pod, want 2: %v, %v", len(disks), disks, err)
	}
	if n := succeeded(s.creates("data")); n != 2 {
		t.Errorf("ECS has made %d disks for claim data, want one in each of two zones", n)
	}
	moved := s.selections.Rescheduled()
	if slices.Sort(moved); !slices.Equal(moved, []string{"data", "logs"}) {
		t.Errorf("rescheduled claims are %q, want both", moved)
	}
	s.awaitEvent("data", soon, "volume "+first.ID, "is deleted", "claim logs of Pod pair can't have a volume for node")
}

// The claims of a Pod whose disks no zone has together come to rest, and the Pod runs once a zone has both.
func TestPodOfTwoClaimsWaitsForAZoneThatHasBoth(t *testing.T) {
	s := newScene(t)
	first := s.podOfTwo("pair")
	for _, zone := range s.Zones() {
		s.Must(s.Simulator.SetStock(s.Context(), zone, "cloud_auto", simulator.SoldOut))
	}
	s.WaitFor("the first disk is deleted", late, func(ctx context.Context) (bool, error) {
		return !slices.ContainsFunc(s.disks("data"), func(d ecssim.DiskState) bool { return d.ID == first.ID }), nil
	})
	s.awaitEvent("data", soon, "volume "+first.ID, "is deleted")
	zone := s.Zones()[2]
	s.Must(s.Simulator.Restock(s.Context(), zone))
	_, l := s.bound("logs", 2*settled)
	_, d := s.bound("data", soon)
	if d.Zone != zone || l.Zone != zone {
		t.Errorf("the disks are in %s and %s, want %s", d.Zone, l.Zone, zone)
	}
	s.running("pair", d)
	if n := succeeded(s.creates("data")); n > 3 {
		t.Errorf("ECS has made %d disks for claim data", n)
	}
}

// A zone sells out of what the second claim needs while a crowd of Pods of two claims is made. Without --pod-claims-together those stay whose
// first volume ties them to that zone by then: with zones of odd stock, a zone without the second type and two zones with five of it in
// all, 22, 17 and 11 of 24 Pods had a node after 40 seconds, and with it all that nodes had room for: 24, 24 and 19, with two to four
// disks of 48 made for nothing.
func TestACrowdOfPodsOfTwoClaimsWhileAZoneSellsOut(t *testing.T) {
	const pods = 24
	s := newScene(t)
	essd, auto := s.Class(waits, map[string]string{"type": "cloud_essd"}), s.Class(waits, map[string]string{"type": "cloud_auto"})
	s.awaitCapacities(essd)
	s.awaitCapacities(auto)
	s.awaitLeaderForNewClaims()
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayBefore: 500 * time.Millisecond}) // as the real ECS takes
	s.Must(s.Simulator.SetStock(s.Context(), s.Zones()[0], "cloud_auto", simulator.SoldOut))
	for n := range pods {
		s.podOfClaims(fmt.Sprint("pod-", n), essd, auto)
	}
	s.WaitFor("all Pods have a node", late, func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName == "" }), nil
	})
}

// podOfClaims makes a Pod with a claim of each class.
func (s *scene) podOfClaims(name, class, other string) {
	s.Helper()
	s.Claim(name+"-a", class, "20Gi")
	s.Claim(name+"-b", other, "40Gi")
	s.Pod(name, name+"-a", func(pod *corev1.Pod) {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-b"}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "b", VolumeSource: source})
	})
}
