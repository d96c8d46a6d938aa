//go:build e2e

package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
)

// upstreamName is the release of the chart that has Kubernetes' csi-provisioner before the driver.
const upstreamName = "upstream"

// besideUs is that release, installed at the first need.
var besideUs = sync.OnceValues(func() (*lab.Release, error) {
	return cluster.InstallRelease(context.Background(), filepath.Join("..", "chart", "testdata", "rendered", "upstream-provisioner.yaml"), upstreamName)
})

// withUpstream puts Kubernetes' csi-provisioner into the place of disk-provisioner until the test is over, with the flags
// and the permissions that the chart gives it with csiProvisioner.enabled.
func (s *scene) withUpstream(env ...string) {
	s.Helper()
	dir, err := upstream()
	s.Must(err)
	beside, err := besideUs()
	s.Must(err)
	s.stopProvisioner()
	process, err := beside.Start("csi-provisioner", filepath.Join(dir, "csi-provisioner"), env,
		append([]string{"--csi-address=" + s.Topodisk.Socket, "--http-endpoint="}, quickElection...))
	s.Must(err)
	s.Cleanup(func() {
		s.StopProgram(process, false)
		s.restartProvisioner()
	})
}

// TestTheDriverServesKubernetesOwnProvisioner lets no program of topodisk's but the driver have a part in a claim's life.
func TestTheDriverServesKubernetesOwnProvisioner(t *testing.T) {
	s := newScene(t)
	s.withUpstream()
	class := s.Class(waits, essdThenAuto)
	s.awaitCapacities(class)
	s.podWithClaim("notes", class, "20Gi")
	node := s.awaitSelection("notes")
	b, d := s.bound("notes", late)
	if want := "disk-" + string(b.Claim.UID); b.Volume.Name != want || d.Zone != s.ZoneOf(node) {
		t.Errorf("volume %s has its disk in %s; want %s, in the zone of node %s", b.Volume.Name, d.Zone, want, node)
	}
	s.running("notes", d)

	_, err := s.driver().ControllerExpandVolume(s.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: b.Disk(),
		CapacityRange: &csi.CapacityRange{RequiredBytes: 30 << 30}})
	s.Must(err)
	if got := s.onlyDisk("notes").Size; got != 30 {
		t.Errorf("the disk has %d GiB, want 30", got)
	}
	s.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(s.Context(), "notes", metav1.DeleteOptions{}))
	s.deleteClaim("notes")
	s.awaitNoVolume(b.Volume.Name)
	if disks := s.disks("notes"); len(disks) > 0 {
		t.Errorf("the disk outlived its claim: %v", disks)
	}
}

// TestCSIProvisionerLearnsTheOutcomeOfACreate loses a reply, and sells two of three zones out.
func TestCSIProvisionerLearnsTheOutcomeOfACreate(t *testing.T) {
	s := newScene(t)
	s.restartController() // lest the driver have in mind which zones were sold out before
	s.withUpstream()
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultLostReply, Count: 1})
	s.Claim("archive", s.Class(atOnce, essdThenAuto), "20Gi")
	s.bound("archive", late)

	class := s.Class(waits, essdThenAuto)
	s.awaitCapacities(class) // of all zones, so that the scheduler chooses one without disks
	soldOut := s.Zones()[:2]
	for _, zone := range soldOut {
		s.Must(s.Simulator.SellOut(s.Context(), zone))
	}
	s.podWithClaim("moved", class, "20Gi", ratherIn(soldOut))
	_, d := s.bound("moved", proven+late)
	s.running("moved", d)
}

// proven is how long the driver may take to prove that a name it doesn't know has no disk.
const proven = 2 * time.Minute

// TestKubernetesOwnProvisionerFillsVolumes makes a disk of a claim's, and one of a snapshot, of a class of attributes.
func TestKubernetesOwnProvisionerFillsVolumes(t *testing.T) {
	needsAttributesClasses(t)
	s := newScene(t)
	s.unattachedMayBeCut()
	s.withUpstream()
	class := s.Class(atOnce, map[string]string{"type": "cloud_essd", "zoneId": s.Zones()[0]})
	fast := s.attributesClass("fast", map[string]string{"performanceLevel": "PL0"})
	s.Claim("original", class, "20Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &fast })
	b, d := s.bound("original", late)
	if d.PerformanceLevel != "PL0" {
		t.Errorf("the disk has level %s, want PL0", d.PerformanceLevel)
	}
	s.Claim("copy", class, "20Gi", copyOf("original"))
	s.bound("copy", late)

	cut := s.cut(b.Disk())
	object, err := s.MakeSnapshot(s.Context(), s.Namespace, "snapshot", "original", b.Disk(), cut)
	s.Must(err)
	s.Cleanup(func() { s.Must(object.Remove(context.Background())) })
	s.Must(errors.Join(object.Taken(s.Context()), object.Ready(s.Context())))
	s.Claim("restored", class, "20Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = object.Source() })
	if _, d := s.bound("restored", late); d.Source != cut {
		t.Errorf("the disk was made of %q, want %s", d.Source, cut)
	}
}

// listing has programs fill their caches by lists, as they do with API servers that can't stream what is there.
const listing = "KUBE_FEATURE_WatchListClient=false"

func TestCSIProvisionerStartsWithoutALease(t *testing.T) {
	s := newScene(t)
	s.stopProvisioner()
	s.Must(s.Client.CoordinationV1().Leases(leaseNamespace).Delete(s.Context(), leaseName, metav1.DeleteOptions{}))
	s.withUpstream(listing)
	s.Claim("early", s.Class(atOnce, essdThenAuto), "20Gi")
	s.bound("early", late)
}

func TestDriverAndProvisionerStartInAnOldCluster(t *testing.T) {
	s := newScene(t)
	s.Topodisk.Env = []string{listing}
	s.Cleanup(func() {
		s.Topodisk.Env = nil
		s.restartController()
	})
	s.restartController()
	s.podWithClaim("early", s.Class(waits, essdThenAuto), "20Gi")
	_, d := s.bound("early", late)
	s.running("early", d)
}
