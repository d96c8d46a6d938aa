//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/topology"
)

// emptyZones are twenty zones with disks to sell and without nodes.
var emptyZones = func() (zones []string) {
	for _, letter := range "abcdefgklmnopqrstuvw" {
		zones = append(zones, "cn-hangzhou-"+string(letter))
	}
	return zones
}()

// sellingZones has the simulator sell disks in the empty zones.
func sellingZones() (args []string) {
	for _, zone := range emptyZones {
		args = append(args, "--zone="+zone)
	}
	return args
}

// nodeIn returns a node of an empty zone.
func nodeIn(zone string) lab.Node {
	name := zone[strings.LastIndex(zone, "-")+1:]
	return lab.Node{Name: "node-" + name + "1", Instance: "i-bp1lab" + name + "1", Type: "ecs.g6.xlarge", Region: "cn-hangzhou", Zone: zone}
}

// add adds a node by one of the lab's methods, until the test is over. Its Pods go before it does.
func (s *scene) add(n lab.Node, how func(context.Context, lab.Node) error) {
	s.Helper()
	ctx := context.Background()
	s.Nodes = append(s.Nodes, n)
	s.Cleanup(func() {
		s.deletePodsOf(n.Name)
		s.Nodes = slices.DeleteFunc(s.Nodes, func(other lab.Node) bool { return other.Name == n.Name })
		if err := s.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
			s.Errorf("delete node %s: %v", n.Name, err)
		}
		_ = s.Client.StorageV1().CSINodes().Delete(ctx, n.Name, metav1.DeleteOptions{}) // a bare node has none
	})
	s.Must(how(s.Context(), n))
}

// awaitLook waits until the scheduler looks, or doesn't look, at capacities. It works in clean-ups, too.
func (s *scene) awaitLook(yes bool) {
	s.Helper()
	s.Must(s.Await(context.Background(), fmt.Sprintf("storageCapacity of the CSIDriver is %t", yes), soon, func(ctx context.Context) (bool, error) {
		driver, err := s.Client.StorageV1().CSIDrivers().Get(ctx, lab.DriverName, metav1.GetOptions{})
		return err == nil && (driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity) == yes, err
	}))
}

func (s *scene) objects(ctx context.Context, classes ...string) ([]storagev1.CSIStorageCapacity, error) {
	list, err := s.Client.StorageV1().CSIStorageCapacities(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(o storagev1.CSIStorageCapacity) bool { return !slices.Contains(classes, o.StorageClassName) }), nil
}

// settled is for how long it may take until objects follow the driver's stock: it is read every half minute, and asked for
// every minute.
const settled = 2 * time.Minute

// awaitObjects waits until classes have so many CSIStorageCapacity objects together.
func (s *scene) awaitObjects(n int, classes ...string) {
	s.Helper()
	s.WaitFor(fmt.Sprintf("classes %v have %d CSIStorageCapacity objects", classes, n), settled, func(ctx context.Context) (bool, error) {
		objects, err := s.objects(ctx, classes...)
		if err == nil && len(objects) != n {
			err = fmt.Errorf("they have %d: %v", len(objects), objects)
		}
		return err == nil, err
	})
}

// awaitCapacities waits until the scheduler may choose any zone for a class.
func (s *scene) awaitCapacities(class string) {
	s.Helper()
	for _, zone := range s.Zones() {
		s.WaitFor("class "+class+" has a capacity in "+zone, soon, func(ctx context.Context) (bool, error) {
			return s.capacity(ctx, class, zone, func(int64) bool { return true })
		})
	}
}

// capacity says whether the largest volume of a class that the scheduler reads for nodes of a zone is as wanted.
func (s *scene) capacity(ctx context.Context, class, zone string, wanted func(bytes int64) bool) (bool, error) {
	objects, err := s.objects(ctx, class)
	if err != nil {
		return false, err
	}
	node, most := labels.Set{topology.WellKnownZoneKey: zone, topology.ZoneKey: zone, topology.RegionKey: "cn-hangzhou"}, int64(-1)
	for _, object := range objects {
		selector, err := metav1.LabelSelectorAsSelector(object.NodeTopology)
		if err != nil {
			return false, err
		}
		if object.NodeTopology != nil && selector.Matches(node) {
			most = max(most, object.MaximumVolumeSize.Value())
		}
	}
	if most < 0 {
		return false, fmt.Errorf("class %s has no capacity in %s", class, zone)
	}
	if !wanted(most) {
		return false, fmt.Errorf("class %s has %d bytes in %s", class, most, zone)
	}
	return true, nil
}

