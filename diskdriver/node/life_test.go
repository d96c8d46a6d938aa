package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestAPodWritesAndAnotherReadsAfterARestart(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "ext3"} {
		t.Run(fsType, func(t *testing.T) {
			r := newRig(t)
			v := r.volume(r.attach("s1", 1), asFileSystem(fsType, "noatime"))
			for range 2 { // all of it may be asked for again
				r.ok(r.stage(v))
				r.ok(r.publish(v, "a"))
			}
			r.put(filepath.Join(r.target("a"), "file"), "kept")
			r.restart()
			r.ok(r.publish(v, "b"))
			r.holds(filepath.Join(r.target("b"), "file"), "kept")
			r.refused(r.unstage(v), disk.InUse, "published still")
			for range 2 {
				r.ok(r.unpublish(v, "a"))
				r.ok(r.unpublish(v, "b"))
			}
			for range 2 {
				r.ok(r.unstage(v))
			}
			if left, err := os.ReadDir(filepath.Join(r.kubelet, "pods")); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
			r.ok(r.stage(v))
			r.holds(filepath.Join(v.staging, "file"), "kept")
		})
	}
}

func TestALostStagingMountIsMadeAgain(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 1))
	r.ok(r.stage(v))
	r.put(filepath.Join(v.staging, "file"), "kept")
	r.ok(unix.Unmount(v.staging, 0))
	r.ok(r.publish(v, "a"))
	r.holds(filepath.Join(r.target("a"), "file"), "kept")
}

func TestOnlyOnePodAtATimeHasAVolumeOfASingleWriter(t *testing.T) {
	for name, access := range map[string]func(*testVolume){"mount": func(*testVolume) {}, "block": asBlock} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			v := r.volume(r.attach("s1", 1), access, singlePod)
			r.ok(r.stage(v))
			r.ok(r.publish(v, "a"))
			r.ok(r.publish(v, "a"))
			r.refused(r.publish(v, "b"), disk.Blocked, "one Pod at a time")
			r.ok(r.unpublish(v, "a"))
			r.ok(r.publish(v, "b"))
		})
	}
}

func TestAReadOnlyMountWritesNothing(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			r := newRig(t)
			m := r.attach("s1", 1)
			v := r.written(m, fsType)
			r.ok(r.unstage(v))
			before := m.sum()
			reader := r.volume(m, asFileSystem(fsType), readOnlyNode)
			m.grow(2)
			r.ok(r.stage(reader))
			r.ok(r.publish(reader, "a"))
			r.holds(filepath.Join(r.target("a"), "file"), "kept")
			if err := os.WriteFile(filepath.Join(r.target("a"), "more"), nil, 0o600); err == nil {
				t.Error("a Pod wrote to a read-only volume")
			}
			_, err := r.expand(reader, r.target("a"), 2<<30)
			r.ok(err)
			r.refused(r.stage(r.volume(m, asFileSystem(fsType))), disk.Mismatch, "staged with read-only true")
			r.ok(r.unpublish(reader, "a"))
			r.ok(r.unstage(reader))
			m.truncate(1 << 30)
			if after := m.sum(); after != before {
				t.Error("the disk's bytes changed")
			}
		})
	}
}

func TestOneOfTwoPodsReadsOnly(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 1))
	r.ok(r.stage(v))
	r.ok(r.publish(v, "writer"))
	reader := v
	reader.readOnly = true
	r.ok(r.publish(reader, "reader"))
	r.put(filepath.Join(r.target("writer"), "file"), "kept")
	r.holds(filepath.Join(r.target("reader"), "file"), "kept")
	if err := os.WriteFile(filepath.Join(r.target("reader"), "more"), nil, 0o600); err == nil {
		t.Error("the reader wrote")
	}
	r.refused(r.publish(v, "reader"), disk.Mismatch, "published")
}

// A process that is killed between the bind and its remount leaves a target that can be written to.
func TestABindThatWasCutShortIsMadeReadOnly(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 1))
	r.ok(r.stage(v))
	r.ok(r.publish(v, "reader"))
	v.readOnly = true
	r.ok(r.publish(v, "reader"))
	if err := os.WriteFile(filepath.Join(r.target("reader"), "file"), nil, 0o600); err == nil {
		t.Error("the reader wrote")
	}
	r.ok(r.unpublish(v, "reader"))
	r.ok(r.unstage(v))
}

