package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/need"
)

func withMkfsOptions(options string) func(*testVolume) {
	return func(w *testVolume) { w.context[disk.MkfsOptionsKey] = options }
}

// Whoever may make a StorageClass or a PersistentVolume may not write to other disks, nor read the node's files (N4, X1).
func TestOptionsThatNameOthersWriteNothing(t *testing.T) {
	need.Has(t, need.FileSystem("xfs"))
	r, m := newRigWithDisk(t)
	victim := r.attach("s2", 1)
	defer victim.unchanged()()
	tokens := r.directory("pods")
	for _, row := range []struct{ filesystem, options string }{
		{"xfs", "-l logdev=" + victim.loop + ",size=64m"}, {"xfs", "-r rtdev=" + victim.loop}, {"xfs", "-d name=" + victim.loop}, {"xfs", "-p " + tokens},
		{"xfs", "-c options=" + tokens}, {"xfs", victim.loop}, {"ext4", "-d " + tokens}, {"ext4", "-J device=" + victim.loop}, {"ext4", "-z " + tokens + "/undo"},
		{"ext4", "-z undo"}, {"ext4", "-l blocks"}, {"ext4", victim.loop}, {"ext4", "-m 1 " + strings.TrimPrefix(victim.loop, "/dev/")}, {"ext4", "-e panic"},
	} {
		t.Run(row.filesystem+" "+strings.Fields(row.options)[0], func(t *testing.T) {
			v := r.volume(m, asFileSystem(row.filesystem), withMkfsOptions(row.options))
			m.refusesStage(v, disk.Invalid, `volume_context["mkfsOptions"]: `)
		})
	}
	for _, option := range []string{"logdev=" + victim.loop, "rtdev=" + victim.loop, "journal_path=" + victim.loop, "errors=panic", "abort", "loop", "offset=4096", "sb=1"} {
		t.Run(option, func(t *testing.T) {
			m.refusesStage(r.volume(m, asFileSystem("xfs", "noatime", option)), disk.Invalid, fmt.Sprintf("mount_flags[1]: %q is not allowed", option))
		})
	}
	r.ok(r.stage(r.volume(m))) // and what was refused has left no trace
}

// Volumes of classes from before there was a list keep working, unless their options name a file or a device.
func TestOldVolumesKeepTheirOptions(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.ok(r.stage(r.volume(m, asFileSystem("ext4", "noatime", "norecovery"), withMkfsOptions("-U 01234567-89ab-cdef-0123-456789abcdef -E packed_meta_blocks=1,stride=16"))))
	head := r.sh("dumpe2fs", "-h", m.loop)
	for _, want := range []string{"01234567-89ab-cdef-0123-456789abcdef", "RAID stride:              16", "Reserved block count:     0"} {
		if !strings.Contains(head, want) {
			t.Errorf("no %q in %s", want, head)
		}
	}
	mounts := r.sh("findmnt", "--noheadings", "--output=OPTIONS", m.loop)
	if !strings.Contains(mounts, "noatime") || !strings.Contains(mounts, "norecovery") {
		t.Errorf("mounted with %s", mounts)
	}
}

// Whoever has a disk as a block volume writes its superblock, and an error in the file system must not stop the node of all its Pods.
func TestNoSuperblockStopsTheNode(t *testing.T) {
	for name, write := range map[string][]string{"errors": {"-e", "panic"}, "options": {"-E", "mount_opts=errors=panic"}} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			used("ext4")(r, m)
			r.sh("tune2fs", append(write, m.loop)...)
			for options, want := range map[string]string{"": "errors=remount-ro", "errors=continue": "errors=continue"} {
				v := r.volume(m, usedBefore, asFileSystem("ext4", strings.Fields(options)...))
				r.ok(r.stage(v))
				mounted := r.sh("findmnt", "--noheadings", "--output=OPTIONS", m.loop)
				if has := strings.Contains(mounted, "errors="); strings.Contains(mounted, "panic") || has && !strings.Contains(mounted, want) {
					t.Errorf("%q: mounted with %s, want %s", options, mounted, want)
				}
				shown := strings.TrimSpace(r.sh("sh", "-c", "cat /proc/fs/ext4/"+filepath.Base(m.loop)+"/options | grep errors="))
				if shown != want {
					t.Errorf("%q: the kernel has %s, want %s", options, shown, want)
				}
				r.ok(r.unstage(v))
			}
		})
	}
}

// The options of the class and the driver's own hold side by side: a second -E of mkfs.ext4 would replace the first.
func TestOptionsOfAListAllHold(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.ok(r.stage(r.volume(m, withMkfsOptions("-E stride=16 -m 2 -E stripe_width=64,discard -O quota -O ^quota,^64bit"))))
	head := r.sh("dumpe2fs", "-h", m.loop)
	for _, want := range []string{"RAID stride:              16", "RAID stripe width:        64", "Reserved block count:     5242"} {
		if !strings.Contains(head, want) {
			t.Errorf("no %q in %s", want, head)
		}
	}
	if strings.Contains(head, "64bit") || strings.Contains(head, "quota") {
		t.Errorf("the features are others: %s", head)
	}
}

// What people mount with, the kernel takes.
func TestAllowedMountOptionsAreMounted(t *testing.T) {
	for filesystem, options := range map[string][]string{
		"ext3": {"noatime", "nodiratime", "data=ordered", "commit=30", "errors=remount-ro", "nosuid"},
		"ext4": {"noatime", "discard", "defaults", "_netdev", "data=writeback", "barrier=0", "commit=60", "nodelalloc", "errors=continue", "lazytime", "stripe=16", "init_itable=10"},
		"xfs":  {"noatime", "nodiratime", "discard", "logbufs=8", "logbsize=256k", "largeio", "inode64", "swalloc", "allocsize=64m", "nouuid", "nodev"},
	} {
		t.Run(filesystem, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			for _, option := range options {
				r.ok(disk.CheckMountOption(filesystem, option, disk.AllowedOptions{}))
			}
			r.ok(r.stage(r.volume(m, asFileSystem(filesystem, options...))))
		})
	}
}
