//go:build e2e

package crash

import (
	"context"
	"slices"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
)

// Those who lag behind: a cache that doesn't know a node yet, a leader that doesn't know that it is none any more.

func TestClaimWaitsForANodeTheCacheLacks(t *testing.T) {
	s := newScene(t)
	s.restartProvisioner("--retry-interval-start=1h", "--retry-interval-max=1h", "--node-grace=1h") // only an event makes it try again
	s.Must(s.claim(s.Context(), "first", atOnce))
	s.bound("first") // the caches are full
	s.passed()
	thaw := s.freeze("nodes")
	defer thaw()
	node := lab.Node{Name: "node-late", Instance: "i-bp1lablate", Type: "ecs.g6.xlarge", Region: s.Nodes[0].Region, Zone: s.Nodes[0].Zone}
	s.Must(s.AddNode(s.Context(), node))
	s.Cleanup(func() { s.Must(s.removeNode(context.Background(), node.Name)) })
	s.Must(s.claimAlone(s.Context(), "early", waits))
	s.Must(s.pod(s.Context(), "early", func(pod *corev1.Pod) {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
	}))
	s.awaitEvent(namespace, "early", node.Name)
	if n := s.count("CreateVolume"); n > 0 {
		t.Fatalf("the driver was asked for a disk before the node was known")
	}
	thaw()
	s.bound("early")
	if selected, err := s.selectedNode(s.Context(), "early"); err != nil || selected != node.Name {
		t.Errorf("the claim's node is %s, %v; want %s, for it was there all the time", selected, err, node.Name)
	}
}

func TestAllowedTopologiesMayUseOtherLabels(t *testing.T) {
	s := newScene(t)
	const key = "example.com/room"
	label := func(value string) error {
		patch := []byte(`{"metadata":{"labels":{"` + key + `":` + value + `}}}`)
		_, err := s.Client.CoreV1().Nodes().Patch(context.Background(), s.Nodes[0].Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	s.Must(label(`"cellar"`))
	s.Cleanup(func() { s.Must(label("null")) })
	class := lab.Class("cellar-only", storagev1.VolumeBindingWaitForFirstConsumer, map[string]string{"type": "cloud_essd"})
	class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
		{Key: key, Values: []string{"cellar"}}}}}
	s.Must(s.MakeClass(s.Context(), class))
	s.Cleanup(func() {
		s.Must(s.Client.StorageV1().StorageClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}))
	})
	s.Must(s.claimAlone(s.Context(), "deep", class.Name))
	s.Must(s.pod(s.Context(), "deep"))
	s.bound("deep")
	if d := s.onlyDisk("deep"); d.Zone != s.Nodes[0].Zone {
		t.Errorf("the disk is in %s, the only node that is allowed is in %s", d.Zone, s.Nodes[0].Zone)
	}
}

// first and second are provisioners of which one leads.
const first, second = "first-leader", "second-leader"

// electLeaders has leaders in the provisioner's place until the test is over.
func (s *scene) electLeaders() {
	s.Helper()
	s.kill(victims{provisioner: true})
	s.Cleanup(func() {
		s.Topodisk.Kill(first)
		s.Topodisk.Kill(second)
		s.Must(s.restart(context.Background(), victims{provisioner: true}))
	})
}

// startLeader starts a provisioner that stands for the Lease, and returns when it leads.
func (s *scene) startLeader(name string) {
	s.Helper()
	leads := s.hold(moment{call: catchUp}, func() error { return s.startStandBy(name) })
	leads.release(pass)
}

// startStandBy starts a provisioner that stands for the Lease, and returns when its caches are full. A leader that is
// killed gives the Lease up soon, but one on a busy machine does not.
func (s *scene) startStandBy(name string) error {
	err := s.Topodisk.StartProvisioner(s.Context(), name, append(slices.Clone(s.provisArgs), "--leader-election=true",
		"--leader-election-lease-duration=12s", "--leader-election-renew-deadline=10s", "--leader-election-retry-period=500ms")...)
	if err != nil {
		return err
	}
	return s.Topodisk.AwaitReady(s.Context(), name)
}

func TestLeaderThatWakesUpTooLateDoesNoHarm(t *testing.T) {
	s := newScene(t)
	s.electLeaders()
	s.startLeader(first)
	h := s.hold(moment{call: "POST persistentvolumes"}, func() error { return s.claim(s.Context(), "contested", atOnce) })
	s.Must(s.Topodisk.Signal(first, syscall.SIGSTOP))
	s.startLeader(second)
	b := s.bound("contested")
	s.Must(s.deleteClaim(s.Context(), "contested"))
	s.awaitVolume(b.Volume.Name, "gone", isGone)
	h.release(pass) // the first leader's volume, for a disk that is gone, arrives only now
	s.Must(s.Topodisk.Signal(first, syscall.SIGCONT))
	s.ends(first)
}

func TestStandByWhoseCachesLagMakesNoSecondDisk(t *testing.T) {
	s := newScene(t)
	s.electLeaders()
	s.startLeader(first)
	s.Must(s.startStandBy(second))
	h := s.hold(moment{call: "CreateVolume"}, func() error { return s.claim(s.Context(), "handed-on", atOnce) })
	thawClaims, thawVolumes := s.freeze("persistentvolumeclaims"), s.freeze("persistentvolumes")
	defer thawClaims()
	defer thawVolumes()
	h.release(pass)
	b := s.bound("handed-on")
	s.Must(s.await(s.Context(), "the journal knows of no order", limit, s.journalIsEmpty))
	s.Topodisk.Kill(first)
	// To the second leader the claim has no volume, in the journal as in its caches.
	look := s.hold(moment{call: catchUp, after: true}, func() error { return nil })
	look.release(pass)
	s.Must(s.touchClass())
	s.Must(s.claim(s.Context(), "next", atOnce))
	thawClaims()
	thawVolumes()
	s.bound("next")
	if again := s.bound("handed-on"); again.Disk() != b.Disk() {
		t.Errorf("the claim has disk %s, want %s", again.Disk(), b.Disk())
	}
	if n := s.count("CreateVolume"); n != 2 {
		t.Errorf("the driver was asked %d times, want once for each claim", n)
	}
}
