package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/test/lab"
)

// startAlone starts one Pod with a new claim, each round on the next node, and waits until nothing is left of it. How long ECS
// takes to detach the disk is no part of it, and is set to little.
func (b *podsBench) startAlone(ctx context.Context, from volumeSource) (podsSample, error) {
	if err := b.Simulator.SetSpans(ctx, map[string]time.Duration{"Detach": 100 * time.Millisecond}); err != nil {
		return podsSample{}, err
	}
	names := b.newNames(1)
	if err := b.setPaces(from, names); err != nil {
		return podsSample{}, err
	}
	begin := time.Now()
	if err := b.makePod(ctx, from, names[0], onNode(b.Nodes[b.round%len(b.Nodes)].Name)); err != nil {
		return podsSample{}, err
	}
	sample, err := b.sample(ctx, from, begin, names)
	if err != nil {
		return sample, err
	}
	return sample, b.clear(ctx, from)
}

// startCrowd starts many Pods at once on one node.
func (b *podsBench) startCrowd(ctx context.Context, from volumeSource) (podsSample, error) {
	if err := b.usualDetach(ctx); err != nil {
		return podsSample{}, err
	}
	names := b.newNames(b.sizes.crowd)
	if err := b.setPaces(from, names); err != nil {
		return podsSample{}, err
	}
	begin := time.Now()
	err := each(len(names), func(i int) error { return b.makePod(ctx, from, names[i], onNode(b.Nodes[0].Name)) })
	if err != nil {
		return podsSample{}, err
	}
	sample, err := b.sample(ctx, from, begin, names)
	if err != nil {
		return sample, err
	}
	return sample, b.clear(ctx, from)
}

// drain has a StatefulSet with all its Pods on the first node, and then evicts them all from there at once.
func (b *podsBench) drain(ctx context.Context, from volumeSource) (podsSample, error) {
	if err := b.usualDetach(ctx); err != nil {
		return podsSample{}, err
	}
	set := b.statefulSet(from, b.sizes.crowd)
	defer b.cordon(ctx, func(lab.Node) bool { return false }) //nolint:errcheck // the next scenario would fail
	if err := b.cordon(ctx, func(n lab.Node) bool { return n != b.Nodes[0] }); err != nil {
		return podsSample{}, err
	}
	names, err := b.makeSet(ctx, set)
	if err != nil {
		return podsSample{}, err
	}
	if err := b.cordon(ctx, func(n lab.Node) bool { return n == b.Nodes[0] }); err != nil {
		return podsSample{}, err
	}
	begin := time.Now()
	err = each(len(names), func(i int) error {
		return b.Client.PolicyV1().Evictions(benchNamespace).Evict(ctx,
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: names[i], Namespace: benchNamespace}})
	})
	if err != nil {
		return podsSample{}, err
	}
	sample, err := b.sample(ctx, from, begin, names)
	if err != nil {
		return sample, err
	}
	sample.wall = sample.end.Sub(begin).Seconds() // the first eviction is where a drain begins
	return sample, b.clear(ctx, from)
}

