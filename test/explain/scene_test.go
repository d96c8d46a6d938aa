//go:build e2eexplain

package explain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/test/golden"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
	"github.com/topodisk/topodisk/topology"
)

// The nodes of the lab: two in zone h, one each in i and j, and one in zone h whose instance type takes no disk of the ESSD series.
const (
	nodeH, otherH, nodeI, nodeJ = "node-h1", "node-h2", "node-i1", "node-j1"
	oldNode                     = "node-h3"
	zoneH, zoneI, zoneJ         = "cn-hangzhou-h", "cn-hangzhou-i", "cn-hangzhou-j"
)

const (
	soon = 90 * time.Second
	late = 200 * time.Second // for what waits for the end of a timeout or for a node's death
)

const (
	waits  = storagev1.VolumeBindingWaitForFirstConsumer
	atOnce = storagev1.VolumeBindingImmediate
)

// scene is a namespace in which one situation is brought about.
type scene struct {
	*labtest.Scene
}

// newScene makes a namespace. When the test is over the cloud is in order again, everything in the namespace is deleted, and no disk
// may be left of it.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{labtest.New(t, cluster, "why")}
	t.Cleanup(s.clear)
	return s
}

func (s *scene) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*late)
	defer cancel()
	s.Check("clear up", s.Simulator.Mend(ctx))
	s.Check("clear up", ignoreNotFound(s.ClearNamespace(ctx, s.Namespace, late)))
}

// afterwards has something undone when the test is over, before the namespace is cleared.
func (s *scene) afterwards(what string, undo func(context.Context) error) {
	s.Afterwards(what, 2*late, func(ctx context.Context) error { return ignoreNotFound(undo(ctx)) })
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// why returns what the program says of an object.
func (s *scene) why(ctx context.Context, subject explain.Ref, more ...string) (v golden.Verdict, err error) {
	args := append([]string{"why", subject.Kind, subject.Name, "--namespace", s.Namespace, "--kubeconfig", s.Kubeconfig, "--output", "json"}, more...)
	cmd := exec.CommandContext(ctx, built.Plugin, args...) //nolint:gosec // the program under test
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && out.Len() > 0 {
		err = nil // an exit code says that the object waits
	}
	if err != nil {
		return v, fmt.Errorf("%w: %s", err, errOut.String())
	}
	return golden.ParseVerdict(out.Bytes())
}

// dump writes the facts that a verdict rests on.
func (s *scene) dump(subject explain.Ref, name string) {
	s.Helper()
	if *dumps == "" {
		return
	}
	_, err := s.why(s.Context(), subject, "--dump", filepath.Join(*dumps, name+".yaml"))
	s.Must(err)
}

func (s *scene) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	return s.RunKubectl(ctx, s.Namespace, input, args...)
}

// apply creates objects of the namespace, or of the cluster; those of the cluster go when the test is over.
func (s *scene) apply(manifest string) {
	s.Helper()
	_, err := s.kubectl(s.Context(), manifest, "apply", "--filename", "-")
	s.Must(err)
}

func (s *scene) class(mode storagev1.VolumeBindingMode, kind string, change ...func(*storagev1.StorageClass)) string {
	s.Helper()
	return s.Class(mode, map[string]string{"type": kind}, append([]func(*storagev1.StorageClass){labtest.Grows}, change...)...)
}

func onlyIn(zone string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		c.AllowedTopologies = lab.Class("", waits, nil, zone).AllowedTopologies
	}
}

func (s *scene) claim(name, class string, change ...func(*corev1.PersistentVolumeClaim)) {
	s.Helper()
	s.Claim(name, class, "20Gi", change...)
}

func (s *scene) bound(claim string) lab.Bound {
	s.Helper()
	b, err := s.AwaitBound(s.Context(), s.Namespace, claim, late)
	s.Must(err)
	return b
}

// runs makes a Pod and waits until it runs.
func (s *scene) runs(name, claim string, change ...func(*corev1.Pod)) {
	s.Helper()
	s.Pod(name, claim, change...)
	_, err := s.AwaitRunning(s.Context(), s.Namespace, name, late)
	s.Must(err)
}

// attachment returns the VolumeAttachment of a volume.
func (s *scene) attachment(ctx context.Context, volume string) (*storagev1.VolumeAttachment, error) {
	list, err := s.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, a := range list.Items {
		if name := a.Spec.Source.PersistentVolumeName; name != nil && *name == volume {
			return &a, nil
		}
	}
	return nil, apierrors.NewNotFound(storagev1.Resource("volumeattachments"), volume)
}

func inZone(zone string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{topology.WellKnownZoneKey: zone} }
}

// patchNode changes a Node until the test is over, when the second patch undoes it.
func (s *scene) patchNode(name, patch, undo string) {
	s.Helper()
	apply := func(ctx context.Context, patch string) error {
		_, err := s.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	s.Must(apply(s.Context(), patch))
	s.afterwards("change "+name+" back", func(ctx context.Context) error { return apply(ctx, undo) })
}

// cordon keeps new Pods off a node until the test is over. The taint comes after the scheduler was told.
func (s *scene) cordon(name string) {
	s.Helper()
	s.patchNode(name, `{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`)
	s.WaitFor(name+" has the taint of a node that takes no Pods", soon, func(ctx context.Context) (bool, error) {
		n, err := s.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable }), err
	})
}

func (s *scene) fault(f ecssim.Fault) {
	s.Helper()
	s.Must(s.Simulator.AddFault(s.Context(), f))
}

// told waits until an event of an object says something.
func (s *scene) told(subject explain.Ref, message string) {
	s.Helper()
	s.WaitFor("an event of "+subject.Name+" says "+message, late, func(ctx context.Context) (bool, error) {
		_, err := s.FindEvent(ctx, s.Namespace, subject.Name, message)
		return err == nil, err
	})
}

func pod(name string) explain.Ref    { return explain.Ref{Kind: "pod", Name: name} }
func claim(name string) explain.Ref  { return explain.Ref{Kind: "pvc", Name: name} }
func volume(name string) explain.Ref { return explain.Ref{Kind: "pv", Name: name} }
func node(name string) explain.Ref   { return explain.Ref{Kind: "node", Name: name} }

func attachment(name string) explain.Ref {
	return explain.Ref{Kind: "volumeattachment", Name: name}
}
