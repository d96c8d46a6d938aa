package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/need"
)

// instead lets a script run in place of a program, which it finds as $REAL.
func (r *rig) instead(program, script string) {
	r.t.Helper()
	if need.Knows(program) {
		need.Has(r.t, need.Program(program))
	}
	real, err := exec.LookPath(program)
	r.ok(err)
	dir := r.t.TempDir()
	r.ok(os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\nREAL="+real+"\n"+script), 0o700)) //nolint:gosec // it is to be run
	r.t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestDeviceThatLeavesDuringStageIsAwaitedAgain(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m)
	checkUnchanged, path := m.unchanged(), os.Getenv("PATH")
	r.instead("mkfs.ext4", "mv "+m.loop+" "+m.loop+".gone; exec $REAL \"$@\"")
	r.refused(r.stage(v), disk.Pending, "left the node while the volume was staged")
	r.ok(os.Rename(m.loop+".gone", m.loop))
	checkUnchanged()
	t.Setenv("PATH", path)
	r.published(m)
}

// A host that can't be written to is said to be that, and what couldn't be noted is not begun.
func TestAFullOrReadOnlyHostIsNamed(t *testing.T) {
	for name, options := range map[string]string{"full": "nr_inodes=1", "read-only": "ro"} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			v := r.volume(m)
			notes, pods := r.directory("plugins"), r.directory("pods")
			r.sh("mount", "-t", "tmpfs", "-o", options, "tmpfs", notes)
			m.refusesStage(v, disk.Blocked, "give it space, or make it writable")
			r.ok(unix.Unmount(notes, 0))
			r.ok(r.stage(v))
			r.sh("mount", "-t", "tmpfs", "-o", options, "tmpfs", pods)
			r.refused(r.publish(v, "a"), disk.Blocked, "give it space, or make it writable")
			block := r.volume(r.attach("s2", 1), asBlock)
			r.ok(r.stage(block))
			r.refused(r.publish(block, "b"), disk.Blocked, "give it space, or make it writable")
			r.ok(unix.Unmount(pods, 0))
			r.ok(r.publish(v, "a"))
			r.ok(r.publish(block, "b"))
		})
	}
}

func TestWhatCannotBeMendedIsLeftToPeople(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.sh("mkfs.ext4", "-q", m.loop)
	for _, damage := range []string{"clri <2>", "set_super_value state 0"} { // the root directory
		r.sh("debugfs", "-w", "-R", damage, m.loop)
	}
	r.refused(r.stage(r.volume(m)), disk.Blocked, "repair it by hand, or restore a snapshot")
}

func TestADamagedSuperblockIsLeftToPeople(t *testing.T) {
	for _, row := range []struct {
		fsType, field string
		offset        int64
		want          string
	}{
		{"ext4", "number of inodes", 1024, "e2fsck can't read the file system"},
		{"ext4", "features", 1120, "head of the disk's file system is damaged"},
		{"ext4", "magic number", 1080, "head of the disk's file system is damaged"},
		{"xfs", "number of blocks", 8, "head of the disk's file system is damaged"},
		{"xfs", "checksum", 224, "if its file system is damaged, repair it by hand"},
	} {
		t.Run(row.fsType+" "+row.field, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			r.sh("mkfs."+row.fsType, "-q", m.loop)
			m.invert(row.offset)
			m.refusesStage(r.volume(m, asFileSystem(row.fsType)), disk.Blocked, row.want)
		})
	}
}

func TestFilesystemIsCheckedBeforeItsFirstWrite(t *testing.T) {
	for _, row := range []struct {
		name    string
		change  func(*testVolume)
		checked bool
	}{
		{"for writing", func(*testVolume) {}, true},
		{"told not to", func(w *testVolume) { w.context[disk.UncheckedKey] = "true" }, false},
		{"for reading", readOnlyNode, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			r.sh("mkfs.ext4", "-q", m.loop)
			called := filepath.Join(t.TempDir(), "called")
			r.instead("e2fsck", "touch "+called+"; exec $REAL \"$@\"")
			r.ok(r.stage(r.volume(m, row.change)))
			if _, err := os.Stat(called); (err == nil) != row.checked {
				t.Errorf("checked is %v, want %v", err == nil, row.checked)
			}
		})
	}
}

func TestTheDiskThatTheHostLivesOnIsNoVolume(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.sh("mkfs.ext4", "-q", m.loop)
	r.sh("mount", m.loop, r.kubelet)
	r.refused(r.stage(r.volume(m, asBlock)), disk.InUse, fmt.Sprintf("is the disk that %s of this node is on", r.kubelet))
	r.refused(r.stage(r.volume(m)), disk.InUse, fmt.Sprintf("is the disk that %s of this node is on", r.kubelet))
}

// Where udev makes no links, the kernel shows the serial number.
func TestDeviceIsFoundByItsSerialNumber(t *testing.T) {
	r := newRigWithoutUdev(t)
	m := r.attach("s1", 1)
	r.ok(os.Remove(filepath.Join(r.dev, "disk/by-id/virtio-s1")))
	name := filepath.Base(m.loop)
	r.shows(name, nil, map[string]string{"serial": "s1"})
	r.published(m)
	// A link that udev has yet to take away leads to what is another disk by now.
	other := r.attach("s2", 1)
	r.ok(os.Remove(filepath.Join(r.dev, "disk/by-id/virtio-s2")))
	r.ok(os.Symlink("../../"+name, filepath.Join(r.dev, "disk/by-id/virtio-s2")))
	r.shows(filepath.Base(other.loop), nil, map[string]string{"serial": "s2"})
	w := r.volume(other)
	r.ok(r.stage(w))
	if at, _, err := r.server.mounts.at(w.staging); err != nil || at.Source != other.loop {
		t.Errorf("staged is %s, %v; want %s", at.Source, err, other.loop)
	}
}
