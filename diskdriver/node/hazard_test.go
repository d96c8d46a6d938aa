package node

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/need"
)

// Copies of an xfs superblock are where the disk's size was when it was formatted, and not beyond 1 TiB each (D8).
func TestAnXFSIsKnownByItsCopiesAtAnySize(t *testing.T) {
	for _, row := range []struct {
		name        string
		made, grown int64 // GiB
		options     []string
	}{
		{"beyond 4 TiB", 5 << 10, 5 << 10, nil},
		{"beyond 4 TiB, small blocks", 5 << 10, 5 << 10, []string{"-b", "size=1024"}},
		{"just below 4 TiB", 4<<10 - 1, 4<<10 - 1, nil},
		{"grown by a little", 20, 33, nil},
		{"grown beyond 4 TiB", 100, 6003, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			m := r.attach("s1", row.made)
			r.sh("mkfs.xfs", append(append([]string{"-q", "-l", "size=64m"}, row.options...), m.loop)...)
			m.grow(row.grown)
			m.write(0, make([]byte, 1<<20))
			r.refused(r.stage(r.volume(m, asFileSystem("xfs"))), disk.Blocked, "a copy of its superblock is left")
		})
	}
}

// What blkid takes for an atari table is a plausible entry in the first sector.
func TestRandomBytesOfANewDiskAreNoTable(t *testing.T) {
	r, m := newRigWithDisk(t)
	m.scramble()
	head := randomBytes(512)
	copy(head[0x1c6:], []byte{1, 'G', 'E', 'M', 0, 0, 0, 2, 0, 0, 1, 0})
	m.write(0, head)
	r.ok(r.stage(r.volume(m)))
}

// partition makes a partition table with partitions on a disk.
func (r *rig) partition(m *testDisk, parts ...string) {
	r.t.Helper()
	r.partitionAs("gpt", m, parts...)
}

// partitionAs makes a partition table of a type.
func (r *rig) partitionAs(label string, m *testDisk, parts ...string) {
	r.t.Helper()
	r.sfdisk(m, "label: "+label+"\n"+strings.Join(parts, "\n")+"\n")
}

// sfdisk runs that program on a disk with a script and shows the partitions that it made.
func (r *rig) sfdisk(m *testDisk, script string, options ...string) {
	r.t.Helper()
	need.Has(r.t, need.Program("sfdisk"))
	file := filepath.Join(r.t.TempDir(), "table")
	r.put(file, script)
	r.sh("sh", "-c", "sfdisk --quiet "+strings.Join(options, " ")+" "+m.loop+" <"+file)
	r.showPartitions(m)
}

// showPartitions has the kernel show the partitions of a disk, if it has any, and makes their device nodes.
func (r *rig) showPartitions(m *testDisk) {
	r.t.Helper()
	_ = exec.Command("partx", "--update", m.loop).Run() // it fails where there are none
	entries, err := filepath.Glob(filepath.Join("/sys/block", filepath.Base(m.loop), filepath.Base(m.loop)+"p*"))
	r.ok(err)
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(entry, "dev"))
		r.ok(err)
		words := strings.Split(strings.TrimSpace(string(content)), ":")
		if node := filepath.Join(r.dev, filepath.Base(entry)); !exists(node) {
			r.sh("mknod", node, "b", words[0], words[1])
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestTheOnlyPartitionIsUsedAndGrows(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.partition(m, ",")
	r.sh("mkfs.xfs", "-q", m.loop+"p1")
	v := r.published(m, asFileSystem("xfs"))
	r.put(filepath.Join(r.target("a"), "file"), "kept")
	m.grow(2)
	r.expands(v)
	r.holds(filepath.Join(r.target("a"), "file"), "kept")
}

// The superblock of an ext names the device of its journal by number, and e2fsck looks for it by UUID on all disks of the node.
func TestAFileSystemWithAJournalElsewhereIsNotMounted(t *testing.T) {
	for name, extra := range map[string][]string{"sound": nil, "with errors": {"-R", "set_super_value state 2"}} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			journal := r.attach("s2", 1)
			r.sh("mke2fs", "-q", "-F", "-O", "journal_dev", "-b", "4096", journal.loop, "8192")
			r.sh("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "device="+journal.loop, m.loop)
			r.fillFiles(m.loop, "ext4")
			if extra != nil {
				r.sh("debugfs", append([]string{"-w"}, append(extra, m.loop)...)...)
			}
			defer journal.unchanged()()
			m.refusesStage(r.volume(m, usedBefore), disk.Blocked, "whose journal is on another device")
		})
	}
}

