//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
)

// What the scheduler does and leaves undone: it gives up waiting, it is passed by, it is tied to a zone.

func TestDiskOutlastsTheSchedulersBindTimeout(t *testing.T) {
	s := newScene(t)
	h := s.hold(moment{call: "CreateVolume"}, func() error { return s.claim(s.Context(), "slow", waits) })
	node, err := s.selectedNode(s.Context(), "slow")
	s.Must(err)
	begin := time.Now()
	s.Must(s.await(s.Context(), "the scheduler gives up", 2*bindTimeout, func(ctx context.Context) error {
		events, err := s.Events(ctx, namespace, "slow")
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Reason == "FailedScheduling" && strings.Contains(e.Message, "binding volumes") {
				return nil
			}
		}
		return errors.New("it has not said so")
	}))
	t.Logf("the scheduler gave up after %s", time.Since(begin).Round(time.Second))
	if now, err := s.selectedNode(s.Context(), "slow"); err != nil || now != node {
		t.Errorf("the claim is for node %q now, %v; it was for %s, and a disk may be under way there", now, err, node)
	}
	h.release(pass)
	b := s.bound("slow")
	pod, err := s.AwaitRunning(s.Context(), namespace, "slow", limit)
	s.Must(err)
	if d := s.onlyDisk("slow"); d.ID != b.Disk() || d.Zone != s.ZoneOf(pod.Spec.NodeName) || s.count("CreateVolume") != 1 {
		t.Errorf("the disk is %s in %s, the Pod on %s; the driver was asked %d times", d.ID, d.Zone, pod.Spec.NodeName, s.count("CreateVolume"))
	}
}

// A Pod that names its node is never seen by the scheduler, so nobody chooses a node for its claim; Kubernetes gives the
// claim to no provisioner before that. Whoever makes the Pod can say it in the scheduler's place.
func TestClaimOfAPodWithNodeNameWaitsForASelection(t *testing.T) {
	s := newScene(t)
	node := s.Nodes[0]
	s.Must(s.claimAlone(s.Context(), "bypassed", waits))
	s.Must(s.pod(s.Context(), "bypassed", func(pod *corev1.Pod) { pod.Spec.NodeName = node.Name }))
	s.awaitEvent(namespace, "bypassed", "waiting for")
	s.Must(s.claim(s.Context(), "witness", atOnce))
	s.bound("witness")
	if n := len(s.disks("bypassed")); n > 0 || s.count("CreateVolume") != 1 {
		t.Errorf("there are %d disks; the driver was asked %d times, want once, for the witness", n, s.count("CreateVolume"))
	}
	s.patchClaim("bypassed", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, lab.SelectedNode, node.Name))
	s.bound("bypassed")
	if d := s.onlyDisk("bypassed"); d.Zone != node.Zone {
		t.Errorf("the disk is in %s, the Pod's node in %s", d.Zone, node.Zone)
	}
}

