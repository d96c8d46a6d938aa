package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// whyLimit is how long `kubectl topodisk why` may take, in seconds.
const whyLimit = 2

// whyScale is how large the cluster is.
type whyScale struct{ nodes, volumes, pods, runs int }

var (
	whyAll = whyScale{nodes: 5000, volumes: 20000, pods: 30000, runs: 7}
	whyFew = whyScale{nodes: 60, volumes: 100, pods: 200, runs: 1}
)

// benchWhy measures `kubectl topodisk why` on a real API server that is full.
func benchWhy(ctx context.Context, root string, s whyScale, write string) (err error) {
	dirs, err := programs.Default.Build(ctx, root, os.Stdout)
	if err != nil {
		return err
	}
	program := filepath.Join(root, ".build", "run", "kubectl-topodisk")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/kubectl-topodisk")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build kubectl-topodisk: %w", err)
	}
	l, err := lab.Start(ctx, lab.Options{Root: root, Programs: dirs, Bare: true,
		Controllers: slices.DeleteFunc(slices.Clone(controllers), func(name string) bool { return name == binder })})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	if l.Client, err = unlimitedClient(l.Kubeconfig); err != nil {
		return err
	}
	if err := each(spaces, func(i int) error { return l.MakeNamespace(ctx, spaceOf(i)) }); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.fill(ctx, l.Client); err != nil {
		return err
	}
	fmt.Printf("  (%d nodes, %d PVs with VolumeAttachments and %d Pods took %s to write)\n", s.nodes, s.volumes, s.pods, time.Since(begin).Round(time.Second))
	for _, pod := range []string{"wide", "narrow"} {
		if err := awaitJudged(ctx, l, pod); err != nil {
			return err
		}
	}
	var rows []whyRow
	for _, subject := range []struct{ what, kind, name string }{
		{"a Pod that a third of the nodes may take", "pod", "wide"}, {"a Pod that 60 nodes may take", "pod", "narrow"},
		{"a bound claim", "pvc", "wide"}, {"a PersistentVolume", "pv", volumeNamed(0)},
		{"a node", "node", nodeNamed(0)}, {"a VolumeAttachment", "volumeattachment", "va-0"},
	} {
		row, err := s.measure(ctx, program, l.Kubeconfig, subject.kind, subject.name)
		if err != nil {
			return err
		}
		row.what = subject.what
		fmt.Println(row.cells())
		rows = append(rows, row)
	}
	if write == "" {
		return nil
	}
	if err := writeSection(write, "why", s.markdown(rows)); err != nil {
		return err
	}
	fmt.Println("wrote", write)
	return nil
}

// whyRow is what the runs for one subject took, in seconds.
type whyRow struct {
	what      string
	wall, cpu []float64
}

func (r whyRow) cells() string {
	return fmt.Sprintf("| %s | %.2f s | %.2f to %.2f s | %.2f s | <= %d s | %s |", r.what, median(r.wall), slices.Min(r.wall), slices.Max(r.wall), median(r.cpu), whyLimit, verdict(median(r.wall) <= whyLimit))
}

// markdown is this benchmark's part of the page.
func (s whyScale) markdown(rows []whyRow) string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	return render("why", map[string]any{
		"Nodes": s.nodes, "Volumes": s.volumes, "Pods": s.pods, "Rows": lines, "Runs": s.runs, "Spaces": spaces, "Measured": measured("why", nil),
	})
}

