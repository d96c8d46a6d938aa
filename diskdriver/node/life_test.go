package node

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestAPodWritesAndAnotherReadsAfterARestart(t *testing.T) {
	onEach(t, []string{"ext4", "xfs", "ext3"}, func(r *rig, m *testDisk, fsType string) {
		var v testVolume
		for range 2 { // all of it may be asked for again
			v = r.published(m, asFileSystem(fsType, "noatime"))
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
		r.isEmpty(filepath.Join(r.kubelet, "pods"))
		r.ok(r.stage(v))
		r.holds(filepath.Join(v.staging, "file"), "kept")
	})
}

func TestALostStagingMountIsMadeAgain(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.written(m, "ext4")
	r.ok(unix.Unmount(v.staging, 0))
	r.ok(r.publish(v, "a"))
	r.holds(filepath.Join(r.target("a"), "file"), "kept")
}

// A device that a Pod writes to is not made read-only to try whether its file system can be mounted.
func TestALostStagingMountIsMadeAgainUnderAPod(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m, withMkfsOptions("-O ^has_journal"))
	r.ok(unix.Unmount(v.staging, 0))
	r.ok(r.publish(v, "b"))
	r.put(filepath.Join(r.target("a"), "file"), "kept")
	r.holds(filepath.Join(r.target("b"), "file"), "kept")
}

func TestOnlyOnePodAtATimeHasAVolumeOfASingleWriter(t *testing.T) {
	for name, access := range map[string]func(*testVolume){"mount": func(*testVolume) {}, "block": asBlock} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			v := r.published(r.attach("s1", 1), access, singlePod)
			r.ok(r.publish(v, "a"))
			r.refused(r.publish(v, "b"), disk.Blocked, "one Pod at a time")
			r.ok(r.unpublish(v, "a"))
			r.ok(r.publish(v, "b"))
		})
	}
}

func TestAReadOnlyMountWritesNothing(t *testing.T) {
	onEach(t, []string{"ext4", "xfs"}, func(r *rig, m *testDisk, fsType string) {
		r.ok(r.unstage(r.written(m, fsType)))
		checkUnchanged := m.unchanged()
		m.grow(2)
		reader := r.published(m, asFileSystem(fsType), readOnlyNode)
		r.holds(filepath.Join(r.target("a"), "file"), "kept")
		r.isReadOnly(filepath.Join(r.target("a"), "more"))
		_, err := r.expand(reader)
		r.ok(err)
		r.refused(r.stage(r.volume(m, asFileSystem(fsType))), disk.Mismatch, "staged with read-only true")
		r.ok(r.unpublish(reader, "a"))
		r.ok(r.unstage(reader))
		m.truncate(1 << 30)
		checkUnchanged()
	})
}

func TestOneOfTwoPodsReadsOnly(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m)
	reader := v
	reader.readOnly = true
	r.ok(r.publish(reader, "reader"))
	r.put(filepath.Join(r.target("a"), "file"), "kept")
	r.holds(filepath.Join(r.target("reader"), "file"), "kept")
	r.isReadOnly(filepath.Join(r.target("reader"), "more"))
	r.refused(r.publish(v, "reader"), disk.Mismatch, "published")
}

// A process that is killed between the bind and its remount leaves a target that can be written to.
func TestABindThatWasCutShortIsMadeReadOnly(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m)
	v.readOnly = true
	r.ok(r.publish(v, "a"))
	r.isReadOnly(filepath.Join(r.target("a"), "file"))
	r.ok(r.unpublish(v, "a"))
	r.ok(r.unstage(v))
}

// A process that is killed after the mount leaves a file system that is smaller than its disk.
func TestAStageThatWasCutShortGrowsTheFileSystem(t *testing.T) {
	onEach(t, disk.Filesystems(), func(r *rig, m *testDisk, fsType string) {
		v := r.written(m, fsType)
		r.ok(r.unstage(v))
		m.grow(2)
		r.sh("mount", "-t", fsType, m.loop, v.staging)
		r.published(m, asFileSystem(fsType))
		r.holdsBytes(v, 15<<27)
	})
}

// A disk grows while a Pod has it, on a kernel that may not let a mounted file system grow: another Pod starts all the same.
func TestAFileSystemThatCanNotGrowYetIsPublished(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.written(m, "ext4")
	r.ok(r.publish(v, "a"))
	m.grow(2)
	r.instead("resize2fs", "exit 1")
	r.ok(r.publish(v, "b"))
	r.holds(filepath.Join(r.target("b"), "file"), "kept")
	r.ok(r.stage(v))
	_, err := r.expand(v)
	r.refused(err, disk.Blocked, "delete the Pods that use the volume, and it grows before the next one starts")
}

// A process that is killed after it has unmounted a volume does not remember its device.
func TestAnUnstageThatWasCutShortAwaitsTheDevice(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.written(m, "ext4")
	r.sh("umount", v.staging)
	holder, err := os.OpenFile(m.loop, os.O_RDONLY|unix.O_EXCL, 0) // as another mount namespace that has the mount still
	r.ok(err)
	r.restart()
	r.refused(r.unstage(v), disk.InUse, m.loop)
	r.ok(holder.Close())
	r.ok(r.unstage(v))
}

func TestABlockVolumeIsReadOnlyIfThePublishSaysSo(t *testing.T) {
	r, m := newRigWithDisk(t)
	reader := r.published(m, asBlock, readOnlyNode)
	r.isReadOnly(r.target("a"))
	r.ok(r.unpublish(reader, "a"))
	r.ok(r.unstage(reader))
	writer := r.published(m, asBlock)
	r.put(r.target("a"), "written")
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
			r, m := newRigWithDisk(t)
			v := r.published(m, row.access)
			if _, err := r.expand(v); disk.KindOf(err) != disk.Pending {
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
			r.expands(v)
		})
	}
}
