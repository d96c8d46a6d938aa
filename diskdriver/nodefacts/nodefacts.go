// Package nodefacts publishes what only ECS knows about nodes: which categories of
// disks a node can attach, in labels, and how many disks, in an annotation. Schedulers, provisioners and the node plugin go by that, so
// that no node needs credentials for ECS; and the controller goes by it before
// it attaches a disk.
//
// What ECS doesn't say isn't known, and nothing is taken back for want of an
// answer.
package nodefacts

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Cloud says what ECS knows of instances. Every error has a disk.Kind.
type Cloud interface {
	// Instances returns the type and the zone of those of the instances that
	// the region has.
	Instances(ctx context.Context, ids []disk.InstanceID) (map[disk.InstanceID]disk.Instance, error)

	// DataDisks returns how many disks the instances of a type can have
	// besides their system disk, for those of the types that ECS knows.
	DataDisks(ctx context.Context, types []disk.InstanceType) (map[disk.InstanceType]int, error)

	// Categories returns which categories each zone has for instances of a
	// type, sold out or not, or for any instance if the type is empty; with
	// regional those of the region, under the empty zone.
	Categories(ctx context.Context, t disk.InstanceType, regional bool) (map[disk.Zone][]disk.Category, error)
}

// Config says whose nodes are told of.
type Config struct {
	// Region is the ECS region, such as cn-hangzhou. Nodes of another one are
	// left alone. Required.
	Region string
	// Driver is the CSI driver's name, after which the Lease is named. Required.
	Driver string
	// LabelsOf is the driver whose labels disk.NodeTypeLabel are if the cluster
	// has its CSIDriver object. Required.
	LabelsOf string
	// Namespace is where the Lease is. Required.
	Namespace string
}

// Publisher keeps the facts of all nodes, and knows those that are published.
type Publisher struct {
	config Config
	client kubernetes.Interface
	cloud  Cloud
	nodes  cache.SharedIndexInformer
}

// byInstance is the index of the Nodes by their instance.
const byInstance = "instance"

// New returns a Publisher; its error names what is missing. It calls nothing:
// Run does.
func New(config Config, client kubernetes.Interface, cloud Cloud) (*Publisher, error) {
	for _, required := range []struct{ name, value string }{
		{"Region", config.Region}, {"Driver", config.Driver}, {"LabelsOf", config.LabelsOf}, {"Namespace", config.Namespace},
	} {
		if required.value == "" {
			return nil, fmt.Errorf("nodefacts.Config.%s is missing", required.name)
		}
	}
	nodes := informers.NewSharedInformerFactoryWithOptions(client, refresh, informers.WithTransform(trim)).Core().V1().Nodes().Informer()
	err := nodes.AddIndexers(cache.Indexers{byInstance: func(object any) ([]string, error) {
		node, ok := object.(*corev1.Node)
		if !ok {
			return nil, nil
		}
		if id, _ := identify(node); id != "" {
			return []string{string(id)}, nil
		}
		return nil, nil
	}})
	return &Publisher{config: config, client: client, cloud: cloud, nodes: nodes}, err
}

// Run follows the Nodes until the context ends, and publishes their facts while
// this process holds the Lease: every replica knows what is published, and one
// publishes.
func (p *Publisher) Run(ctx context.Context) {
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.nodes.RunWithContext(ctx)
	}()
	p.lead(ctx, p.publish)
	<-watched
}

// Instance returns what is published of an instance and still holds, and false
// if that is nothing. It asks nobody.
func (p *Publisher) Instance(id disk.InstanceID) (disk.Instance, bool) {
	node := p.node(id)
	if node == nil {
		return disk.Instance{}, false
	}
	f, ok := Of(node)
	return f.instance(), ok
}

// Region returns the region that the provider ID of an instance's Node names,
// empty if none does.
func (p *Publisher) Region(id disk.InstanceID) string {
	node := p.node(id)
	if node == nil {
		return ""
	}
	_, region := identify(node)
	return region
}

// node returns the Node that stands for an instance, nil if there is none.
func (p *Publisher) node(id disk.InstanceID) *corev1.Node {
	objects, err := p.nodes.GetIndexer().ByIndex(byInstance, string(id))
	if err != nil || len(objects) != 1 { // two Nodes for one instance: one of them is out of date
		return nil
	}
	node, _ := objects[0].(*corev1.Node)
	return node
}

// refresh is how often a node is looked at again although nothing has happened
// to it, for ECS may say something else of its type.
const refresh = time.Hour
