//go:build e2enodes

package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
)

// onlyOnePod makes a claim ReadWriteOncePod.
func onlyOnePod(c *corev1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
}

// A kubelet that was restarted publishes the volumes of its Pods again, and starts no container before.
func TestOnePodKeepsItsVolumeOverAKubeletRestart(t *testing.T) {
	s := newScene(t)
	class := s.essd("ext4")
	s.claim("files", class, onlyOnePod)
	s.claim("raw", class, onlyOnePod, asBlockClaim)
	s.runs("files", "files", labtest.OnNode(here), func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].SubPath = "sub" })
	s.runs("raw", "raw", labtest.OnNode(here), asBlock)
	s.sh("files", "echo kept > /data/file && sync")
	s.sh("raw", "echo kept | dd of=/dev/data conv=notrunc 2>/dev/null && sync")

	node := s.RealNode(here)
	node.StopProgram(lab.Kubelet, true)
	s.Must(node.StartProgram(s.Context(), lab.Kubelet))
	for name, read := range map[string]string{"files": "cat /data/file", "raw": "head -c 4 /dev/data"} {
		s.restarted(name)
		if got := s.sh(name, read); got != "kept" {
			t.Errorf("Pod %s reads %q", name, got)
		}
	}
	s.remove("raw")
	s.remove("files")
	s.runs("next", "files", labtest.OnNode(there))
	if got := s.sh("next", "cat /data/sub/file"); got != "kept" {
		t.Errorf("the next Pod reads %q", got)
	}
}

// restarted ends the container of a Pod and waits until the kubelet has started it again, which it does when it has
// published the Pod's volumes.
func (s *scene) restarted(pod string) {
	s.Helper()
	before, err := s.Client.CoreV1().Pods(s.Namespace).Get(s.Context(), pod, metav1.GetOptions{})
	s.Must(err)
	const startTime = "cut -d' ' -f22 /proc/1/stat" // of the container's first process
	var started string
	s.WaitFor("the container of Pod "+pod+" answers", soon, func(context.Context) (bool, error) {
		var err error
		started, err = s.try(pod, startTime)
		return err == nil, err
	})
	s.WaitFor("the container of Pod "+pod+" can be ended", soon, func(context.Context) (bool, error) {
		_, err := s.try(pod, "[ $("+startTime+") != "+started+" ] || kill 1") // the answer may be lost with the container
		return err == nil, err
	})
	s.WaitFor("Pod "+pod+" runs again", late, func(ctx context.Context) (bool, error) {
		p, err := s.Client.CoreV1().Pods(s.Namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if p.UID != before.UID {
			return false, fmt.Errorf("it is another Pod")
		}
		status := p.Status.ContainerStatuses[0]
		if status.RestartCount == before.Status.ContainerStatuses[0].RestartCount || status.State.Running == nil {
			return false, fmt.Errorf("restarts: %d; %s", status.RestartCount, s.eventsOf(pod))
		}
		return true, nil
	})
}

// The driver that was on the node before binds the device of a block volume below its staging path (D3). A volume that it
// staged is detached when its Pod goes, and its bind goes with it.
func TestABlockVolumeOfAnotherDriverIsDetached(t *testing.T) {
	s := newScene(t)
	s.claim("raw", s.essd("ext4"), asBlockClaim)
	pod := s.runs("raw", "raw", labtest.OnNode(here), asBlock)
	id, node := s.bound("raw"), s.RealNode(here)
	const devices = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices"
	bind := fmt.Sprintf("touch %[1]s/staging/%[2]s/%[2]s && mount --bind %[1]s/publish/%[2]s/%[3]s %[1]s/staging/%[2]s/%[2]s", devices, id, pod.UID)
	if out, err := node.Exec(s.Context(), "sh", "-c", bind); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, program := range []string{lab.NodePlugin, lab.Kubelet} {
		node.StopProgram(program, true)
		s.Must(node.StartProgram(s.Context(), program))
	}
	s.restarted("raw")
	s.remove("raw")
	s.WaitFor("the disk is detached", late, func(context.Context) (bool, error) {
		at := s.attachedTo(id)
		return len(at) == 0, nil
	})
	left, err := node.Mounts(id)
	if err != nil || len(left) > 0 {
		t.Errorf("left are the mounts %v, %v", left, err)
	}
	if _, err := os.Lstat(node.HostPath(devices + "/staging/" + id)); !os.IsNotExist(err) {
		t.Errorf("the staging path is there, %v", err)
	}
	s.runs("next", "raw", labtest.OnNode(there), asBlock)
}
