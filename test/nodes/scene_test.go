//go:build e2enodes

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
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
)

const (
	soon = 60 * time.Second  // for what takes a few seconds
	late = 150 * time.Second // for what waits for nodes or back-offs, or for many others
)

// scene is the stage of one test: a namespace of its own in the shared cluster.
type scene struct {
	*labtest.Scene
}

// newScene makes a namespace. When the test is over everything in it is deleted, and nothing may be left of it: no disk,
// no attachment, and on the nodes no device, mount or directory.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{labtest.New(t, cluster, "nodes")}
	begin := time.Now()
	t.Cleanup(func() {
		played := time.Since(begin)
		s.strike()
		t.Logf("%.1f s, and %.1f s to clear up", played.Seconds(), (time.Since(begin) - played).Seconds())
	})
	return s
}

// strike clears the stage and checks that nothing is left behind.
func (s *scene) strike() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*late)
	defer cancel()
	check := func(err error) {
		if err != nil {
			s.Errorf("clear up: %v", err)
		}
	}
	disks, err := s.Simulator.Disks(ctx, s.Namespace)
	check(err)
	_, err = s.kubectl(ctx, "", "delete", "volumesnapshots", "--all")
	check(err)
	check(s.ClearNamespace(ctx, s.Namespace, late))
	for _, d := range disks {
		check(s.Await(ctx, "nothing is left of "+d.ID, soon, func(context.Context) (bool, error) {
			left, err := s.traces(d.ID)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("left are %v", left)
			}
			return err == nil, err
		}))
	}
}

// traces are what there is of a disk on the machine: loop devices of its body, links to them, mounts, and directories of
// kubelets and of the driver.
func (s *scene) traces(id string) (found []string, err error) {
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, loop := range loops {
		if body, err := os.ReadFile(loop); err == nil && strings.Contains(string(body), id) {
			found = append(found, loop)
		}
	}
	for _, n := range s.RealNodes {
		mounts, err := n.Mounts(id)
		if err != nil {
			return nil, err
		}
		found = append(found, mounts...)
		for _, pattern := range []string{
			"/var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/" + id, "/var/lib/kubelet/pods/*/volumeDevices/kubernetes.io~csi/" + id,
			"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/" + id, "/var/lib/kubelet/plugins/" + lab.DriverName + "/*/" + id,
		} {
			paths, err := filepath.Glob(n.HostPath(pattern))
			if err != nil {
				return nil, err
			}
			found = append(found, paths...)
		}
		links, err := filepath.Glob(filepath.Join(n.Links(), "*"+strings.TrimPrefix(id, "d-")+"*"))
		if err != nil {
			return nil, err
		}
		found = append(found, links...)
	}
	return found, nil
}

// class makes a StorageClass that goes with the scene and returns its name.
func (s *scene) class(parameters map[string]string) string {
	s.Helper()
	return s.Class(storagev1.VolumeBindingWaitForFirstConsumer, parameters, labtest.Grows)
}

// essd is a class of disks with a file system.
func (s *scene) essd(filesystem string) string {
	return s.class(map[string]string{"type": "cloud_essd", "csi.storage.k8s.io/fstype": filesystem})
}

func (s *scene) claim(name, class string, change ...func(*corev1.PersistentVolumeClaim)) {
	s.Helper()
	s.Claim(name, class, "20Gi", change...)
}

// asBlock gives a Pod its claim as the device /dev/data.
func asBlock(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].VolumeMounts = nil
		pod.Spec.Containers[i].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	}
}

func (s *scene) running(pod string, limit time.Duration) *corev1.Pod {
	s.Helper()
	p, err := s.AwaitRunning(s.Context(), s.Namespace, pod, limit)
	s.Must(err)
	return p
}

// runs makes a Pod and waits until it runs.
func (s *scene) runs(name, claim string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.Helper()
	s.Pod(name, claim, change...)
	return s.running(name, late)
}

// remove deletes Pods and waits until they are gone.
func (s *scene) remove(pods ...string) {
	s.Helper()
	for _, pod := range pods {
		s.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(s.Context(), pod, metav1.DeleteOptions{}))
	}
	for _, pod := range pods {
		s.awaitGone(pod, late)
	}
}