// A partition table that was written over the first sector of a disk leaves the file system that the disk had as a whole: its superblock
// is whole still, and to mount it would overwrite the partition.
func TestAnOldFileSystemUnderPartitionsIsNotMounted(t *testing.T) {
	for name, parts := range map[string]string{"one": ",", "one that is behind the old journal": "1433600,", "two": "1433600,100M\n,"} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			used("ext4")(r, m)
			r.sfdisk(m, "label: dos\n"+parts+"\n", "--wipe", "never")
			used("ext4")(r, &testDisk{rig: r, loop: m.loop + "p1"})
			m.refusesStage(r.volume(m, usedBefore), disk.Blocked, "partitions too, and it can't be told which is the volume")
		})
	}
}

func TestTheErrorOfAFormatHasTheProgramsWords(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 1), func(w *testVolume) { w.context[disk.MkfsOptionsKey] = "-O nonsense" })
	r.refused(r.stage(v), disk.Unexpected, "Invalid filesystem option set: nonsense")
}

func TestOptionsOfAFormatAreAddedToTheUsualOnes(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.ok(r.stage(r.volume(m, func(w *testVolume) { w.context[disk.MkfsOptionsKey] = "-N 4096 -L label" })))
	head := r.sh("dumpe2fs", "-h", m.loop)
	for _, want := range []string{"Filesystem volume name:   label", "Reserved block count:     0"} {
		if !strings.Contains(head, want) {
			t.Errorf("no %q in %s", want, head)
		}
	}
}

// copied attaches a disk with the bytes of another.
func (r *rig) copied(m *testDisk) *testDisk {
	r.t.Helper()
	twin := r.attach("s2", m.size>>30)
	r.sh("cp", "--sparse=always", m.file, twin.file)
	r.sh("blockdev", "--flushbufs", twin.loop)
	return twin
}

func TestTwoCopiesOfOneXFSAreMountedTogether(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.written(m, "xfs")
	r.ok(r.unstage(v))
	second := r.copied(m)
	r.ok(r.stage(v))
	clone := r.volume(second, asFileSystem("xfs"), origin(disk.OriginVolume))
	r.ok(r.stage(clone))
	r.holds(filepath.Join(clone.staging, "file"), "kept")
}

func TestWhatIsRestoredToALargerDiskFillsIt(t *testing.T) {
	onEach(t, []string{"ext4", "xfs"}, func(r *rig, m *testDisk, fsType string) {
		r.ok(r.unstage(r.written(m, fsType)))
		m.grow(3)
		v := r.published(m, asFileSystem(fsType), origin(disk.OriginSnapshot))
		r.holdsBytes(v, 5<<29)
	})
}

func TestAJournalIsNotReplayedForReading(t *testing.T) {
	onEach(t, []string{"ext4", "xfs"}, func(r *rig, m *testDisk, fsType string) {
		v := r.written(m, fsType)
		r.sh("sync", "-f", v.staging)
		after := r.copied(m) // as of a node that lost power
		after.refusesStage(r.volume(after, asFileSystem(fsType), readOnlyNode), disk.Blocked, "use the volume for writing once")
		writer := r.volume(after, asFileSystem(fsType))
		r.ok(r.stage(writer))
		r.holds(filepath.Join(writer.staging, "file"), "kept")
	})
}

func TestADeviceThatSomebodyElseHasIsNotTouched(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.sh("mkfs.ext4", "-q", m.loop)
	elsewhere := t.TempDir()
	r.sh("mount", m.loop, elsewhere)
	defer func() { r.ok(unix.Unmount(elsewhere, 0)) }()
	r.refused(r.stage(r.volume(m)), disk.InUse, "in use on this node by something other")
	r.refused(r.stage(r.volume(m, asBlock)), disk.InUse, "in use on this node by something other")
}

func TestAWrongDeviceIsNotTouched(t *testing.T) {
	r, m := newRigWithDisk(t)
	m.refusesStage(r.volume(m, func(w *testVolume) { w.publish[disk.SizeKey] = "2147483648" }), disk.Blocked, "this is not the disk")
	other := r.attach("s2", 1)
	r.ok(os.Symlink("../../"+filepath.Base(other.loop), filepath.Join(r.dev, "disk/by-id", "nvme-Alibaba_Cloud_Elastic_Block_Storage_s1")))
	defer other.unchanged()()
	m.refusesStage(r.volume(m), disk.Blocked, "all have serial number s1")
}