// awaitJudged waits until the scheduler has found no room for a Pod.
func awaitJudged(ctx context.Context, l *lab.Lab, name string) error {
	return l.Await(ctx, "the scheduler has looked for a node for "+name, waitLimit, func(ctx context.Context) (bool, error) {
		pod, err := l.Client.CoreV1().Pods(benchNamespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(pod.Status.Conditions,
			func(c corev1.PodCondition) bool { return strings.Contains(c.Message, "Insufficient cpu") }), err
	})
}

// measure runs the program several times.
func (s whyScale) measure(ctx context.Context, program, kubeconfig, kind, name string) (row whyRow, err error) {
	for range s.runs {
		cmd := exec.CommandContext(ctx, program, "why", kind, name, "--namespace="+benchNamespace, "--kubeconfig="+kubeconfig, "--driver-name="+benchDriver)
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() == 2) {
			return row, fmt.Errorf("why %s %s: %w\n%s", kind, name, err, out)
		}
		row.wall = append(row.wall, time.Since(begin).Seconds())
		row.cpu = append(row.cpu, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
		if len(row.wall) == 1 {
			fmt.Printf("%s", out)
		}
	}
	return row, nil
}

// spaces is over how many namespaces Pods and claims are spread.
const spaces = 20

// spaceOf returns the namespace of a Pod and its claim, by their number.
func spaceOf(i int) string {
	if i%spaces == 0 {
		return benchNamespace
	}
	return fmt.Sprintf("%s-%d", benchNamespace, i%spaces)
}

func volumeNamed(i int) string { return fmt.Sprintf("d-bp1%09d", i) }

// fill makes the cluster. Pod wide may run on the nodes of a zone by its volume, narrow on 60 of them; no node has room for either.
func (s whyScale) fill(ctx context.Context, client kubernetes.Interface) error {
	class := lab.Class("bench", storagev1.VolumeBindingWaitForFirstConsumer, nil)
	class.Provisioner = benchDriver
	if _, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	return errors.Join(
		each(s.nodes, func(i int) error { return addNodeWithRoom(ctx, client, i) }),
		each(s.volumes, func(i int) error { return s.addAttached(ctx, client, i) }),
		each(s.pods, func(i int) error { return s.addRunning(ctx, client, i) }),
		addWaiting(ctx, client, "wide", nil),
		addWaiting(ctx, client, "narrow", map[string]string{"few": "yes"}),
	)
}

func addNodeWithRoom(ctx context.Context, client kubernetes.Interface, i int) error {
	node, csiNode := nodeOf(i)
	if i%3 == 0 && i < 180 {
		node.Labels["few"] = "yes"
	}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	count := int32(16)
	csiNode.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	_, err := client.StorageV1().CSINodes().Create(ctx, csiNode, metav1.CreateOptions{})
	return err
}

// addAttached makes a PersistentVolume and a VolumeAttachment.
func (s whyScale) addAttached(ctx context.Context, client kubernetes.Interface, i int) error {
	claim := lab.Claim(spaceOf(i), fmt.Sprintf("data-%d", i), "bench", "20Gi")
	claim.Spec.VolumeName = volumeNamed(i)
	if _, err := client.CoreV1().PersistentVolumes().Create(ctx, boundVolume(claim), metav1.CreateOptions{}); err != nil {
		return err
	}
	name := volumeNamed(i)
	_, err := client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("va-%d", i)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: benchDriver, NodeName: nodeNamed(i % s.nodes),
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}},
	}, metav1.CreateOptions{})
	return err
}

// addRunning makes a Pod that is on a node, most of them with a claim.
func (s whyScale) addRunning(ctx context.Context, client kubernetes.Interface, i int) error {
	pod := podAsking(spaceOf(i), fmt.Sprintf("app-%d", i), "1")
	pod.Spec.NodeName = nodeNamed(i % s.nodes)
	if i < s.volumes {
		useClaim(pod, fmt.Sprintf("data-%d", i))
	}
	_, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// addWaiting makes a Pod that no node has room for, with a bound claim.
func addWaiting(ctx context.Context, client kubernetes.Interface, name string, selector map[string]string) error {
	claim := lab.Claim(benchNamespace, name, "bench", "20Gi")
	claim.Spec.VolumeName = "d-of-" + name
	claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	made, err := client.CoreV1().PersistentVolumeClaims(benchNamespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	volume, err := client.CoreV1().PersistentVolumes().Create(ctx, boundVolume(made), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	volume.Status.Phase, made.Status.Phase = corev1.VolumeBound, corev1.ClaimBound
	if _, err := client.CoreV1().PersistentVolumes().UpdateStatus(ctx, volume, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err := client.CoreV1().PersistentVolumeClaims(benchNamespace).UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	pod := podAsking(benchNamespace, name, "8")                                       // all that an empty node has
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // no kubelet says that the nodes are ready
	pod.Spec.NodeSelector = selector
	useClaim(pod, name)
	_, err = client.CoreV1().Pods(benchNamespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func podAsking(namespace, name, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "bench"}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "main", Image: "registry.invalid/team/service:1.2.3",
			Env: []corev1.EnvVar{{Name: "MODE", Value: "production"}, {Name: "LEVEL", Value: "info"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")}},
		}},
	}}
}

func useClaim(pod *corev1.Pod, claim string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
}
