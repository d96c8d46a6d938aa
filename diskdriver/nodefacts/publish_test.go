package nodefacts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/ecssim"
)

const zoneH, zoneI = "cn-hangzhou-h", "cn-hangzhou-i"

// bench is a cluster, its simulated ECS, and the replicas that work for them.
type bench struct {
	*testing.T
	sim     *ecssim.Server
	cluster *fake.Clientset
	config  ecssim.Config
	driver  string // empty: the usual one
}

// newBench makes ECS: two zones, and the types ecs.new.large, which takes what
// is modern, and ecs.old.large, which takes what is not.
func newBench(t *testing.T, change func(*ecssim.Config)) *bench {
	t.Helper()
	b := &bench{T: t, cluster: fake.NewClientset()}
	b.config = ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{zoneH, zoneI}, LedgerSize: 1000000,
		Offers: map[string][]string{zoneH: {"cloud_efficiency", "cloud_essd", "cloud_auto"}, zoneI: {"cloud_essd", "cloud_auto"}, "": {"cloud_regional_disk_auto"}},
		InstanceTypes: []ecssim.InstanceType{
			{ID: "ecs.new.large", DiskQuantity: 17, NVMe: "required", Categories: []string{"cloud_essd", "cloud_auto", "cloud_regional_disk_auto"}},
			{ID: "ecs.old.large", DiskQuantity: 5, NVMe: "unsupported", Categories: []string{"cloud_efficiency", "cloud_ssd"}},
		},
	}
	if change != nil {
		change(&b.config)
	}
	var err error
	b.sim, err = ecssim.New(b.config)
	b.must(err)
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// instance makes an instance, and a Node that stands for it.
func (b *bench) instance(name, zone, kind string, labels ...string) {
	b.Helper()
	b.must(b.sim.AddInstance(ecssim.Instance{ID: "i-" + name, Zone: zone, Type: kind}))
	b.node(name, "cn-hangzhou.i-"+name, labels...)
}

func (b *bench) node(name, provider string, labels ...string) {
	b.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}}, Spec: corev1.NodeSpec{ProviderID: provider}}
	node.Status.NodeInfo.BootID = "first"
	for _, category := range labels {
		node.Labels[disk.NodeTypeLabel+category] = available
	}
	_, err := b.cluster.CoreV1().Nodes().Create(b.Context(), node, metav1.CreateOptions{})
	b.must(err)
}

// reboot gives a Node another boot ID.
func (b *bench) reboot(name string) {
	b.Helper()
	node := b.get(name)
	node.Status.NodeInfo.BootID += "-again"
	_, err := b.cluster.CoreV1().Nodes().UpdateStatus(b.Context(), node, metav1.UpdateOptions{})
	b.must(err)
}

func (b *bench) get(name string) *corev1.Node {
	b.Helper()
	node, err := b.cluster.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	b.must(err)
	return node
}

// publisher starts a Publisher that need not wait for the Lease, which ticks.
func (b *bench) publisher() (*Publisher, func()) {
	b.Helper()
	return b.start(func(p *Publisher, ctx context.Context) {
		go p.nodes.RunWithContext(ctx)
		p.publish(ctx)
	})
}

// start starts a Publisher; the function, or the end of the test, ends it.
func (b *bench) start(run func(*Publisher, context.Context)) (*Publisher, func()) {
	b.Helper()
	driver := "diskplugin.csi.alibabacloud.com"
	if b.driver != "" {
		driver = b.driver
	}
	client, err := ecs.NewClient(ecs.Config{Region: "cn-hangzhou", ClusterID: "c1", Credentials: credentials.Static(credentials.Keys{AccessKeyID: "id", AccessKeySecret: "secret"}), Transport: b.sim})
	b.must(err)
	p, err := New(Config{Region: "cn-hangzhou", Driver: driver, LabelsOf: "diskplugin.csi.alibabacloud.com", Namespace: "kube-system"}, b.cluster, client)
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(p, ctx)
	}()
	stop := func() {
		cancel()
		<-ended
	}
	b.Cleanup(stop)
	return p, stop
}

// calls counts what ECS was asked, by action.
func (b *bench) calls() map[string]int {
	n := map[string]int{}
	for _, c := range b.sim.Calls() {
		n[c.Action]++
	}
	return n
}

// patches counts the writes to Nodes.
func (b *bench) patches() int {
	n := 0
	for _, a := range b.cluster.Actions() {
		if a.Matches("patch", "nodes") {
			n++
		}
	}
	return n
}