func TestPodWaitsForTheFirstNodeOfItsZone(t *testing.T) {
	s := newScene(t)
	s.awaitLook(true)
	class := s.Class(waits, essdThenAuto)
	s.awaitCapacities(class)
	s.podWithClaim("pioneer", class, "20Gi", inZone(emptyZones[0]))
	first := nodeIn(emptyZones[0])
	s.add(first, s.AddBareNode)
	if node := s.awaitSelection("pioneer"); node != first.Name {
		t.Errorf("node %s was selected, want %s", node, first.Name)
	}
	s.Must(s.RegisterPlugin(s.Context(), first))
	_, d := s.bound("pioneer", late)
	s.running("pioneer", d)
	s.awaitObjects(1, class)
}

func TestZoneIsScaledToZeroAndBack(t *testing.T) {
	s := newScene(t)
	s.awaitLook(true)
	class := s.Class(waits, essdThenAuto)
	s.awaitCapacities(class)
	zone := emptyZones[1]
	s.add(nodeIn(zone), s.AddNode)
	s.podWithClaim("before", class, "20Gi", inZone(zone))
	_, d := s.bound("before", late)
	s.running("before", d)
	s.deletePods()
	s.Must(s.Client.CoreV1().Nodes().Delete(s.Context(), nodeIn(zone).Name, metav1.DeleteOptions{}))
	s.Must(s.Client.StorageV1().CSINodes().Delete(s.Context(), nodeIn(zone).Name, metav1.DeleteOptions{}))
	s.Claim("witness", s.Class(atOnce, essdThenAuto), "20Gi") // by then the provisioner has seen that the node is gone
	s.bound("witness", soon)
	s.podWithClaim("after", class, "20Gi", inZone(zone))
	s.Must(s.AddBareNode(s.Context(), nodeIn(zone)))
	if node := s.awaitSelection("after"); node != nodeIn(zone).Name {
		t.Errorf("node %s was selected, want %s", node, nodeIn(zone).Name)
	}
	s.Must(s.RegisterPlugin(s.Context(), nodeIn(zone)))
	_, d = s.bound("after", late)
	s.running("after", d)
}

func TestObjectsNumberClassesAndSoldOutZones(t *testing.T) {
	s := newScene(t)
	for _, zone := range emptyZones {
		s.add(nodeIn(zone), s.AddNode)
	}
	classes := []string{s.Class(waits, essdThenAuto), s.Class(waits, map[string]string{"type": "cloud_essd"})}
	s.Cleanup(func() { s.restartController() })
	soldOut := emptyZones[7]
	s.sellOut(soldOut)
	s.Cleanup(func() { s.Must(s.Simulator.Restock(context.Background(), soldOut)) })
	s.restartDriver()
	s.restartProvisioner("--capacity-poll-interval=1s")
	s.awaitObjects(2+2, classes...)
	for _, class := range classes {
		for _, zone := range s.Zones() {
			s.WaitFor("class "+class+" is known in "+zone, soon, func(ctx context.Context) (bool, error) {
				return s.capacity(ctx, class, zone, func(bytes int64) bool { return (bytes < 20<<30) == (zone == soldOut) })
			})
		}
	}
	s.Must(s.Simulator.Restock(s.Context(), soldOut))
	s.awaitObjects(2, classes...)
}

// atRest are Pods that wait for a zone without disks, when nobody tells of capacities any more.
func (s *scene) atRest() (class string) {
	s.Helper()
	s.awaitLook(true)
	class, zone := s.Class(waits, essdThenAuto), s.Zones()[0]
	s.awaitObjects(1, class)
	s.sellOut(zone)
	s.podWithClaim("stuck", class, "20Gi", inZone(zone))
	s.awaitObjects(2, class)
	s.stopProvisioner()
	s.Cleanup(func() {
		s.restartProvisioner()
		s.awaitLook(true)
	})
	s.Must(s.Simulator.Restock(s.Context(), zone))
	return class
}

func TestCapacitySwitchedOffLeavesNothing(t *testing.T) {
	s := newScene(t)
	class := s.atRest()
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, append(slices.Clone(quickElection), "--enable-capacity=false")...))
	s.awaitLook(false)
	s.awaitObjects(0, class)
	s.bound("stuck", late)
	s.podWithClaim("new", s.Class(waits, essdThenAuto), "20Gi")
	s.bound("new", late)
}

