// Requirement prints how long csi-provisioner takes to work out where the volume of one claim may be, in a cluster of as
// many nodes as its argument says. The nodes are those of test/bench.
package main

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/kubernetes-csi/external-provisioner/v6/pkg/controller"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
)

const driver = "bench.csi.topodisk.io"

func main() {
	count, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err != nil || count < 8 {
		fmt.Fprintln(os.Stderr, "usage: requirement NODES, which are 8 at least")
		os.Exit(2)
	}
	nodes, csiNodes := cluster(count)
	fmt.Println(measure(corelisters.NewNodeLister(nodes), storagelisters.NewCSINodeLister(csiNodes)))
}

func cluster(count int) (nodes, csiNodes cache.Indexer) {
	nodes = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	csiNodes = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for i := range count {
		name := fmt.Sprintf("node-%05d", i)
		must(nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelTopologyZone: fmt.Sprintf("zone-%c", 'a'+i%3), corev1.LabelHostname: name, corev1.LabelInstanceTypeStable: "ecs.g7.xlarge",
			"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "node.kubernetes.io/pool": fmt.Sprintf("pool-%d", i%7),
		}}}))
		must(csiNodes.Add(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: name, TopologyKeys: []string{corev1.LabelTopologyZone}}}}}))
	}
	return nodes, csiNodes
}

// measure returns the time of one claim. Each is a claim of its own, so that nothing is known of it from an earlier one.
func measure(nodes corelisters.NodeLister, csiNodes storagelisters.CSINodeLister) time.Duration {
	claim := 0
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			claim++
			_, err := controller.GenerateAccessibilityRequirements(nil, driver, types.UID(strconv.Itoa(claim)), "data-web-1", nil, "node-00007",
				false, true, csiNodes, nodes, controller.NewInMemoryStore())
			must(err)
		}
	})
	return time.Duration(result.NsPerOp())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