// A process that is killed after the mount leaves a file system that is smaller than its disk.
func TestAStageThatWasCutShortGrowsTheFileSystem(t *testing.T) {
	for _, fsType := range disk.Filesystems() {
		t.Run(fsType, func(t *testing.T) {
			r := newRig(t)
			m := r.attach("s1", 1)
			v := r.volume(m, asFileSystem(fsType))
			r.ok(r.stage(v))
			r.ok(r.unstage(v))
			m.grow(2)
			r.sh("mount", "-t", fsType, m.loop, v.staging)
			r.ok(r.stage(v))
			r.ok(r.publish(v, "a"))
			if total := r.total(v, "a"); total < 15<<27 {
				t.Errorf("%d bytes in all", total)
			}
		})
	}
}

// A disk grows while a Pod has it, on a kernel that may not let a mounted file system grow: another Pod starts all the same.
func TestAFileSystemThatCanNotGrowYetIsPublished(t *testing.T) {
	r := newRig(t)
	m := r.attach("s1", 1)
	v := r.written(m, "ext4")
	r.ok(r.publish(v, "a"))
	m.grow(2)
	r.ok(r.publish(v, "b"))
	r.holds(filepath.Join(r.target("b"), "file"), "kept")
	r.ok(r.stage(v))
}

// A process that is killed after it has unmounted a volume does not remember its device.
func TestAnUnstageThatWasCutShortAwaitsTheDevice(t *testing.T) {
	r := newRig(t)
	m := r.attach("s1", 1)
	v := r.volume(m)
	r.ok(r.stage(v))
	r.sh("umount", v.staging)
	holder, err := os.OpenFile(m.loop, os.O_RDONLY|unix.O_EXCL, 0) // as another mount namespace that has the mount still
	r.ok(err)
	r.restart()
	r.refused(r.unstage(v), disk.InUse, m.loop)
	r.ok(holder.Close())
	r.ok(r.unstage(v))
}

func TestABlockVolumeIsReadOnlyIfThePublishSaysSo(t *testing.T) {
	r := newRig(t)
	m := r.attach("s1", 1)
	write := func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		_, err = f.Write(make([]byte, 4096))
		return err
	}
	reader := r.volume(m, asBlock, readOnlyNode)
	r.ok(r.stage(reader))
	r.ok(r.publish(reader, "a"))
	if err := write(r.target("a")); err == nil {
		t.Error("a Pod wrote to a read-only block volume")
	}
	r.ok(r.unpublish(reader, "a"))
	r.ok(r.unstage(reader))
	writer := r.volume(m, asBlock)
	r.ok(r.stage(writer))
	r.ok(r.publish(writer, "a"))
	r.ok(write(r.target("a")))
	writer.readOnly = true
	r.refused(r.publish(writer, "b"), disk.Blocked, "same way")
}

func TestAVolumeGrows(t *testing.T) {
	for _, row := range []struct {
		name   string
		access func(*testVolume)
		online bool
	}{
		{"xfs online", asFileSystem("xfs"), true},
		{"ext4 offline", asFileSystem("ext4"), false},
		{"block online", asBlock, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			m := r.attach("s1", 1)
			v := r.volume(m, row.access)
			r.ok(r.stage(v))
			r.ok(r.publish(v, "a"))
			if _, err := r.expand(v, r.target("a"), 2<<30); disk.KindOf(err) != disk.Pending {
				t.Errorf("before the device has grown: %v", err)
			}
			if !row.online {
				r.ok(r.unpublish(v, "a"))
				r.ok(r.unstage(v))
			}
			m.grow(2)
			if !row.online {
				r.ok(r.publish(v, "a"))
			}
			size, err := r.expand(v, r.target("a"), 2<<30)
			if err != nil || size != 2<<30 {
				t.Fatalf("%d, %v", size, err)
			}
			if total := r.total(v, "a"); total < 15<<27 {
				t.Errorf("%d bytes in all", total)
			}
		})
	}
}

func (r *rig) total(w testVolume, pod string) int64 {
	r.t.Helper()
	answer, err := r.server.NodeGetVolumeStats(context.Background(), &csi.NodeGetVolumeStatsRequest{VolumeId: w.volume, VolumePath: r.target(pod)})
	r.ok(err)
	return answer.Usage[0].Total
}
