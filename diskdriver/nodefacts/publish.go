package nodefacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/leader"
)

const (
	// batch is how many nodes are worked on together: one call tells of so
	// many instances (ECS API, DescribeInstances).
	batch = 100
	// gather is how long the first of a batch waits for others.
	gather = time.Second
	// The pauses before a node is worked on again for which something failed.
	firstPause, longestPause = 5 * time.Second, 5 * time.Minute
)

// publication is the work of the process that holds the Lease.
type publication struct {
	publisher *Publisher
	queue     workqueue.TypedRateLimitingInterface[string] // names of Nodes
	types     *typeCache
}

// publish works on every Node once, and on each that changes, until the context
// ends.
func (p *Publisher) publish(ctx context.Context) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPause, longestPause)
	w := &publication{publisher: p,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "nodes"}),
		types: newTypeCache(p.cloud)}
	heard, err := p.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.changed(nil, object) },
		UpdateFunc: w.changed,
	})
	if err != nil {
		klog.ErrorS(err, "Node facts are not published") // the informer has been stopped
		return
	}
	defer func() { _ = p.nodes.RemoveEventHandler(heard) }()
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), heard.HasSynced) {
		return
	}
	for w.processNext(ctx) {
	}
}

// changed has a Node looked at, but not for its heartbeat.
func (w *publication) changed(before, now any) {
	node, ok := now.(*corev1.Node)
	if !ok {
		return
	}
	if old, ok := before.(*corev1.Node); ok && old.ResourceVersion != node.ResourceVersion && sameFacts(old, node) {
		return
	}
	w.queue.Add(node.Name)
}