// wantNode checks a Node's labels and how many disks it says that it can have.
func (b *bench) wantNode(name string, dataDisks int, categories ...string) {
	b.Helper()
	node := b.get(name)
	var got []string
	for key, value := range node.Labels {
		if category, ok := strings.CutPrefix(key, disk.NodeTypeLabel); ok && value == available {
			got = append(got, category)
		}
	}
	slices.Sort(got)
	slices.Sort(categories)
	facts, _ := Of(node)
	if diff := cmp.Diff(categories, got); diff != "" || facts.DataDisks != dataDisks {
		b.Errorf("node %s can have %d disks, want %d, of categories (-want +got):\n%s", name, facts.DataDisks, dataDisks, diff)
	}
}

func inBubble(t *testing.T, change func(*ecssim.Config), test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newBench(t, change)) })
}

func TestNodesAreTold(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.instance("new", zoneH, "ecs.new.large")
		b.instance("old", zoneH, "ecs.old.large", "cloud_essd", "cloud_ssd")
		b.node("abroad", "cn-beijing.i-new")
		b.node("elsewhere", "aws:///us-east-1a/i-0abc")
		b.node("bare", "")
		b.node("far", "cn-beijing.i-far")
		p, _ := b.publisher()
		time.Sleep(10 * time.Second)
		for id, want := range map[disk.InstanceID]string{"i-old": "cn-hangzhou", "i-far": "cn-beijing", "i-new": "", "i-none": ""} { // two Nodes stand for i-new
			if got := p.Region(id); got != want {
				b.Errorf("the driver is told that %s is in %q, want %q", id, got, want)
			}
		}
		b.wantNode("new", 16, "cloud_auto", "cloud_essd", "cloud_regional_disk_auto")
		b.wantNode("old", 4, "cloud_efficiency", "cloud_ssd") // essd was wrong; of ssd, which the zone hasn't, nothing is known
		for _, name := range []string{"abroad", "elsewhere", "bare"} {
			if node := b.get(name); len(node.Annotations) > 0 || len(node.Labels) > 0 {
				b.Errorf("node %s, of which ECS knows nothing, was told %v %v", name, node.Annotations, node.Labels)
			}
		}
		want := `{"instance":"i-old","boot":"first","type":"ecs.old.large","zone":"cn-hangzhou-h","dataDisks":4,"takes":["cloud_efficiency"],"refuses":["cloud_auto","cloud_essd"]}`
		if got := b.get("old").Annotations[Annotation]; got != want {
			b.Errorf("annotation %s\nwant %s", got, want)
		}
		i, ok := p.Instance("i-old")
		if !ok || i.Type != "ecs.old.large" || i.Zone != zoneH || !slices.Equal(i.Takes, []disk.Category{"cloud_efficiency"}) {
			b.Errorf("the driver is told %+v, %v", i, ok)
		}
		for _, id := range []disk.InstanceID{"i-gone", "", "i-0abc"} {
			if i, ok := p.Instance(id); ok {
				b.Errorf("the driver is told of instance %q: %+v", id, i)
			}
		}

		b.instance("later", zoneI, "ecs.new.large")
		time.Sleep(10 * time.Second)
		b.wantNode("later", 16, "cloud_auto", "cloud_essd", "cloud_regional_disk_auto")
	})
}

// A fleet costs a call for a hundred instances, one for ten types, and two for
// each type and for all.
// A driver of another name leaves the labels to the one that goes by them, while the cluster has it.
func TestLabelsOfAnotherDriverStay(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.driver = "pilot.example.com"
		usual := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "diskplugin.csi.alibabacloud.com"}}
		b.must(b.cluster.Tracker().Add(usual))
		b.instance("new", zoneH, "ecs.new.large")
		b.instance("old", zoneH, "ecs.old.large", "cloud_essd")
		_, stop := b.publisher()
		time.Sleep(10 * time.Second)
		stop()
		b.wantNode("new", 16)
		b.wantNode("old", 4, "cloud_essd")
		b.must(b.cluster.StorageV1().CSIDrivers().Delete(b.Context(), usual.Name, metav1.DeleteOptions{}))
		b.publisher()
		time.Sleep(10 * time.Second)
		b.wantNode("new", 16, "cloud_auto", "cloud_essd", "cloud_regional_disk_auto")
		b.wantNode("old", 4, "cloud_efficiency")
	})
}

