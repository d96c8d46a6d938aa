package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/topodisk/topodisk/topology"
)

// SelectedNode is the annotation by which the scheduler tells a provisioner which node a claim's Pod goes to.
const SelectedNode = "volume.kubernetes.io/selected-node"

// Class returns a StorageClass of the lab's driver. Without zones, a disk may be in any.
func Class(name string, mode storagev1.VolumeBindingMode, parameters map[string]string, zones ...string) *storagev1.StorageClass {
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: name},
		Provisioner:       DriverName,
		Parameters:        parameters,
		VolumeBindingMode: &mode,
	}
	if len(zones) > 0 {
		class.AllowedTopologies = []corev1.TopologySelectorTerm{{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: topology.WellKnownZoneKey, Values: zones}},
		}}
	}
	return class
}

// Claim returns a claim of that size, such as 20Gi.
func Claim(namespace, name, class, size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}
}

// Pod returns a Pod that mounts a claim.
func Pod(namespace, name, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container()},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
}

func container() corev1.Container {
	return corev1.Container{
		Name:         "app",
		Image:        "registry.invalid/app", // nothing ever pulls it
		VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
	}
}

// StatefulSet returns one whose Pods keep out of each other's zones and have a claim each, called data-<name>-<n>.
func StatefulSet(namespace, name, class, size string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	claim := Claim("", "data", class, size)
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			ServiceName:          name,
			Replicas:             &replicas,
			PodManagementPolicy:  appsv1.ParallelPodManagement,
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{container()},
					Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
							TopologyKey:   topology.WellKnownZoneKey,
							LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
						}},
					}},
				},
			},
		},
	}
}

// Bound is a claim with its volume.
type Bound struct {
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
}

// Disk is the ID of the disk.
func (b Bound) Disk() string { return b.Volume.Spec.CSI.VolumeHandle }

// AwaitBound waits until a claim is Bound. Its error shows what the claim's events say.
func (l *Lab) AwaitBound(ctx context.Context, namespace, name string, limit time.Duration) (b Bound, err error) {
	err = l.Await(ctx, "claim "+namespace+"/"+name+" is Bound", limit, func(ctx context.Context) (bool, error) {
		if b.Claim, err = l.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		if b.Claim.Status.Phase != corev1.ClaimBound {
			return false, nil
		}
		b.Volume, err = l.Client.CoreV1().PersistentVolumes().Get(ctx, b.Claim.Spec.VolumeName, metav1.GetOptions{})
		return err == nil, err
	})
	if err == nil && (b.Volume.Spec.CSI == nil || b.Volume.Spec.CSI.Driver != DriverName) {
		err = fmt.Errorf("claim %s/%s is bound to %s, which is no volume of %s", namespace, name, b.Volume.Name, DriverName)
	}
	return b, l.withEvents(ctx, err, namespace, name)
}

// withEvents adds to an error what the events of an object say.
func (l *Lab) withEvents(ctx context.Context, err error, namespace, name string) error {
	if err == nil {
		return nil
	}
	events, listErr := l.Events(ctx, namespace, name)
	if listErr != nil {
		return err
	}
	for _, e := range events {
		err = fmt.Errorf("%w\n    event %s (%s, %d times): %s", err, e.Reason, e.Source.Component, max(e.Count, 1), e.Message)
	}
	return err
}

// Events returns the events of an object by its name, the oldest first.
func (l *Lab) Events(ctx context.Context, namespace, name string) ([]corev1.Event, error) {
	list, err := l.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return list.Items, nil
}

// AwaitRunning waits until a Pod runs and returns it.
func (l *Lab) AwaitRunning(ctx context.Context, namespace, name string, limit time.Duration) (pod *corev1.Pod, err error) {
	err = l.Await(ctx, "Pod "+namespace+"/"+name+" is Running", limit, func(ctx context.Context) (bool, error) {
		pod, err = l.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	return pod, l.withEvents(ctx, err, namespace, name)
}

// ZoneOf returns the zone of a node of the lab, empty if it has no such node.
func (l *Lab) ZoneOf(node string) string {
	for _, n := range l.Nodes {
		if n.Name == node {
			return n.Zone
		}
	}
	return ""
}

// Zones returns the lab's zones in the order of its nodes.
func (l *Lab) Zones() []string { return zonesOf(l.Nodes) }

// AffinityZones returns the zones that a volume's node affinity allows, sorted.
func AffinityZones(pv *corev1.PersistentVolume) []string {
	var zones []string
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == topology.WellKnownZoneKey || e.Key == topology.ZoneKey {
				zones = append(zones, e.Values...)
			}
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// Selections follows which nodes the scheduler selects for the claims of a namespace, and which are taken back.
type Selections struct {
	watch watch.Interface
	ended chan struct{}

	mu      sync.Mutex
	byPVC   map[string][]string // a node per selection, "" for one that was taken back
	stopped bool                // by Stop: what the watch says from then on is about its own end
	err     error
}

// FollowSelections starts to follow; Stop ends it.
func (l *Lab) FollowSelections(ctx context.Context, namespace string) (*Selections, error) {
	claims := l.Client.CoreV1().PersistentVolumeClaims(namespace)
	list, err := claims.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	w, err := FollowFrom(ctx, list.ResourceVersion, claims.Watch)
	if err != nil {
		return nil, err
	}
	s := &Selections{watch: w, byPVC: map[string][]string{}, ended: make(chan struct{})}
	go s.follow()
	return s, nil
}

// FollowFrom watches from a resource version on, and goes on where it was when the API server ends a watch, as it does with
// one that falls behind.
func FollowFrom(ctx context.Context, resourceVersion string, watcher cache.WatchFuncWithContext) (watch.Interface, error) {
	return toolswatch.NewRetryWatcherWithContext(ctx, resourceVersion, &cache.ListWatch{WatchFuncWithContext: watcher})
}

func (s *Selections) follow() {
	defer close(s.ended)
	for event := range s.watch.ResultChan() {
		s.handle(event)
	}
}

func (s *Selections) handle(event watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch object := event.Object.(type) {
	case *corev1.PersistentVolumeClaim:
		s.note(object)
	case *metav1.Status:
		if !s.stopped {
			s.err = fmt.Errorf("watch of claims: %s", object.Message)
		}
	}
}

// note adds the selection of a claim if it is another than the last one.
func (s *Selections) note(claim *corev1.PersistentVolumeClaim) {
	seen, node := s.byPVC[claim.Name], claim.Annotations[SelectedNode]
	last := ""
	if len(seen) > 0 {
		last = seen[len(seen)-1]
	}
	if node != last {
		s.byPVC[claim.Name] = append(seen, node)
	}
}

// Of returns the nodes selected for a claim, in their order, with "" for each time that one was taken back.
func (s *Selections) Of(claim string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.byPVC[claim])
}

// Rescheduled returns the claims that had a selection taken back, sorted.
func (s *Selections) Rescheduled() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, seen := range s.byPVC {
		if slices.Contains(seen, "") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

// Stop ends the watch and returns an error if it broke off before, for then selections may be missing.
func (s *Selections) Stop() error {
	s.mu.Lock()
	s.stopped = true
	broken := s.err
	select {
	case <-s.ended:
		broken = cmp.Or(broken, errors.New("the watch of claims ended early"))
	default:
	}
	s.mu.Unlock()
	s.watch.Stop()
	<-s.ended
	return broken
}