func sameFacts(a, b *corev1.Node) bool {
	return a.UID == b.UID && a.Spec.ProviderID == b.Spec.ProviderID && a.Status.NodeInfo.BootID == b.Status.NodeInfo.BootID &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// processNext works on one batch, and returns false when there will be none any more.
func (w *publication) processNext(ctx context.Context) bool {
	names, ok := w.nextBatch(ctx)
	if !ok {
		return false
	}
	again := w.process(ctx, names)
	for _, name := range names {
		if again[name] {
			w.queue.AddRateLimited(name)
		} else {
			w.queue.Forget(name)
		}
		w.queue.Done(name)
	}
	return true
}

// nextBatch returns the names of the next batch. One that comes alone waits for a
// moment: nodes come in groups.
func (w *publication) nextBatch(ctx context.Context) (names []string, ok bool) {
	name, ended := w.queue.Get()
	if ended {
		return nil, false
	}
	names = []string{name}
	if w.queue.Len() < batch {
		select {
		case <-time.After(gather):
		case <-ctx.Done():
		}
	}
	for len(names) < batch && w.queue.Len() > 0 {
		if name, ended = w.queue.Get(); !ended {
			names = append(names, name)
		}
	}
	return names, true
}

// nodeInstance is a Node and the instance that it stands for.
type nodeInstance struct {
	node *corev1.Node
	id   disk.InstanceID
	now  disk.Instance
}

// process publishes the facts of nodes and returns those that must be looked at
// again, for something isn't known or wasn't written.
func (w *publication) process(ctx context.Context, names []string) (again map[string]bool) {
	again = make(map[string]bool)
	nodes := w.nodeInstances(names)
	if err := w.readInstances(ctx, nodes); err != nil {
		klog.ErrorS(err, "Types and zones of instances were not read", "nodes", len(nodes))
	}
	var instanceTypes []disk.InstanceType
	for _, s := range nodes {
		if s.now.Type != "" && !slices.Contains(instanceTypes, s.now.Type) {
			instanceTypes = append(instanceTypes, s.now.Type)
		}
	}
	if err := w.types.refresh(ctx, instanceTypes); err != nil {
		klog.ErrorS(err, "What nodes can attach was not read in full")
	}
	labels, unclear := w.keepsLabels(ctx)
	if unclear != nil {
		klog.ErrorS(unclear, "Whose the labels of nodes are was not read, and they stay as they are")
	}
	for _, s := range nodes {
		if ctx.Err() != nil {
			return again // whoever works next looks at every node
		}
		done, err := w.write(ctx, s, labels)
		if err != nil {
			klog.ErrorS(err, "Node facts were not written", "node", s.node.Name)
		}
		again[s.node.Name] = unclear != nil || err != nil || !done
	}
	return again
}

// keepsLabels says whether the labels are this driver's to set and to take away: another one of the usual name that the cluster has goes
// by them, and keeps them itself.
func (w *publication) keepsLabels(ctx context.Context) (bool, error) {
	if w.publisher.config.Driver == w.publisher.config.LabelsOf {
		return true, nil
	}
	_, err := w.publisher.client.StorageV1().CSIDrivers().Get(ctx, w.publisher.config.LabelsOf, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// nodeInstances returns the Nodes that stand for an instance of the region.
func (w *publication) nodeInstances(names []string) []*nodeInstance {
	var all []*nodeInstance
	for _, name := range names {
		node, ok := stored[*corev1.Node](w.publisher.nodes.GetStore(), name)
		if !ok {
			continue
		}
		if id, region := identify(node); id != "" && (region == "" || region == w.publisher.config.Region) {
			all = append(all, &nodeInstance{node: node, id: id})
		}
	}
	return all
}

// readInstances fills in the types and zones of instances: what is published and
// still holds, and the rest from ECS, with one call.
func (w *publication) readInstances(ctx context.Context, nodes []*nodeInstance) error {
	var unknown []disk.InstanceID
	for _, s := range nodes {
		if f, ok := Of(s.node); ok {
			s.now.Type, s.now.Zone = f.Type, f.Zone
		} else {
			unknown = append(unknown, s.id)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	found, err := w.publisher.cloud.Instances(ctx, unknown)
	if err != nil {
		return err
	}
	var hidden []disk.InstanceID
	for _, s := range nodes {
		if i, ok := found[s.id]; ok {
			s.now = i
		} else if s.now.Type == "" {
			hidden = append(hidden, s.id)
		}
	}
	if len(hidden) > 0 {
		klog.InfoS("Nodes stand for instances that ECS doesn't show; are they gone, or is ecs:DescribeInstances not allowed for them?", "count", len(hidden), "first", hidden[0])
	}
	return nil
}

// write writes what is known of a Node, if it doesn't say so yet, and returns
// whether that is all there is to know.
func (w *publication) write(ctx context.Context, s *nodeInstance, labels bool) (complete bool, err error) {
	if s.now.Type == "" || s.now.Zone == "" {
		return false, nil
	}
	before, _ := published(s.node)
	facts := before.updated(s.id, s.node.Status.NodeInfo.BootID, w.types.instance(s.now.Type, s.now.Zone))
	patch, needed := patchOf(s.node, facts, labels)
	if !needed {
		return facts.isComplete(), nil
	}
	_, err = w.publisher.client.CoreV1().Nodes().Patch(ctx, s.node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err):
		return false, nil // another Node has the name by now
	case err != nil:
		return false, fmt.Errorf("patch %s: %w", patch, err)
	}
	klog.V(3).InfoS("Node facts are published", "node", s.node.Name, "facts", facts.text())
	return facts.isComplete(), nil
}

// metadata is a merge patch of a Node. A nil value takes the key away.
type metadata struct {
	UID         types.UID          `json:"uid"` // of another Node by the same name is a conflict
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]string  `json:"annotations,omitempty"`
}

// patchOf returns what makes a Node say its facts, in labels only if these are the
// driver's, and false if it says them already. A label goes only if the instance is known not to take the category.
// A label with another value than available was set by somebody else, who may
// want to keep disks of that category off the node, and is left alone.
func patchOf(node *corev1.Node, f Facts, labels bool) (patch []byte, needed bool) {
	m := metadata{UID: node.UID, Labels: map[string]*string{}}
	takes, refuses := f.Takes, f.Refuses
	if !labels {
		takes, refuses = nil, nil
	}
	for _, c := range takes {
		if key := disk.NodeTypeLabel + string(c); node.Labels[key] == "" && categoryForm.MatchString(string(c)) {
			value := available
			m.Labels[key] = &value
		}
	}
	for _, c := range refuses {
		if key := disk.NodeTypeLabel + string(c); node.Labels[key] == available {
			m.Labels[key] = nil
		}
	}
	if text := f.text(); node.Annotations[Annotation] != text {
		m.Annotations = map[string]string{Annotation: text}
	}
	if len(m.Labels) == 0 && m.Annotations == nil {
		return nil, false
	}
	patch, err := json.Marshal(map[string]metadata{"metadata": m})
	return patch, err == nil
}

// How long a silent holder is waited for, and how it renews.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

var notInName = regexp.MustCompile(`[^a-z0-9-]`)

// LeaseName is the name of the Lease of a CSI driver's node facts.
func LeaseName(driver string) string {
	return "topodisk-node-facts-" + notInName.ReplaceAllString(strings.ToLower(driver), "-")
}

// lead does the work whenever this process holds the Lease, until ctx ends.
// Two replicas of different versions must not write in turn what each thinks
// right. A last write after the Lease was lost does no harm: it says what was
// so a moment ago, and the next holder looks at every Node.
func (p *Publisher) lead(ctx context.Context, work func(context.Context)) {
	for ctx.Err() == nil {
		lease := &leader.Lease{
			Namespace: p.config.Namespace, Name: LeaseName(p.config.Driver),
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		}
		ended := make(chan struct{})
		err := lease.RunWhileHeld(ctx, p.client, func(held context.Context) error {
			defer close(ended)
			work(held)
			return nil
		})
		switch {
		case errors.Is(err, leader.ErrLost):
			klog.ErrorS(err, "Node facts are published by another replica", "lease", lease.Name)
			<-ended
		case err != nil:
			klog.ErrorS(err, "Node facts are not published")
			return
		}
	}
}
