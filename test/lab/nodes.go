package lab

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/topology"
)

// DriverName is the CSI driver that the nodes claim to run.
const DriverName = "diskplugin.csi.alibabacloud.com"

// disksPerNode is the limit of disks that a node reports, a usual one of ECS instances.
const disksPerNode = 15

// kwokStages tell KWOK how nodes become Ready, Pods become Running, and deleted Pods go away.
//
//go:embed stages.yaml
var kwokStages []byte

// Node is one ECS instance and the Node object that stands for it.
type Node struct {
	Name, Instance, Type, Region, Zone string
}

// region is the one that the lab's nodes are in.
const region = "cn-hangzhou"

// newNode is the nth node of a zone, h, i or j.
func newNode(zone string, n int) Node {
	return Node{
		Name:     fmt.Sprintf("node-%s%d", zone, n),
		Instance: fmt.Sprintf("i-bp1lab%s%d", zone, n),
		Type:     "ecs.g6.xlarge",
		Region:   region,
		Zone:     region + "-" + zone,
	}
}

// SixNodes are two nodes in each of three zones of cn-hangzhou.
func SixNodes() (nodes []Node) {
	for _, zone := range []string{"h", "i", "j"} {
		nodes = append(nodes, newNode(zone, 1), newNode(zone, 2))
	}
	return nodes
}

// NodesInOneZone are n nodes of a type in the zone h of cn-hangzhou.
func NodesInOneZone(n int, instanceType string) (nodes []Node) {
	for i := range n {
		node := newNode("h", i+1)
		node.Type = instanceType
		nodes = append(nodes, node)
	}
	return nodes
}

// ManyNodes are n nodes, in turn in the zones h, i and j of cn-hangzhou.
func ManyNodes(n int) (nodes []Node) {
	for i := range n {
		nodes = append(nodes, newNode([]string{"h", "i", "j"}[i%3], i/3+1))
	}
	return nodes
}

// startNodes starts KWOK, registers the nodes, and returns when all are Ready and Pods can be scheduled to them.
func (l *Lab) startNodes(ctx context.Context) error {
	stages := filepath.Join(l.Dir, "stages.yaml")
	if err := os.WriteFile(stages, kwokStages, 0o600); err != nil {
		return err
	}
	if _, err := l.StartProgram("kwok", filepath.Join(l.opts.Programs.Etcd, "kwok"), "--kubeconfig="+l.Kubeconfig, "--config="+stages, "--manage-all-nodes",
		"--node-lease-duration-seconds=40", "--node-port=0"); err != nil {
		return err
	}
	for _, node := range l.Nodes {
		if err := l.AddNode(ctx, node); err != nil {
			return err
		}
	}
	if err := l.awaitReady(ctx); err != nil {
		return err
	}
	return l.awaitAccount(ctx, metav1.NamespaceDefault)
}

// AddNode registers a Node as a kubelet would, and its CSINode as the kubelet does when a driver's node plugin registers.
func (l *Lab) AddNode(ctx context.Context, n Node) error {
	if err := l.AddBareNode(ctx, n); err != nil {
		return err
	}
	return l.RegisterPlugin(ctx, n)
}

// AddBareNode registers a Node as a kubelet does before a driver's node plugin has registered: without the plugin's own
// topology label.
func (l *Lab) AddBareNode(ctx context.Context, n Node) error {
	node := n.node()
	if l.opts.Attach { // as the kubelet has it
		node.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	}
	_, err := l.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

// RegisterPlugin does with a bare Node what the kubelet does when the driver's node plugin registers.
func (l *Lab) RegisterPlugin(ctx context.Context, n Node) error {
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, topology.ZoneKey, n.Zone)
	if _, err := l.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		return err
	}
	_, err := l.Client.StorageV1().CSINodes().Create(ctx, n.CSINode(), metav1.CreateOptions{})
	return err
}

func (n Node) node() *corev1.Node {
	size := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name,
			Labels: map[string]string{
				corev1.LabelHostname:           n.Name,
				corev1.LabelInstanceTypeStable: n.Type,
				topology.RegionKey:             n.Region,
				topology.WellKnownZoneKey:      n.Zone,
			},
		},
		Spec:   corev1.NodeSpec{ProviderID: n.Region + "." + n.Instance},
		Status: corev1.NodeStatus{Capacity: size, Allocatable: size},
	}
}

// ReturnNode registers a node again that was deleted, and waits until Pods can be scheduled to it.
func (l *Lab) ReturnNode(ctx context.Context, n Node) error {
	if err := l.AddNode(ctx, n); err != nil {
		return err
	}
	return l.awaitReady(ctx)
}

// CSINode is what the kubelet makes when the driver's node plugin registers.
func (n Node) CSINode() *storagev1.CSINode {
	limit := int32(disksPerNode)
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name:         DriverName,
			NodeID:       n.Instance,
			TopologyKeys: []string{topology.ZoneKey, topology.WellKnownZoneKey, topology.RegionKey},
			Allocatable:  &storagev1.VolumeNodeResources{Count: &limit},
		}}},
	}
}

// awaitReady waits until every node is Ready and the taint that keeps Pods off a new node is gone, and all others but some.
func (l *Lab) awaitReady(ctx context.Context, but ...string) error {
	return l.Await(ctx, "every node is Ready and untainted", process.StartLimit, func(ctx context.Context) (bool, error) {
		list, err := l.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, node := range list.Items {
			others := func(t corev1.Taint) bool { return !slices.Contains(but, t.Key) }
			_, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
			if ready == nil || ready.Status != corev1.ConditionTrue || slices.ContainsFunc(node.Spec.Taints, others) {
				return false, fmt.Errorf("node %s: ready=%v taints=%v", node.Name, ready, node.Spec.Taints)
			}
		}
		return len(list.Items) >= len(l.Nodes), nil
	})
}

// MakeNamespace makes a namespace and waits for its default ServiceAccount, without which no Pod may be made in it.
func (l *Lab) MakeNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := l.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	return l.awaitAccount(ctx, name)
}

func (l *Lab) awaitAccount(ctx context.Context, namespace string) error {
	return l.Await(ctx, "namespace "+namespace+" has its default ServiceAccount", 30*time.Second, func(ctx context.Context) (bool, error) {
		_, err := l.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}