func TestCapacityOffIsACommandToo(t *testing.T) {
	s := newScene(t)
	class := s.atRest()
	said := s.capacityOff("--kubeconfig="+s.Topodisk.Kubeconfig, "--namespace="+leaseNamespace) // with the chart's permissions
	if strings.Contains(said, " 0 CSIStorageCapacity objects") {
		t.Errorf("it says %q", said)
	}
	s.awaitLook(false)
	s.awaitObjects(0, class)
	if said := s.capacityOff("--kubeconfig=" + s.Kubeconfig); !strings.Contains(said, " 0 CSIStorageCapacity objects") {
		t.Errorf("the second time it says %q", said)
	}
	s.podWithClaim("new", s.Class(waits, essdThenAuto), "20Gi")
	for _, name := range []string{"stuck", "new"} { // nobody provisions, so what is selected stays so
		s.WaitFor("a node is selected for claim "+name, soon, func(ctx context.Context) (bool, error) {
			claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(ctx, name, metav1.GetOptions{})
			return err == nil && claim.Annotations[lab.SelectedNode] != "", err
		})
	}
}

// capacityOff runs `disk-provisioner capacity off` and returns what it says.
func (s *scene) capacityOff(args ...string) string {
	s.Helper()
	root, err := programs.FindRoot()
	s.Must(err)
	command := exec.CommandContext(s.Context(), filepath.Join(root, ".build", "race", lab.ProvisionerName), append([]string{"capacity", "off"}, args...)...)
	said, err := command.CombinedOutput()
	if err != nil {
		s.Fatalf("%v: %s", err, said)
	}
	return string(said)
}

// TestObjectsOfOneZoneEachAreReplaced plays the upgrade from a version that wrote an object for each class and zone.
func TestObjectsOfOneZoneEachAreReplaced(t *testing.T) {
	s := newScene(t)
	s.awaitLook(true)
	class := s.Class(waits, essdThenAuto)
	var ours []storagev1.CSIStorageCapacity
	s.WaitFor("the class has one object, for everywhere", settled, func(ctx context.Context) (done bool, err error) {
		ours, err = s.objects(ctx, class) // a zone that was sold out before may have one of its own for a moment
		return len(ours) == 1 && len(ours[0].NodeTopology.MatchExpressions) == 0, err
	})
	s.stopProvisioner()
	objects := s.Client.StorageV1().CSIStorageCapacities(leaseNamespace)
	for n, zone := range s.Zones() {
		sum := sha256.Sum256([]byte(lab.DriverName + "/" + class + "/" + zone))
		old := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{
			Name: "topodisk-" + hex.EncodeToString(sum[:10]), Labels: ours[0].Labels, OwnerReferences: ours[0].OwnerReferences,
		}, StorageClassName: class, NodeTopology: metav1.SetAsLabelSelector(labels.Set{topology.WellKnownZoneKey: zone}),
			Capacity: ours[0].Capacity, MaximumVolumeSize: ours[0].Capacity}
		if n == 0 {
			old.Capacity, old.MaximumVolumeSize = resource.NewQuantity(0, resource.BinarySI), resource.NewQuantity(0, resource.BinarySI)
		}
		_, err := objects.Create(s.Context(), old, metav1.CreateOptions{})
		s.Must(err)
	}
	s.Must(objects.Delete(s.Context(), ours[0].Name, metav1.DeleteOptions{}))
	s.restartProvisioner()
	s.awaitObjects(1, class)
	s.podWithClaim("upgraded", class, "20Gi", inZone(s.Zones()[0]))
	_, d := s.bound("upgraded", late)
	s.running("upgraded", d)
}

// fits asks the scheduler's own filter of volumes about nodes that needn't exist: by name, why a Pod can't go there, or "".
func (s *scene) fits(pod string, nodes []corev1.Node) (answers map[string]string) {
	s.Helper()
	root, err := programs.FindRoot()
	s.Must(err)
	program, err := programs.BuildFits(s.Context(), root, os.Stderr)
	s.Must(err)
	list, err := json.Marshal(corev1.NodeList{Items: nodes})
	s.Must(err)
	command := exec.CommandContext(s.Context(), program, "-kubeconfig="+s.Kubeconfig, "-namespace="+s.Namespace, "-pod="+pod)
	command.Stdin, command.Stderr = bytes.NewReader(list), os.Stderr
	said, err := command.Output()
	s.Must(err)
	s.Must(json.Unmarshal(said, &answers))
	return answers
}

// families are instance families, of which an autoscaler has a group of nodes in each zone.
var families = strings.Fields("g7 g7ne g7se g8i g8a g8y c7 c7a c7se c8i c8a c8y r7 r7a r7se r8i r8a r8y hfg8i i4")