func TestAFleetCostsTensOfCalls(t *testing.T) {
	const nodes, kinds = 5000, 20
	inBubble(t, func(config *ecssim.Config) {
		for n := range kinds {
			config.InstanceTypes = append(config.InstanceTypes, ecssim.InstanceType{ID: fmt.Sprintf("ecs.fleet%d.large", n), DiskQuantity: n + 2, NVMe: "supported"})
		}
	}, func(b *bench) {
		said := map[string]string{}
		b.cluster = quickCluster(fleet(b, nodes, kinds), said)
		_, stop := b.publisher()
		time.Sleep(10 * time.Minute)
		stop()
		want := map[string]int{"DescribeInstances": nodes / 100, "DescribeInstanceTypes": kinds / 10, "DescribeAvailableResource": 2 * (kinds + 1)}
		if diff := cmp.Diff(want, b.calls()); diff != "" {
			t.Errorf("calls to ECS (-want +got):\n%s", diff)
		}
		if len(said) != nodes || b.patches() != nodes {
			t.Errorf("%d nodes are told by %d writes, want one for each of %d", len(said), b.patches(), nodes)
		}
	})
}

// What is published serves the next process: it asks after the types alone, and
// writes nothing.
func TestARestartReadsWhatIsPublished(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		for n := range 30 {
			b.instance(fmt.Sprintf("n%d", n), zoneH, []string{"ecs.new.large", "ecs.old.large"}[n%2])
		}
		_, stop := b.publisher()
		time.Sleep(time.Minute)
		stop()
		b.wantNode("n28", 16, "cloud_auto", "cloud_essd", "cloud_regional_disk_auto")
		before := b.calls()
		_, stop = b.publisher()
		time.Sleep(10 * time.Minute)
		stop()
		got := b.calls()
		for action, n := range before {
			got[action] -= n
		}
		want := map[string]int{"DescribeInstances": 0, "DescribeInstanceTypes": 1, "DescribeAvailableResource": 6}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("calls to ECS after a restart (-want +got):\n%s", diff)
		}
		if n := b.patches(); n != 30 {
			t.Errorf("%d writes, want none more than 30", n)
		}
	})
}

// quickCluster is one that takes down the facts of its Nodes, and doesn't change
// them: for thousands the simulated API server takes minutes.
func quickCluster(nodes []runtime.Object, said map[string]string) *fake.Clientset {
	cluster := fake.NewSimpleClientset(nodes...) // without field managers, for the same reason
	cluster.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		said[patch.GetName()] = string(patch.GetPatch())
		return true, &corev1.Node{}, nil
	})
	return cluster
}

// fleet makes instances of all kinds, and their Nodes.
func fleet(b *bench, nodes, kinds int) []runtime.Object {
	var all []runtime.Object
	for n := range nodes {
		name := fmt.Sprintf("n%d", n)
		b.must(b.sim.AddInstance(ecssim.Instance{ID: "i-" + name, Zone: []string{zoneH, zoneI}[n%2], Type: fmt.Sprintf("ecs.fleet%d.large", n%kinds)}))
		all = append(all, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec:       corev1.NodeSpec{ProviderID: "cn-hangzhou.i-" + name},
		})
	}
	return all
}

// An instance is given another type while it is stopped.
func TestANodeOfAnotherTypeIsToldAnew(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.instance("n", zoneH, "ecs.new.large")
		p, _ := b.publisher()
		time.Sleep(10 * time.Second)
		b.wantNode("n", 16, "cloud_auto", "cloud_essd", "cloud_regional_disk_auto")

		b.must(b.sim.RemoveInstance("i-n"))
		b.must(b.sim.AddInstance(ecssim.Instance{ID: "i-n", Zone: zoneH, Type: "ecs.old.large"}))
		b.reboot("n")
		synctest.Wait()
		if i, ok := p.Instance("i-n"); ok {
			t.Errorf("what was so before the boot is still believed: %+v", i)
		}
		time.Sleep(10 * time.Second)
		b.wantNode("n", 4, "cloud_efficiency", "cloud_regional_disk_auto") // of regional disks nothing is known
		before := b.calls()["DescribeInstances"]

		b.reboot("n")
		time.Sleep(10 * time.Second)
		b.wantNode("n", 4, "cloud_efficiency", "cloud_regional_disk_auto")
		if n := b.calls()["DescribeInstances"] - before; n != 1 {
			t.Errorf("%d calls after a boot, want 1", n)
		}
	})
}

