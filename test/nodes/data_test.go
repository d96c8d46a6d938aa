//go:build e2enodes

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
)

// The two nodes of the first zone.
const (
	here  = "node-h1"
	there = "node-h2"
)

func TestDataIsThereOnAnotherNode(t *testing.T) {
	t.Parallel()
	for _, filesystem := range []string{"ext4", "xfs"} {
		t.Run(filesystem, func(t *testing.T) {
			s := newScene(t)
			s.claim("data", s.essd(filesystem))
			s.runs("writes", "data", labtest.OnNode(here))
			if got := s.sh("writes", "mount | grep ' /data '"); !strings.Contains(got, "type "+filesystem) {
				t.Errorf("mounted is %q, want %s", got, filesystem)
			}
			sum := s.write("writes", "/data/file", 50)
			s.remove("writes")
			s.runs("reads", "data", labtest.OnNode(there))
			s.holds("reads", "/data/file", sum)
		})
	}
}

func TestStatefulSetOverThreeZones(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	set := lab.StatefulSet(s.Namespace, "db", s.essd("ext4"), "20Gi", 3)
	_, err := s.Client.AppsV1().StatefulSets(s.Namespace).Create(s.Context(), set, metav1.CreateOptions{})
	s.Must(err)
	sums, zones := map[string]string{}, map[string]bool{}
	for i := range 3 {
		name := fmt.Sprintf("db-%d", i)
		zones[s.ZoneOf(s.running(name, late).Spec.NodeName)] = true
		sums[name] = s.write(name, "/data/file", 10)
	}
	if len(zones) != 3 {
		t.Errorf("the Pods are in zones %v, want three", zones)
	}
	before := map[string]string{}
	for name := range sums {
		p, err := s.Client.CoreV1().Pods(s.Namespace).Get(s.Context(), name, metav1.GetOptions{})
		s.Must(err)
		before[name] = string(p.UID)
		s.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(s.Context(), name, metav1.DeleteOptions{}))
	}
	for name, sum := range sums {
		s.WaitFor(name+" runs anew", late, func(ctx context.Context) (bool, error) {
			p, err := s.Client.CoreV1().Pods(s.Namespace).Get(ctx, name, metav1.GetOptions{})
			return err == nil && string(p.UID) != before[name] && p.Status.Phase == corev1.PodRunning, err
		})
		s.holds(name, "/data/file", sum)
	}
}

func asBlockClaim(c *corev1.PersistentVolumeClaim) {
	block := corev1.PersistentVolumeBlock
	c.Spec.VolumeMode = &block
}

func TestRawBlock(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.claim("raw", s.class(map[string]string{"type": "cloud_essd"}), asBlockClaim)
	s.runs("writes", "raw", labtest.OnNode(here), asBlock)
	if got := s.sh("writes", "blockdev --getsize64 /dev/data"); got != "21474836480" {
		t.Errorf("the device has %s bytes, want 20 GiB", got)
	}
	// At its beginning and at its end.
	for _, at := range []int{0, 20479} {
		s.sh("writes", fmt.Sprintf("echo block-%[1]d | dd of=/dev/data bs=1M seek=%[1]d conv=notrunc 2>/dev/null && sync", at))
	}
	s.remove("writes")
	s.runs("reads", "raw", labtest.OnNode(there), asBlock)
	for _, at := range []int{0, 20479} {
		want := fmt.Sprintf("block-%d", at)
		if got := s.sh("reads", fmt.Sprintf("dd if=/dev/data bs=1M skip=%d count=1 2>/dev/null | head -c %d", at, len(want))); got != want {
			t.Errorf("at %d MiB is %q, want %q", at, got, want)
		}
	}
}