func (s *scene) awaitGone(pod string, limit time.Duration) {
	s.Helper()
	s.WaitFor("Pod "+pod+" is gone", limit, func(ctx context.Context) (bool, error) {
		p, err := s.Client.CoreV1().Pods(s.Namespace).Get(ctx, pod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err == nil {
			err = fmt.Errorf("it is %s on %s", p.Status.Phase, p.Spec.NodeName)
		}
		return false, err
	})
}

// sh runs a script in a Pod and returns what it says.
func (s *scene) sh(pod, script string) string {
	s.Helper()
	out, err := s.try(pod, script)
	s.Must(err)
	return out
}

func (s *scene) try(pod, script string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), late)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Kubectl, "--kubeconfig="+s.Kubeconfig, "--namespace="+s.Namespace, "exec", pod, "--", "sh", "-c", script)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("in Pod %s: %s: %w: %s", pod, script, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// write writes so many MiB of random bytes to a file of a Pod and returns their checksum.
func (s *scene) write(pod, file string, mib int) string {
	s.Helper()
	return s.sh(pod, fmt.Sprintf("dd if=/dev/urandom of=%[1]s bs=1M count=%[2]d 2>/dev/null && sync && sha256sum < %[1]s", file, mib))
}

// holds checks that a file of a Pod has a checksum.
func (s *scene) holds(pod, file, sum string) {
	s.Helper()
	if got := s.sh(pod, "sha256sum < "+file); got != sum {
		s.Errorf("%s of Pod %s has checksum %s, want %s", file, pod, got, sum)
	}
}

// bound returns the claim's disk.
func (s *scene) bound(claim string) string {
	s.Helper()
	b, err := s.AwaitBound(s.Context(), s.Namespace, claim, soon)
	s.Must(err)
	return b.Disk()
}

// attachedTo returns the instances that ECS has a disk attached to.
func (s *scene) attachedTo(id string) []string {
	s.Helper()
	state, err := s.Simulator.State(s.Context())
	s.Must(err)
	i := slices.IndexFunc(state.Disks, func(d ecssim.DiskState) bool { return d.ID == id })
	if i < 0 {
		s.Fatalf("ECS has no disk %s", id)
	}
	var instances []string
	for _, a := range state.Disks[i].Attachments {
		instances = append(instances, a.Instance)
	}
	return instances
}

// grow asks for a larger claim.
func (s *scene) grow(claim, size string) {
	s.Helper()
	s.PatchClaim(claim, fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
}

// awaitDisk waits until the PersistentVolume of a claim says that its disk has grown.
func (s *scene) awaitDisk(claim, size string) {
	s.Helper()
	want := resource.MustParse(size)
	s.WaitFor("the disk of claim "+claim+" has "+size, late, func(ctx context.Context) (bool, error) {
		pv, err := s.Client.CoreV1().PersistentVolumes().Get(ctx, s.bound(claim), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if got := pv.Spec.Capacity[corev1.ResourceStorage]; got.Cmp(want) < 0 {
			return false, fmt.Errorf("it has %s; %s", got.String(), s.eventsOf(claim))
		}
		return true, nil
	})
}

// awaitCapacity waits until a claim says that its file system has grown.
func (s *scene) awaitCapacity(claim, size string) {
	s.Helper()
	want := resource.MustParse(size)
	s.WaitFor("claim "+claim+" has "+size, late, func(ctx context.Context) (bool, error) {
		c, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		got := c.Status.Capacity[corev1.ResourceStorage]
		if got.Cmp(want) < 0 {
			return false, fmt.Errorf("it has %s; %s", got.String(), s.eventsOf(claim))
		}
		return true, nil
	})
}

// gib returns the size in GiB of the file system at /data of a Pod.
func (s *scene) gib(pod string) float64 {
	s.Helper()
	var blocks float64
	_, err := fmt.Sscan(s.sh(pod, "df -k /data | tail -1 | awk '{print $2}'"), &blocks)
	s.Must(err)
	return blocks / (1 << 20)
}

// says reports whether an event of an object has a text; its error is what they say instead.
func (s *scene) says(name, text string) (bool, error) {
	_, err := s.FindEvent(s.Context(), s.Namespace, name, text)
	return err == nil, err
}

// eventsOf joins what the events of an object say.
func (s *scene) eventsOf(name string) string {
	s.Helper()
	events, err := s.Events(s.Context(), s.Namespace, name)
	s.Must(err)
	var said []string
	for _, e := range events {
		said = append(said, e.Reason+": "+e.Message)
	}
	return strings.Join(said, "\n")
}

// kubectl runs kubectl in the scene's namespace, with a text as its input.
func (s *scene) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	return s.RunKubectl(ctx, s.Namespace, input, args...)
}