// ECS says something else of a type by and by.
func TestWhatATypeTakesIsReadAgain(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.instance("n", zoneI, "ecs.old.large")
		b.publisher()
		time.Sleep(10 * time.Second)
		b.wantNode("n", 4) // its zone has none of what it takes
		b.must(b.sim.SetStock(zoneI, "cloud_efficiency", 0))
		time.Sleep(refresh + typeLasts)
		b.wantNode("n", 4, "cloud_efficiency") // sold out, but there may be such disks
		before := b.patches()
		time.Sleep(24 * time.Hour)
		if n := b.patches() - before; n != 0 {
			t.Errorf("%d writes in a day in which nothing happens", n)
		}
	})
}

func TestNothingIsTakenBackForWantOfAnAnswer(t *testing.T) {
	everything := []string{"cloud_efficiency", "cloud_essd", "cloud_ssd"}
	for name, test := range map[string]struct {
		fault ecssim.Fault
		disks int      // that the node says it can have meanwhile
		while []string // categories, meanwhile
	}{
		"ECS can't be reached":          {ecssim.Fault{Do: ecssim.FaultRefused}, 0, everything},
		"ECS fails":                     {ecssim.Fault{Do: ecssim.FaultBrownOut}, 0, everything},
		"no instance is shown":          {ecssim.Fault{Do: ecssim.FaultNothing, Action: "DescribeInstances"}, 0, everything},
		"instances may not be read":     {ecssim.Fault{Do: ecssim.FaultError, Action: "DescribeInstances", Status: 403, Code: "Forbidden.RAM"}, 0, everything},
		"types may not be read":         {ecssim.Fault{Do: ecssim.FaultError, Action: "DescribeInstanceTypes", Status: 403, Code: "Forbidden.RAM"}, 0, []string{"cloud_efficiency", "cloud_ssd"}},
		"categories may not be read":    {ecssim.Fault{Do: ecssim.FaultError, Action: "DescribeAvailableResource", Status: 403, Code: "Forbidden.RAM"}, 4, everything},
		"no category is shown":          {ecssim.Fault{Do: ecssim.FaultNothing, Action: "DescribeAvailableResource"}, 4, everything},
		"an answer comes without words": {ecssim.Fault{Do: ecssim.FaultEmpty}, 0, everything},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bench) {
				b.instance("n", zoneH, "ecs.old.large", everything...)
				test.fault.Count = 1 << 20
				b.must(b.sim.AddFault(test.fault))
				b.publisher()
				time.Sleep(30 * time.Minute)
				b.wantNode("n", test.disks, test.while...)
				if n := len(b.sim.Calls()); n > 200 {
					t.Errorf("%d calls in half an hour in which they are in vain", n)
				}
				b.sim.ClearFaults()
				time.Sleep(refresh + typeLasts)
				b.wantNode("n", 4, "cloud_efficiency", "cloud_ssd")
			})
		})
	}
}

func TestOneReplicaWritesAndAllKnow(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		first, stopFirst := b.start((*Publisher).Run)
		time.Sleep(5 * time.Second) // it holds the Lease
		second, _ := b.start((*Publisher).Run)
		b.instance("n", zoneH, "ecs.new.large")
		time.Sleep(time.Minute)
		if n := b.patches(); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
		for name, p := range map[string]*Publisher{"first": first, "second": second} {
			if i, ok := p.Instance("i-n"); !ok || i.DataDisks != 16 {
				t.Errorf("the %s replica knows %+v", name, i)
			}
		}
		stopFirst()
		b.instance("later", zoneH, "ecs.old.large")
		time.Sleep(time.Minute)
		b.wantNode("later", 4, "cloud_efficiency")
		b.wantNode("n", 16, "cloud_auto", "cloud_essd", "cloud_regional_disk_auto")
		if n := b.patches(); n != 2 {
			t.Errorf("%d writes, want one for each node", n)
		}
	})
}

func TestAConfigThatLacksSomethingIsRefused(t *testing.T) {
	for _, row := range []struct {
		config Config
		want   string
	}{
		{Config{Driver: "d", Namespace: "n"}, "Region"},
		{Config{Region: "r", Namespace: "n"}, "Driver"},
		{Config{Region: "r", Driver: "d", Namespace: "n"}, "LabelsOf"},
		{Config{Region: "r", Driver: "d", LabelsOf: "d"}, "Namespace"},
	} {
		if _, err := New(row.config, fake.NewClientset(), nil); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v", row.config, err)
		}
	}
}
