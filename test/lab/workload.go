package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/test/lab/images"
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

// MakeClass makes a class.
func (l *Lab) MakeClass(ctx context.Context, class *storagev1.StorageClass) error {
	_, err := l.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	return err
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

// MakeClaim applies the changes and creates the claim.
func (l *Lab) MakeClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, change ...func(*corev1.PersistentVolumeClaim)) error {
	for _, f := range change {
		f(claim)
	}
	_, err := l.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	return err
}

// Pod returns a Pod that waits in a shell with a claim at /data, and ends at once when it is deleted.
func Pod(namespace, name, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: podSpec(corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}),
	}
}

// MakePod applies the changes and creates the Pod.
func (l *Lab) MakePod(ctx context.Context, pod *corev1.Pod, change ...func(*corev1.Pod)) error {
	for _, f := range change {
		f(pod)
	}
	_, err := l.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// podSpec runs what real nodes have.
func podSpec(volumes ...corev1.Volume) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		Containers: []corev1.Container{{
			Name: "app", Image: images.ShellName, ImagePullPolicy: corev1.PullNever,
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}},
		Volumes: volumes,
	}
}

// StatefulSet returns one whose Pods keep out of each other's zones and have a claim each, called data-<name>-<n>.
func StatefulSet(namespace, name, class, size string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	claim := Claim("", "data", class, size)
	spec := podSpec()
	spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey:   topology.WellKnownZoneKey,
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
		}},
	}}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			ServiceName:          name,
			Replicas:             &replicas,
			PodManagementPolicy:  appsv1.ParallelPodManagement,
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
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
	events, _ := l.Events(ctx, namespace, name) // there is an error to report already
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

// FindEvent returns an event of an object that has all of the texts in its reason and message; its error is what the events say.
func (l *Lab) FindEvent(ctx context.Context, namespace, name string, texts ...string) (corev1.Event, error) {
	events, err := l.Events(ctx, namespace, name)
	var said []string
	for _, e := range events {
		text := e.Reason + ": " + e.Message
		if !slices.ContainsFunc(texts, func(part string) bool { return !strings.Contains(text, part) }) {
			return e, nil
		}
		said = append(said, text)
	}
	return corev1.Event{}, errors.Join(err, fmt.Errorf("events say %q", said))
}

// ClearNamespace deletes StatefulSets, Pods and claims, and waits until no disk is left of them.
func (l *Lab) ClearNamespace(ctx context.Context, namespace string, limit time.Duration) error {
	now, all := metav1.DeleteOptions{}, metav1.ListOptions{}
	return errors.Join(
		l.Client.AppsV1().StatefulSets(namespace).DeleteCollection(ctx, now, all),
		l.Client.CoreV1().Pods(namespace).DeleteCollection(ctx, now, all),
		l.Client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, now, all),
		l.Await(ctx, "no disk is left of "+namespace, limit, func(ctx context.Context) (bool, error) {
			left, err := l.Simulator.Disks(ctx, namespace)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("left are %v", left)
			}
			return err == nil, err
		}))
}

// RunKubectl runs kubectl as the administrator in a namespace, with a text as its input, and returns what it prints.
func (l *Lab) RunKubectl(ctx context.Context, namespace, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.Kubectl, append([]string{"--kubeconfig=" + l.Kubeconfig, "--namespace=" + namespace}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// AwaitRunning waits until a Pod runs and returns it.
func (l *Lab) AwaitRunning(ctx context.Context, namespace, name string, limit time.Duration) (pod *corev1.Pod, err error) {
	err = l.Await(ctx, "Pod "+namespace+"/"+name+" is Running", limit, func(ctx context.Context) (bool, error) {
		pod, err = l.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	return pod, l.withEvents(ctx, err, namespace, name)
}

// IsReady says whether a Pod is ready.
func IsReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ZoneOf returns the zone of a node of the lab, empty if it has no such node.
func (l *Lab) ZoneOf(node string) string {
	if i := slices.IndexFunc(l.Nodes, func(n Node) bool { return n.Name == node }); i >= 0 {
		return l.Nodes[i].Zone
	}
	return ""
}

// Zones returns the lab's zones in the order of its nodes.
func (l *Lab) Zones() (zones []string) {
	for _, n := range l.Nodes {
		if !slices.Contains(zones, n.Zone) {
			zones = append(zones, n.Zone)
		}
	}
	return zones
}
