//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
	"github.com/topodisk/topodisk/topology"
)

const (
	soon = 30 * time.Second // for what takes a second or two
	late = 90 * time.Second // for what waits for back-offs: of the scheduler up to 10 s each, of a lost leader
)

const (
	waits  = storagev1.VolumeBindingWaitForFirstConsumer
	atOnce = storagev1.VolumeBindingImmediate
)

// essdThenAuto is what most classes of these tests say.
var essdThenAuto = map[string]string{"type": "cloud_essd,cloud_auto"}

// scene is the stage of one test: a namespace of its own in the shared cluster.
type scene struct {
	*labtest.Scene
	selections *lab.Selections
}

// newScene makes a namespace. When the test is over the cloud is mended, everything in the namespace is deleted, and no
// disk may be left of it.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{Scene: labtest.New(t, cluster, "e2e")}
	var err error
	s.selections, err = s.FollowSelections(context.Background(), s.Namespace)
	s.Must(err)
	t.Cleanup(s.strike)
	s.awaitLeaderForNewClaims() // the test before may have begun another one
	return s
}

// strike clears the stage and checks that nothing is left behind.
func (s *scene) strike() {
	ctx, cancel := context.WithTimeout(context.Background(), late)
	defer cancel()
	check := func(err error) {
		if err != nil {
			s.Errorf("clear up: %v", err)
		}
	}
	check(s.selections.Stop())
	check(s.Topodisk.Gate.Open())
	check(s.Simulator.Mend(ctx))
	check(s.ClearNamespace(ctx, s.Namespace, late))
	check(s.Await(ctx, "no PersistentVolume is left of "+s.Namespace, late, func(ctx context.Context) (bool, error) {
		volumes, err := s.volumes(ctx)
		if err == nil && len(volumes) > 0 {
			err = fmt.Errorf("left is %s, %s", volumes[0].Name, volumes[0].Status.Phase)
		}
		return err == nil, err
	}))
}

// volumes are the PersistentVolumes made for claims of the scene.
func (s *scene) volumes(ctx context.Context) ([]corev1.PersistentVolume, error) {
	list, err := s.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pv corev1.PersistentVolume) bool {
		return pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.Namespace != s.Namespace
	}), nil
}

// deleteAfterwards takes away what is not in the scene's namespace, once the scene is over.
func (s *scene) deleteAfterwards(name string, remove func(context.Context, string, metav1.DeleteOptions) error) {
	s.Afterwards("delete "+name, soon, func(ctx context.Context) error { return remove(ctx, name, metav1.DeleteOptions{}) })
}

// podWithClaim makes both, under one name.
func (s *scene) podWithClaim(name, class, size string, change ...func(*corev1.Pod)) {
	s.Helper()
	s.Claim(name, class, size)
	s.Pod(name, name, change...)
}

func inZone(zone string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{topology.WellKnownZoneKey: zone} }
}

// onNode has the scheduler choose that node and no other.
func onNode(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		it := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{it}},
		}}
	}
}

// ratherIn has the scheduler choose a node of those zones as long as it may.
func ratherIn(zones []string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		there := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: topology.WellKnownZoneKey, Operator: corev1.NodeSelectorOpIn, Values: zones}}}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: there}},
		}}
	}
}

// bound waits for a claim to be Bound and checks what holds for every one: the disk exists, the volume carries its ID
// and its zone, and it is the only disk for the claim.
func (s *scene) bound(claim string, limit time.Duration) (lab.Bound, ecssim.DiskState) {
	s.Helper()
	b, err := s.AwaitBound(s.Context(), s.Namespace, claim, limit)
	s.Must(err)
	d := s.onlyDisk(claim)
	if d.ID != b.Disk() {
		s.Fatalf("claim %s has disk %s, its volume names %s", claim, d.ID, b.Disk())
	}
	if zones := topology.ZonesOfVolume(b.Volume); !slices.Equal(zones, []string{d.Zone}) {
		s.Errorf("disk %s is in %s, its volume says %v", d.ID, d.Zone, zones)
	}
	return b, d
}

// followLimit is longer than the five minutes after which the scheduler looks again at a Pod that no event concerns. Up to Kubernetes 1.34 its
// queue of Pods and its cache of claims hear of a change one after the other: on a busy machine it may judge the Pod, for the last time, while
// that cache still shows the selected node (seen with 1.33).
const followLimit = 6 * time.Minute