// template is a node as a cluster autoscaler imagines it: with the labels that its provider knows, and without a CSINode.
func template(family, zone string) corev1.Node {
	name := "template-" + family + "-" + zone
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelInstanceTypeStable: "ecs." + family + ".xlarge", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		topology.WellKnownZoneKey: zone, topology.RegionKey: "cn-hangzhou",
	}}}
}

// TestAutoscalerIsNotToldThatAnEmptyZoneIsFull asks about a template of each of 20 families in 3 zones, for groups that never
// had a node, that have one, and that are scaled to zero again.
func TestAutoscalerIsNotToldThatAnEmptyZoneIsFull(t *testing.T) {
	s := newScene(t)
	s.awaitLook(true)
	class := s.Class(waits, essdThenAuto)
	s.awaitCapacities(class)
	zones := emptyZones[10:13]
	s.podWithClaim("planned", class, "20Gi", func(pod *corev1.Pod) { pod.Spec.SchedulerName = "nobody" })
	var templates []corev1.Node
	var groups []lab.Node
	for _, family := range families {
		for _, zone := range zones {
			node := nodeIn(zone)
			node.Name, node.Instance, node.Type = node.Name+"-"+family, node.Instance+family, "ecs."+family+".xlarge"
			templates, groups = append(templates, template(family, zone)), append(groups, node)
		}
	}
	check := func(nodes string) {
		t.Helper()
		refused := map[string]int{}
		for _, why := range s.fits("planned", templates) {
			refused[why]++
		}
		t.Logf("groups of %s: %d templates, answers %v", nodes, len(templates), refused)
		if refused[""] != len(families)*len(zones) {
			t.Errorf("groups of %s: of %d templates %d fit; answers %v", nodes, len(templates), refused[""], refused)
		}
	}
	check("no node yet")
	t.Run("grown", func(t *testing.T) {
		grown := &scene{Scene: s.In(t), selections: s.selections}
		for _, node := range groups {
			grown.add(node, s.AddNode)
		}
		s.Claim("witness", s.Class(atOnce, essdThenAuto), "20Gi") // by then the provisioner has seen the nodes
		s.bound("witness", soon)
		check("one node")
	})
	s.Claim("witness-2", s.Class(atOnce, essdThenAuto), "20Gi")
	s.bound("witness-2", soon)
	check("no node any more")

	s.sellOut(zones[0])
	s.Cleanup(func() { s.Must(s.Simulator.Restock(context.Background(), zones[0])) })
	s.podWithClaim("asks", class, "20Gi", inZone(zones[0]))
	s.add(nodeIn(zones[0]), s.AddNode)
	s.awaitObjects(2, class)
	for name, why := range s.fits("planned", templates) {
		if soldOut := strings.HasSuffix(name, zones[0]); soldOut != strings.Contains(why, "did not have enough free storage") {
			t.Errorf("%s: %q, though its zone being sold out is %t", name, why, soldOut)
		}
	}
}

// TestAnEmptyAnswerSellsNothingOut: ECS names no disk of any zone, as to an account that lacks the permission.
func TestAnEmptyAnswerSellsNothingOut(t *testing.T) {
	s := newScene(t)
	class := s.Class(waits, essdThenAuto)
	s.awaitObjects(1, class)
	before, err := s.objects(s.Context(), class)
	s.Must(err)
	s.Cleanup(func() { s.restartController() })
	s.Must(s.Simulator.AddFault(s.Context(), ecssim.Fault{Action: "DescribeAvailableResource", Do: ecssim.FaultNothing}))
	s.restartDriver() // which has kept no answer
	s.restartProvisioner("--capacity-poll-interval=1s")
	s.WaitFor("the CSIDriver has an event", settled, func(ctx context.Context) (bool, error) {
		events, err := s.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=CSIDriver,reason=CapacityUnknown"})
		if err != nil || len(events.Items) == 0 {
			return false, err
		}
		if said := events.Items[0].Message; len(events.Items) != 1 || !strings.Contains(said, "is ecs:DescribeAvailableResource allowed?") {
			t.Errorf("%d events, the first of which says %q", len(events.Items), said)
		}
		return true, nil
	})
	after, err := s.objects(s.Context(), class)
	s.Must(err)
	if len(after) != 1 || after[0].ResourceVersion != before[0].ResourceVersion {
		t.Errorf("the objects were %v and are %v", before, after)
	}
	s.podWithClaim("meanwhile", class, "20Gi")
	_, d := s.bound("meanwhile", late)
	s.running("meanwhile", d)
}