func TestPodTiedToASoldOutZoneHasEventsOnBothClaims(t *testing.T) {
	s := newScene(t)
	s.Must(s.claimAlone(s.Context(), "first", waits))
	s.Must(s.pod(s.Context(), "first", func(*corev1.Pod) {}))
	first := s.bound("first")
	zone := s.onlyDisk("first").Zone
	s.deletePod("first")
	s.Must(s.Simulator.SellOut(s.Context(), zone))
	s.Must(s.claimAlone(s.Context(), "second", waits))
	s.Must(s.pod(s.Context(), "tied", func(pod *corev1.Pod) {
		second := *pod.Spec.Volumes[0].DeepCopy()
		second.Name, second.PersistentVolumeClaim.ClaimName = "more", "second"
		pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "first"
		pod.Spec.Volumes = append(pod.Spec.Volumes, second)
	}))
	s.awaitEvent(namespace, "second", "Pod tied also has claim first, whose volume "+first.Volume.Name+" is in "+zone)
	s.Must(s.Simulator.Restock(s.Context(), zone))
	s.Must(s.await(s.Context(), "the Pod starts once there is stock", 2*limit, func(ctx context.Context) error {
		pod, err := s.Client.CoreV1().Pods(namespace).Get(ctx, "tied", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	}))
	s.deletePod("tied")
}

// What a thousand Pods (200 with -short) wait for that nobody sells is asked for once a second and zone at the most, and in
// the end all is as if they had never been.
func TestAThousandPodsOfASoldOutCloudAskSeldom(t *testing.T) {
	const watched = 60 * time.Second
	pods := 1000
	if testing.Short() {
		pods = 200
	}
	s := newScene(t)
	s.withoutCapacities()
	for _, zone := range s.Zones() {
		s.Must(s.Simulator.SellOut(s.Context(), zone))
	}
	for i := range pods {
		s.Must(s.claim(s.Context(), fmt.Sprintf("crowd-%d", i), waits))
	}
	s.awaitRefusal()
	begin, before := time.Now(), s.count("CreateVolume")
	time.Sleep(watched) // what is measured is a rate
	took := time.Since(begin)
	asked, zones := s.count("CreateVolume")-before, len(s.Zones())
	t.Logf("%d calls in %s for %d Pods and %d zones", asked, took.Round(time.Second), pods, zones)
	if most := int(took.Seconds()+1) * zones; asked > most {
		t.Errorf("the driver was asked %d times in %s, want %d at most", asked, took.Round(time.Second), most)
	}
	if disks, err := s.Simulator.Disks(s.Context(), namespace); err != nil || len(disks) > 0 {
		t.Errorf("%d disks, %v", len(disks), err)
	}
	s.Must(s.await(s.Context(), "the Pods and claims are gone", 5*limit, func(ctx context.Context) error {
		if err := s.deleteAll(ctx); err != nil {
			return err // so many take longer than the API server gives a request
		}
		claims, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(claims.Items) > 0 {
			err = fmt.Errorf("%d claims are there", len(claims.Items))
		}
		return err
	}))
}

// withoutCapacities has the scheduler know nothing of what zones sell, until the test is over.
func (s *scene) withoutCapacities() {
	s.Helper()
	s.restartProvisioner("--enable-capacity=false", "--retry-interval-start=500ms", "--retry-interval-max=5m") // as in the chart
	s.Must(s.await(s.Context(), "the scheduler doesn't look at capacities", limit, func(ctx context.Context) error {
		driver, err := s.Client.StorageV1().CSIDrivers().Get(ctx, lab.DriverName, metav1.GetOptions{})
		if err == nil && driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity {
			err = errors.New("its storageCapacity is true")
		}
		return err
	}))
}

// awaitRefusal waits until the driver has said of every zone that it has nothing to give.
func (s *scene) awaitRefusal() {
	s.Helper()
	s.Must(s.await(s.Context(), "every zone has refused", limit, func(ctx context.Context) error {
		calls, err := s.Simulator.Calls(ctx, "CreateDisk")
		if err != nil {
			return err
		}
		refused := map[string]bool{}
		for _, c := range calls {
			if c.Code != "" {
				refused[c.Params["ZoneId"]] = true
			}
		}
		if len(refused) < len(s.Zones()) {
			return fmt.Errorf("%d zones have", len(refused))
		}
		return nil
	}))
}

func TestClaimsOfOtherProvisionersAreLeftAlone(t *testing.T) {
	s := newScene(t)
	create := func(name, class string, change func(*corev1.PersistentVolumeClaim)) {
		s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, name, class, "20Gi"), change))
	}
	group := "example.com"
	create("filled-elsewhere", atOnce, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: "Filler", Name: "seed"}
	})
	s.awaitEvent(namespace, "filled-elsewhere", "left to the populator of Filler seed")
	create("migrated", "", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{
			"volume.kubernetes.io/storage-provisioner": "kubernetes.io/in-tree", "pv.kubernetes.io/migrated-to": lab.DriverName,
		}
	})
	s.awaitEvent(namespace, "migrated", "has no in-tree predecessor")
	s.Must(s.claim(s.Context(), "witness", atOnce))
	s.bound("witness")
	if n := s.count("CreateVolume"); n != 1 {
		t.Errorf("the driver was asked %d times, want once, for the witness", n)
	}
	for _, name := range []string{"filled-elsewhere", "migrated"} {
		s.Must(s.deleteClaim(s.Context(), name))
		s.awaitNoClaim(name)
	}
}

func TestNodeLabelledLateServesItsClaimInItsZone(t *testing.T) {
	s := newScene(t)
	s.restartProvisioner(onlyEvents...)
	node := s.Nodes[2]
	comes := s.withoutLabels(node, "unlabelled", onlyEvents...)
	if n := s.count("CreateVolume"); n > 0 {
		t.Fatalf("the driver was asked %d times for a node in no zone", n)
	}
	s.Must(comes())
	s.bound("unlabelled")
	if d := s.onlyDisk("unlabelled"); d.Zone != node.Zone {
		t.Errorf("the disk is in %s, its node in %s", d.Zone, node.Zone)
	}
}
