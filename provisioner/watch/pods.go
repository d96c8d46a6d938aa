package watch

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/internal/sleep"
)

const (
	// podsFillLimit is how long a process that starts waits for its cache of Pods, which it can do without.
	podsFillLimit = 10 * time.Second
	// podsRetry is how often a process that may not watch Pods tries it again.
	podsRetry = time.Minute
)

// Pod is a Pod without a node: the names of its claims, each once and none if it has ended or has more than mostClaims, and which nodes it may have.
type Pod struct {
	metav1.ObjectMeta
	Claims       []string
	NodeSelector map[string]string
	Required     *v1.NodeSelector // required node affinity; nil for none
}

// longestAffinity is how many bytes a required node affinity has at most that is kept: a tenant writes it, in each of many Pods.
const longestAffinity = 4096

// labelOverhead is about what a label takes in memory besides its characters.
const labelOverhead = 40

// mostClaims is how many claims a Pod has at most whose claims are provisioned together. Each of them looks at all others, and no instance type
// takes as many disks, so that a Pod with more never runs.
const mostClaims = 128

// mostPods is how many Pods that wait for a claim are looked at for each step of it, under a lock that all claims share. Of a claim with more
// it is not known for which of them it gets its volume anyway.
const mostPods = 128

// Pods is a cache of the Pods without a node, which are few. Without the permission to list and watch Pods it is
// empty. A nil *Pods is empty, too.
type Pods struct {
	client   kubernetes.Interface
	informer cache.SharedIndexInformer
}

// byPodClaim indexes Pods with claims by namespace/name of each.
const byPodClaim = "claim"

// NewPods returns a cache that is not filled yet. gone is called with each Pod that has several claims and has got a node, has
// ended or no longer exists.
func NewPods(client kubernetes.Interface, gone func(*Pod)) (*Pods, error) {
	indexers := cache.Indexers{byPodClaim: Index(claimKeys)}
	p := &Pods{client: client, informer: coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, Resync, indexers, withoutNode)}
	if err := p.informer.SetTransform(trimPod); err != nil {
		return nil, err
	}
	left := func(pod *Pod) {
		if len(pod.Claims) > 1 {
			gone(pod)
		}
	}
	changed := func(old, now *Pod) {
		if old != nil && len(now.Claims) == 0 {
			left(old)
		}
	}
	_, err := p.informer.AddEventHandler(OnUpdate(changed, left))
	return p, err
}

// withoutNode selects the Pods without a node, for which the API server has an index.
func withoutNode(o *metav1.ListOptions) {
	o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", "").String()
}

// trimPod is a cache.TransformFunc.
func trimPod(object any) (any, error) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		return object, nil // trimmed before, or a tombstone
	}
	trimmed := &Pod{ObjectMeta: pod.ObjectMeta}
	trimMeta(&trimmed.ObjectMeta)
	trimmed.Finalizers = nil
	trimmed.Claims = ClaimsOf(pod)
	if len(trimmed.Claims) > 0 {
		trimmed.keepPlace(&pod.Spec)
	}
	return trimmed, nil
}

// ClaimsOf returns the names of the claims that a Pod uses, each once; none if there are more than mostClaims. Kubernetes bounds the name of
// a claim, but not what a Pod says it is.
func ClaimsOf(pod *v1.Pod) (names []string) {
	for _, name := range podclaims.InUse(pod) {
		if len(name) <= validation.DNS1123SubdomainMaxLength && !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(names) > mostClaims {
			return nil
		}
	}
	return names
}

// keepPlace keeps which nodes a Pod may have, unless that is too long: then it counts as if it may have any.
func (p *Pod) keepPlace(spec *v1.PodSpec) {
	size := 0
	for key, value := range spec.NodeSelector {
		size += len(key) + len(value) + labelOverhead
	}
	if size <= longestAffinity {
		p.NodeSelector = spec.NodeSelector
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return
	}
	if required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil && required.Size() <= longestAffinity {
		p.Required = required
	}
}

// claimKeys returns namespace/name of each of a Pod's claims.
func claimKeys(pod *Pod) (keys []string) {
	for _, name := range pod.Claims {
		keys = append(keys, pod.Namespace+"/"+name)
	}
	return keys
}

// Knows says whether the cache shows all Pods: it may not be allowed to be filled.
func (p *Pods) Knows() bool { return p != nil && p.informer.HasSynced() }

// OfClaim returns the Pods without a node that have the claim, none if there are more than mostPods.
func (p *Pods) OfClaim(namespace, name string) []*Pod {
	if p == nil {
		return nil
	}
	pods, _ := find(p.informer.GetIndexer(), byPodClaim, namespace+"/"+name, func(*Pod) bool { return true }) // there is such an index
	if len(pods) > mostPods {
		return nil
	}
	return pods
}

// Fill starts the informer and returns once the cache is full, or is known not to fill soon. The end of ctx doesn't stop
// the informer.
func (p *Pods) Fill(ctx context.Context) {
	if p == nil {
		return
	}
	always := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(ctx, podsFillLimit)
	defer cancel()
	if err := p.checkPermission(ctx); apierrors.IsForbidden(err) {
		klog.InfoS("Pods can't be watched, so the claims of a Pod are provisioned each by itself; grant list and watch of Pods, or switch it off with --pod-claims-together=false", "err", err)
		go p.runOncePermitted(always)
		return
	}
	go p.informer.Run(always.Done())
	cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced)
}

// runOncePermitted starts the informer as soon as it may list and watch.
func (p *Pods) runOncePermitted(ctx context.Context) {
	for {
		if sleep.For(ctx, podsRetry) != nil {
			return
		}
		if err := p.checkPermission(ctx); !apierrors.IsForbidden(err) {
			klog.InfoS("Pods can be watched from now on")
			p.informer.Run(ctx.Done())
			return
		}
	}
}

// checkPermission lists and watches once: an informer logs every failure.
func (p *Pods) checkPermission(ctx context.Context) error {
	options := metav1.ListOptions{Limit: 1}
	withoutNode(&options)
	list, err := p.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
	if err != nil {
		return err
	}
	options.Limit, options.ResourceVersion = 0, list.ResourceVersion
	events, err := p.client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, options)
	if err == nil {
		events.Stop()
	}
	return err
}