// update changes the template of a StatefulSet some times, whose Pods are replaced one after the other.
func (b *podsBench) update(ctx context.Context, from volumeSource) (all podsSample, err error) {
	if err := b.usualDetach(ctx); err != nil {
		return all, err
	}
	set := b.statefulSet(from, b.sizes.replicas)
	names, err := b.makeSet(ctx, set)
	if err != nil {
		return all, err
	}
	for n := range b.sizes.updates {
		begin := time.Now()
		patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"update":"%d"}}}}}`, n)
		_, err := b.Client.AppsV1().StatefulSets(benchNamespace).Patch(ctx, set.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return all, err
		}
		sample, err := b.sample(ctx, from, begin, names)
		if err != nil {
			return all, err
		}
		sample.wall = sample.end.Sub(begin).Seconds()
		all.add(sample)
	}
	return all, b.clear(ctx, from)
}

// attachMany starts many Pods at once over all nodes, and waits until their volumes are attached.
func (b *podsBench) attachMany(ctx context.Context, from volumeSource) (podsSample, error) {
	begin := time.Now()
	names := b.newNames(b.sizes.claims)
	err := each(len(names), func(i int) error { return b.makePod(ctx, from, names[i], onNode(b.Nodes[i%len(b.Nodes)].Name)) })
	if err != nil {
		return podsSample{}, err
	}
	sample, err := b.sample(ctx, from, begin, names)
	if err != nil {
		return sample, err
	}
	return sample, b.clear(ctx, from)
}

// setPaces has the driver that only waits take as long for the claims as ECS took for those of topodisk before.
func (b *podsBench) setPaces(from volumeSource, claims []string) error {
	if !from.paced {
		return nil
	}
	for i, claim := range claims {
		if err := writePace(b.pacesDir(), claim, b.paces[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *podsBench) usualDetach(ctx context.Context) error {
	return b.Simulator.SetSpans(ctx, map[string]time.Duration{"Detach": 4 * time.Second})
}

func (b *podsBench) newName() string {
	b.names++
	return fmt.Sprintf("pod-%d", b.names)
}

func (b *podsBench) newNames(n int) (names []string) {
	for range n {
		names = append(names, b.newName())
	}
	return names
}

// makePod makes a Pod and, before it, its claim.
func (b *podsBench) makePod(ctx context.Context, from volumeSource, name string, change func(*corev1.PodSpec)) error {
	if from.has() {
		if err := b.MakeClaim(ctx, lab.Claim(benchNamespace, name, from.class, "20Gi")); err != nil {
			return err
		}
	}
	pod := lab.Pod(benchNamespace, name, name)
	plain(&pod.Spec, from)
	change(&pod.Spec)
	return b.MakePod(ctx, pod)
}

// plain lets a Pod mount nothing but its one volume.
func plain(spec *corev1.PodSpec, from volumeSource) {
	spec.AutomountServiceAccountToken = ptr.To(false)
	if !from.has() {
		spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
}

func onNode(name string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{corev1.LabelHostname: name} }
}

// statefulSet is one whose Pods spread evenly over the nodes that are not cordoned.
func (b *podsBench) statefulSet(from volumeSource, replicas int) *appsv1.StatefulSet {
	set := lab.StatefulSet(benchNamespace, b.newName(), from.class, "20Gi", int32(replicas))
	honor := corev1.NodeInclusionPolicyHonor
	spec := &set.Spec.Template.Spec
	spec.Affinity = nil
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: set.Spec.Selector, NodeTaintsPolicy: &honor,
	}}
	plain(spec, from)
	if !from.has() {
		set.Spec.VolumeClaimTemplates = nil
	}
	return set
}

// makeSet makes a StatefulSet, and returns the names of its Pods when all run.
func (b *podsBench) makeSet(ctx context.Context, set *appsv1.StatefulSet) (names []string, err error) {
	begin := time.Now()
	if _, err := b.Client.AppsV1().StatefulSets(benchNamespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	for i := range *set.Spec.Replicas {
		names = append(names, fmt.Sprintf("%s-%d", set.Name, i))
	}
	_, err = b.awaitRunning(ctx, begin, names)
	return names, err
}

// cordon has no Pods come to the nodes that are chosen, and lets them come to the others.
func (b *podsBench) cordon(ctx context.Context, chosen func(lab.Node) bool) error {
	for _, n := range b.Nodes {
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, chosen(n))
		if _, err := b.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// clear deletes all that a scenario has made, and returns when nothing is left of it.
func (b *podsBench) clear(ctx context.Context, from volumeSource) error {
	now, all := metav1.DeleteOptions{}, metav1.ListOptions{}
	if err := b.Client.AppsV1().StatefulSets(benchNamespace).DeleteCollection(ctx, now, all); err != nil {
		return err
	}
	if err := b.Client.CoreV1().Pods(benchNamespace).DeleteCollection(ctx, now, all); err != nil {
		return err
	}
	if err := b.Client.CoreV1().PersistentVolumeClaims(benchNamespace).DeleteCollection(ctx, now, all); err != nil {
		return err
	}
	return b.Await(ctx, "nothing is left of the Pods", waitLimit, func(ctx context.Context) (bool, error) {
		pods, err := b.Client.CoreV1().Pods(benchNamespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil || len(pods.Items) > 0 || !from.has() {
			return err == nil && len(pods.Items) == 0, err
		}
		volumes, err := b.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil || len(volumes.Items) > 0 {
			return false, err
		}
		attachments, err := b.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err == nil && len(attachments.Items) == 0, err
	})
}