func TestTheFileSystemOfTheOnlyPartitionIsTheVolume(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	class := s.essd("ext4")
	partitioned := func(name, table string) string {
		s.claim(name, class, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": here} // without a Pod
		})
		id := s.bound(name)
		body := filepath.Join(s.Dir, "bodies", id)
		files := t.TempDir()
		s.Must(os.WriteFile(filepath.Join(files, "file"), []byte("kept\n"), 0o600))
		s.tool(table, "sfdisk", "--quiet", body)
		s.tool("", "mkfs.ext4", "-q", "-F", "-d", files, "-E", "offset=1048576", body, "1g") // where the first partition begins
		return id
	}
	one, two := partitioned("one", "label: gpt\n,\n"), partitioned("two", "label: gpt\n,2G\n,\n")

	s.runs("one", "one", labtest.OnNode(here))
	if got := s.sh("one", "cat /data/file"); got != "kept" {
		t.Errorf("the file holds %q", got)
	}
	partition := filepath.Join(s.RealNode(here).Links(), "virtio-"+strings.TrimPrefix(one, "d-")+"-part1")
	device, err := os.Readlink(partition)
	s.Must(err)
	if got := s.sh("one", "mount | grep ' /data '"); !strings.HasPrefix(got, device+" ") {
		t.Errorf("mounted is %q, want %s", got, device)
	}

	s.Pod("two", "two", labtest.OnNode(here))
	s.WaitFor("the Pod is told that there are two partitions", late, func(context.Context) (bool, error) {
		return s.says("two", "the disk has 2 partitions, and it can't be told which is the volume")
	})
	if left, err := filepath.Glob(filepath.Join(s.RealNode(here).Links(), "virtio-"+strings.TrimPrefix(two, "d-")+"-part*")); err != nil || len(left) != 2 {
		t.Errorf("the node sees the partitions %v, %v; want two", left, err)
	}
}

// tool runs a program on the machine, with a text as its input, and returns what it says.
func (s *scene) tool(input, name string, args ...string) string {
	s.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestReadWriteOncePodIsForOnePod(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.claim("mine", s.essd("ext4"), func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	s.runs("first", "mine", labtest.OnNode(here))
	s.Pod("second", "mine", labtest.OnNode(here))
	s.WaitFor("the second Pod is told why it waits", soon, func(ctx context.Context) (bool, error) {
		return s.says("second", "ReadWriteOncePod")
	})
	// One that goes past the scheduler is refused by the node.
	s.Pod("third", "mine", func(p *corev1.Pod) { p.Spec.NodeName = here })
	s.WaitFor("the third Pod is refused", soon, func(ctx context.Context) (bool, error) {
		return s.says("third", "ReadWriteOncePod")
	})
	s.remove("third")
	s.remove("first")
	s.running("second", late)
}

// snapshotOf is a VolumeSnapshotClass and a VolumeSnapshot of a claim.
const snapshotOf = `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: %[1]s}
driver: ` + lab.DriverName + `
deletionPolicy: Delete
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %[2]s}
spec:
  volumeSnapshotClassName: %[1]s
  source: {persistentVolumeClaimName: %[2]s}
`

// snapshot takes a snapshot of a claim, with the claim's name, and returns when it is ready.
func (s *scene) snapshot(claim string) {
	s.Helper()
	_, err := s.kubectl(s.Context(), fmt.Sprintf(snapshotOf, s.Namespace, claim), "apply", "-f", "-")
	s.Must(err)
	s.Afterwards("delete the class of snapshots", soon, func(ctx context.Context) error {
		_, err := s.kubectl(ctx, "", "delete", "volumesnapshotclass", s.Namespace)
		return err
	})
	s.WaitFor("the snapshot is ready", late, func(ctx context.Context) (bool, error) {
		ready, err := s.kubectl(ctx, "", "get", "volumesnapshot", claim, "-o", "jsonpath={.status.readyToUse} {.status.error.message}")
		if err == nil && !strings.HasPrefix(ready, "true") {
			err = fmt.Errorf("status: %s", ready)
		}
		return err == nil, err
	})
}

// fromSnapshot has a claim be filled from a snapshot.
func fromSnapshot(name string) func(*corev1.PersistentVolumeClaim) {
	group := "snapshot.storage.k8s.io"
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: name}
	}
}

// copyOf has a claim be a copy of another.
func copyOf(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
}

func TestSnapshotsAndCopiesHoldTheData(t *testing.T) {
	t.Parallel()
	for _, filesystem := range []string{"ext4", "xfs"} {
		t.Run(filesystem, func(t *testing.T) {
			s := newScene(t)
			class := s.essd(filesystem)
			s.claim("origin", class)
			s.runs("writes", "origin", labtest.OnNode(here))
			sum := s.write("writes", "/data/file", 20)
			s.snapshot("origin")
			s.sh("writes", "echo later > /data/file && sync")
			later := s.sh("writes", "sha256sum < /data/file")

			s.claim("restored", class, fromSnapshot("origin"))
			s.claim("copied", class, copyOf("origin"))
			// On the node of the origin, where an XFS file system with the same UUID is mounted.
			s.Pod("restored", "restored", labtest.OnNode(here))
			s.Pod("copied", "copied", labtest.OnNode(here))
			s.running("restored", late)
			s.holds("restored", "/data/file", sum)
			s.running("copied", late)
			s.holds("copied", "/data/file", later)
			s.sh("restored", "echo mine > /data/other && sync")
			s.holds("writes", "/data/file", later)
		})
	}
}