// boundElsewhere does what bound does for a claim that returns to the scheduler first: that much is to happen within the time of bound.
func (s *scene) boundElsewhere(claim string) (lab.Bound, ecssim.DiskState) {
	s.Helper()
	if _, err := s.AwaitBound(s.Context(), s.Namespace, claim, late); err != nil {
		c, failed := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.Context(), claim, metav1.GetOptions{})
		if s.Must(failed); c.Annotations[lab.SelectedNode] != "" || !slices.Contains(s.selections.Of(claim), "") {
			s.Fatalf("%v\nselections are %q", err, s.selections.Of(claim))
		}
		s.Logf("the claim has returned to the scheduler, which looks at its Pod again after five minutes")
	}
	return s.bound(claim, followLimit)
}

// running waits for a Pod and checks that it runs in the disk's zone.
func (s *scene) running(pod string, d ecssim.DiskState) {
	s.Helper()
	p, err := s.AwaitRunning(s.Context(), s.Namespace, pod, late)
	s.Must(err)
	if zone := s.ZoneOf(p.Spec.NodeName); zone != d.Zone {
		s.Errorf("Pod %s runs in %s, its disk is in %s", pod, zone, d.Zone)
	}
}

func (s *scene) disks(claim string) []ecssim.DiskState {
	s.Helper()
	disks, err := s.Simulator.Disks(s.Context(), s.Namespace)
	s.Must(err)
	return slices.DeleteFunc(disks, func(d ecssim.DiskState) bool { return d.Tags[disk.ClaimNameTag] != claim })
}

func (s *scene) onlyDisk(claim string) ecssim.DiskState {
	s.Helper()
	disks := s.disks(claim)
	if len(disks) != 1 {
		s.Fatalf("ECS has %d disks for claim %s, want 1: %v", len(disks), claim, disks)
	}
	return disks[0]
}

// awaitDisk waits until ECS has a disk for a claim.
func (s *scene) awaitDisk(claim string) ecssim.DiskState {
	s.Helper()
	s.WaitFor("ECS has a disk for claim "+claim, soon, func(context.Context) (bool, error) { return len(s.disks(claim)) > 0, nil })
	return s.onlyDisk(claim)
}

// awaitSelection returns the first node that the scheduler selects for a claim.
func (s *scene) awaitSelection(claim string) (node string) {
	s.Helper()
	s.WaitFor("the scheduler selects a node for claim "+claim, soon, func(context.Context) (bool, error) {
		if seen := s.selections.Of(claim); len(seen) > 0 {
			node = seen[0]
		}
		return node != "", nil
	})
	return node
}

// awaitEvent waits for a warning about a claim that holds every one of the texts, and returns it.
func (s *scene) awaitEvent(claim string, limit time.Duration, texts ...string) (found corev1.Event) {
	s.Helper()
	what := fmt.Sprintf("claim %s has an event that says %q", claim, texts)
	s.WaitFor(what, limit, func(ctx context.Context) (bool, error) {
		var err error
		found, err = s.FindEvent(ctx, s.Namespace, claim, append([]string{"ProvisioningFailed"}, texts...)...)
		return err == nil, err
	})
	return found
}

// creates are the CreateDisk calls for a claim, refused ones too, the oldest first.
func (s *scene) creates(claim string) []ecssim.Call {
	s.Helper()
	calls, err := s.Simulator.Calls(s.Context(), "CreateDisk")
	s.Must(err)
	return slices.DeleteFunc(calls, func(c ecssim.Call) bool {
		tags := tagsOf(c)
		return tags[disk.ClaimNamespaceTag] != s.Namespace || tags[disk.ClaimNameTag] != claim
	})
}

// tagsOf reads the parameters Tag.N.Key and Tag.N.Value of a call.
func tagsOf(c ecssim.Call) map[string]string {
	tags := map[string]string{}
	for n := 1; c.Params["Tag."+strconv.Itoa(n)+".Key"] != ""; n++ {
		tags[c.Params["Tag."+strconv.Itoa(n)+".Key"]] = c.Params["Tag."+strconv.Itoa(n)+".Value"]
	}
	return tags
}

// succeeded counts the calls that ECS carried out.
func succeeded(calls []ecssim.Call) int {
	n := 0
	for _, c := range calls {
		if c.Code == "" {
			n++
		}
	}
	return n
}

func (s *scene) fault(f ecssim.Fault) {
	s.Helper()
	s.Must(s.Simulator.AddFault(s.Context(), f))
}

func (s *scene) deleteClaim(name string) {
	s.Helper()
	s.Must(s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Delete(s.Context(), name, metav1.DeleteOptions{}))
}

// awaitNoVolume waits until a PersistentVolume is gone.
func (s *scene) awaitNoVolume(name string) {
	s.Helper()
	s.WaitFor("PersistentVolume "+name+" is gone", late, func(ctx context.Context) (bool, error) {
		list, err := s.volumes(ctx)
		return err == nil && !slices.ContainsFunc(list, func(pv corev1.PersistentVolume) bool { return pv.Name == name }), err
	})
}
