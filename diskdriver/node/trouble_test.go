package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
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
	path := os.Getenv("PATH")
	r.instead("mkfs.ext4", "mv "+m.loop+" "+m.loop+".gone; exec $REAL \"$@\"")
	r.refused(r.stage(v), disk.Pending, "left the node while the volume was staged")
	r.ok(os.Rename(m.loop+".gone", m.loop))
	t.Setenv("PATH", path)
	r.published(m)
}

// Another plugin may have mounted what it has made since the disk was looked at: no mark is written into that.
func TestAFormatWritesNothingToWhatIsMountedMeanwhile(t *testing.T) {
	r, m := newRigWithDisk(t)
	made("ext4")(r, m)
	m.mark("s1", "ext4")
	at, row := t.TempDir(), strings.Repeat("a row", 100)
	data := filepath.Join(t.TempDir(), "row")
	r.put(data, row)
	r.instead("mkfs.ext4", "for path; do :; done; [ -f $path ] && dd if="+data+" of="+m.loop+" bs=1 seek="+fmt.Sprint(m.size-markFromEnd)+" conv=notrunc,fsync status=none && mount -o ro "+m.loop+" "+at+"\nexec $REAL \"$@\"")
	r.refused(r.stage(r.volume(m, usedBefore)), disk.InUse, "is in use meanwhile")
	r.ok(unix.Unmount(at, 0))
	if got, err := m.readAt(m.size - markFromEnd); err != nil || string(got[:len(row)]) != row {
		t.Errorf("there is %q, %v", got[:len(row)], err)
	}
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

// What e2fsck can't repair without asking is as it was before, whatever e2fsck wrote until it gave up (tytso/e2fsprogs#72).
func TestWhatCannotBeMendedIsLeftToPeople(t *testing.T) {
	for name, damage := range map[string]func(r *rig, m *testDisk){
		"the root directory":        func(r *rig, m *testDisk) { r.sh("debugfs", "-w", "-R", "clri <2>", m.loop) },
		"a bit of group descriptor": func(_ *rig, m *testDisk) { m.invert(4096 + 8) },
		"all group descriptors":     func(_ *rig, m *testDisk) { m.write(4096, make([]byte, 4096)) },
	} {
		for state, want := range map[string]string{"0": "repair it by hand (e2fsck, xfs_repair), or restore a snapshot", "1": "repair it by hand (e2fsck, xfs_repair), or restore a snapshot", "2": "was put back. Take a snapshot of the disk, then repair it by hand"} {
			t.Run(name+" state "+state, func(t *testing.T) {
				r, m := newRigWithDisk(t)
				used("ext4")(r, m)
				r.sh("debugfs", "-w", "-R", "set_super_value state "+state, m.loop)
				damage(r, m)
				m.refusesStage(r.volume(m), disk.Blocked, want)
				if left, _ := filepath.Glob(filepath.Join(r.server.plugin, "undo", "*")); len(left) > 0 {
					t.Errorf("left is %v", left)
				}
			})
		}
	}
}

// A plugin that ends while e2fsck runs finds what e2fsck has overwritten, and puts it back.
func TestARepairWhoseEndNobodySawIsUndone(t *testing.T) {
	r, m := newRigWithDisk(t)
	used("ext4")(r, m)
	r.sh("debugfs", "-w", "-R", "set_super_value state 2", m.loop)
	m.invert(4096 + 8)
	v := r.volume(m)
	u, err := parseVolumeUse(&csi.NodeStageVolumeRequest{VolumeId: v.volume, PublishContext: v.publish, VolumeContext: v.context, VolumeCapability: v.capability}, disk.AllowedOptions{})
	r.ok(err)
	undo, err := r.server.undoFile(u)
	r.ok(err)
	r.ok(os.MkdirAll(filepath.Dir(undo), 0o700))
	defer m.unchanged()()
	t.Setenv("E2FSPROGS_FAKE_TIME", fmt.Sprint(time.Now().Unix())) // e2undo refuses what was written in another second
	if out, err := exec.Command("e2fsck", "-p", "-z", undo, m.loop).CombinedOutput(); err == nil {
		t.Fatalf("e2fsck can repair it: %s", out)
	}
	r.sh("debugfs", "-w", "-R", "set_super_value state 2", m.loop)
	r.restart()
	r.refused(r.stage(v), disk.Blocked, "was put back")
}

// e2undo takes a file that e2fsck didn't close for success, and puts nothing back.
func TestARepairThatWasEndedIsNotSaidToBeUndone(t *testing.T) {
	r, m := newRigWithDisk(t)
	used("ext4")(r, m)
	r.sh("debugfs", "-w", "-R", "set_super_value state 2", m.loop)
	path := os.Getenv("PATH")
	r.instead("e2fsck", `for one; do [ "$before" = -z ] && undo=$one; before=$one; done; "$REAL" -f -y -z "$undo" '`+m.loop+`'
		printf '\0' | dd of="$undo" bs=1 seek=44 conv=notrunc status=none; kill -XFSZ $$`) // the state: not closed
	v := r.volume(m)
	r.refused(r.stage(v), disk.Blocked, "is not put back: e2fsck was ended before it was done, as it is once it has overwritten 1 GiB; take a snapshot")
	t.Setenv("PATH", path)
	r.ok(r.stage(v))
}

func TestARepairNeedsRoomToBeUndone(t *testing.T) {
	r, m := newRigWithDisk(t)
	used("ext4")(r, m)
	r.sh("debugfs", "-w", "-R", "set_super_value state 2", m.loop)
	v := r.volume(m)
	r.sh("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", r.server.plugin)
	m.refusesStage(v, disk.Blocked, "make room on the node")
	r.ok(unix.Unmount(r.server.plugin, 0))
	r.ok(r.stage(v))
}

func TestADamagedSuperblockIsLeftToPeople(t *testing.T) {
	for _, row := range []struct {
		fsType, field string
		offset        int64
		want          string
	}{
		{"ext4", "number of inodes", 1024, "the kernel's log (dmesg) says what it finds wrong"},
		{"ext4", "features", 1120, "the head of the disk's file system is damaged"},
		{"ext4", "magic number", 1080, "the head of the disk's file system is damaged"},
		{"xfs", "number of blocks", 8, "the head of the disk's file system is damaged"},
		{"xfs", "checksum", 224, "the kernel's log (dmesg) says what it finds wrong"},
	} {
		t.Run(row.fsType+" "+row.field, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			r.sh("mkfs."+row.fsType, "-q", m.loop)
			m.invert(row.offset)
			m.refusesStage(r.volume(m, asFileSystem(row.fsType)), disk.Blocked, row.want)
		})
	}
}

func TestFilesystemIsCheckedIfTheKernelFoundErrors(t *testing.T) {
	for _, row := range []struct {
		name    string
		state   string // s_state of the superblock
		change  func(*testVolume)
		checked bool
	}{
		{"errors, for writing", "2", func(*testVolume) {}, true},
		{"errors, told not to", "2", func(w *testVolume) { w.context[disk.UncheckedKey] = "true" }, false},
		{"errors, for reading", "2", readOnlyNode, false},
		{"not unmounted", "0", func(*testVolume) {}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			r.sh("mkfs.ext4", "-q", m.loop)
			r.sh("debugfs", "-w", "-R", "set_super_value state "+row.state, m.loop)
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