func TestADeviceThatIsLateIsWaitedFor(t *testing.T) {
	r, m := newRigWithDisk(t)
	link := filepath.Join(r.dev, "disk/by-id/virtio-s1")
	target, err := os.Readlink(link)
	r.ok(err)
	r.ok(os.Remove(link))
	waiting := make(chan error)
	go func() { waiting <- r.stage(r.volume(m)) }()
	r.ok(os.Symlink(target, link))
	r.ok(<-waiting)
}

func TestAWaitEndsShortlyBeforeItsDeadline(t *testing.T) {
	late := errors.New("late")
	for lasts, want := range map[time.Duration]error{time.Second: nil, time.Hour: late} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+margin)
			defer cancel()
			err := poll(ctx, findTimeout, func() (bool, error) {
				if time.Since(began) >= lasts {
					return true, nil
				}
				return false, late
			})
			if took := time.Since(began); !errors.Is(err, want) || took != min(lasts, 2*time.Second) {
				t.Errorf("got %v after %s, want %v", err, took, want)
			}
		})
	}
}

func TestBadRequestsNameTheFieldAndWhatIsAllowed(t *testing.T) {
	r, m := newRigWithDisk(t)
	outside := t.TempDir()
	link := filepath.Join(r.kubelet, "link")
	r.ok(os.Symlink(outside, link))
	for _, row := range []struct {
		name   string
		change func(*testVolume)
		want   string
	}{
		{"no volume", func(w *testVolume) { w.volume = "" }, "volume_id is missing"},
		{"no capability", func(w *testVolume) { w.capability = nil }, "volume_capability is missing"},
		{"no access type", func(w *testVolume) { w.capability.AccessType = nil }, "access_type is missing; allowed are mount and block"},
		{"no access mode", func(w *testVolume) { w.capability.AccessMode = nil }, "access_mode is missing"},
		{"a shared file system", func(w *testVolume) {
			w.capability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, "is allowed of a block volume"},
		{"no serial", func(w *testVolume) { delete(w.publish, disk.SerialKey) }, `publish_context["serialNumber"] is missing`},
		{"a serial that leads elsewhere", func(w *testVolume) { w.publish[disk.SerialKey] = "../x" }, `"../x" is no serial number`},
		{"a size that is none", func(w *testVolume) { w.publish[disk.SizeKey] = "1Gi" }, `"1Gi" is no number of bytes`},
		{"a file system that is none", asFileSystem("zfs"), `fs_type: "zfs" is not allowed; allowed are ext3, ext4, xfs`},
		{"two options in one", asFileSystem("ext4", "noatime,dev"), `mount_flags[0]: "noatime,dev" is not allowed: allowed is one option`},
		{"an option with a line break", asFileSystem("ext4", "noatime", "a\nb"), `mount_flags[1]`},
		{"an option that mounts elsewhere", asFileSystem("ext4", "bind"), `mount_flags[0]: "bind" is not allowed: no option may name a file or a device, or mount something else`},
		{"an option for the mount program", asFileSystem("ext4", "X-mount.mkdir"), `"X-mount.mkdir" is not allowed`},
		{"no staging path", func(w *testVolume) { w.staging = "" }, "staging_target_path is missing"},
		{"a relative staging path", func(w *testVolume) { w.staging = "kubelet/x" }, "allowed is a clean absolute path"},
		{"a staging path with dots", func(w *testVolume) { w.staging = r.kubelet + "/x/../y" }, "allowed is a clean absolute path"},
		{"a staging path outside", func(w *testVolume) { w.staging = outside }, "allowed is a path below the kubelet's root directory"},
		{"a staging path that is a link", func(w *testVolume) { w.staging = link }, "is a symbolic link"},
		{"a staging path through a link", func(w *testVolume) { w.staging = link + "/x" }, "allowed is a path below the kubelet's root directory"},
		{"a staging path that isn't there", func(w *testVolume) { w.staging = filepath.Join(r.kubelet, "none") }, "does not exist; the kubelet makes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := r.volume(m)
			row.change(&v)
			m.refusesStage(v, disk.Invalid, row.want)
		})
	}
}
