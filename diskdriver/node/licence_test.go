package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// elsewhere is between two samples of a disk of 1 GiB, and where no copy of a superblock is.
const elsewhere = 700<<20 + 600<<10

// No place that is looked at is that of a format's mark, which is looked at by itself.
func TestTheMarkIsInNoPlaceThatIsLookedAt(t *testing.T) {
	for gib := int64(1); gib <= 64<<10; gib *= 2 {
		size := gib << 30
		for _, p := range places(size) {
			if mark := size - markFromEnd; p.at < mark+markSize && mark < p.at+int64(p.size) || p.at+int64(p.size) > size {
				t.Errorf("of %d GiB, %d bytes at %d are looked at", gib, p.size, p.at)
			}
		}
	}
}

// A disk that may have been used is formatted only if every byte of it is zero, which a call finds out a little at a time.
func TestADiskThatMayBeUsedIsReadToItsEnd(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m, usedBefore)
	m.write(elsewhere, []byte{1})
	m.refusesStage(v, disk.Blocked, "holds data, the first of it in the MiB at byte 734003200")
	m.write(elsewhere, []byte{0})
	r.ok(r.stage(v))
}

func TestALargeDiskThatMayBeUsedIsRefused(t *testing.T) {
	r := newRig(t)
	m := r.attach("s1", 21)
	m.refusesStage(r.volume(m, usedBefore), disk.Blocked, "disks of at most 20 GiB are read to their end to make sure (--blank-check-limit), and this one has 21 GiB")
	r.ok(r.stage(r.volume(m)))
}

// What is read is let go when the volume is unstaged, so that the disk can be detached.
func TestAnUnstageEndsTheCheckOfADisk(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.server.blanks.Rate = 1 << 20
	v := r.volume(m, usedBefore)
	ctx, cancel := context.WithTimeout(t.Context(), margin+2*time.Second)
	defer cancel()
	_, err := r.server.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.volume, PublishContext: v.publish, VolumeContext: v.context, StagingTargetPath: v.staging, VolumeCapability: v.capability,
	})
	r.refused(err, disk.Pending, "of 1024 MiB are zeros so far")
	r.ok(r.unstage(v))
	if n := len(r.server.blanks.running); n > 0 {
		t.Errorf("%d disks are read", n)
	}
}

// checkIsRunning begins the check of a volume's disk, as its stage does, and returns it.
func (r *rig) checkIsRunning(v testVolume) *blankCheck {
	r.t.Helper()
	u, err := parseVolumeUse(v.stageRequest(), disk.AllowedOptions{})
	r.ok(err)
	d, _, err := r.server.devices.findOnce(u.serial)
	r.ok(err)
	check, err := r.server.blanks.begin(r.t.Context(), u, d)
	r.ok(err)
	return check
}

// A check that ended before the disk was away says nothing of what was written elsewhere.
func TestACheckOfAnEarlierAttachmentIsNotBelieved(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m, usedBefore, func(w *testVolume) { w.publish[disk.AttachedKey] = "2026-11-24T10:00:00Z" })
	<-r.checkIsRunning(v).ended
	// It is detached without an unstage, as after the kubelet was restarted, and comes back with the same name and number.
	r.sh("losetup", "--detach", m.loop)
	r.sh("losetup", m.loop, m.file)
	m.write(elsewhere, []byte("a row"))
	v.publish[disk.AttachedKey] = "2026-11-24T18:00:00Z"
	m.refusesStage(v, disk.Blocked, "holds data")
}

// What was read of a disk before a Pod has it as a block volume says nothing of what the Pod writes, whether or not it was unstaged.
func TestStagingABlockVolumeEndsTheCheckOfItsDisk(t *testing.T) {
	for name, rate := range map[string]int64{"that goes on": 64 << 20, "that has ended": 8 << 30} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			r.server.blanks.Rate = rate
			v := r.volume(m, usedBefore)
			check := r.checkIsRunning(v)
			if name == "that has ended" {
				<-check.ended
			}
			block := v
			asBlock(&block)
			r.ok(r.stage(block))
			select {
			case <-check.ended:
			default:
				t.Error("the disk is read still")
			}
			r.ok(r.publish(block, "a"))
			m.write(piece, []byte("a row")) // where the check was first
			m.write(elsewhere, []byte("a row"))
			r.ok(r.unpublish(block, "a"))
			m.refusesStage(v, disk.Blocked, "")
			m.write(piece, make([]byte, piece))
			r.server.blanks.Rate = 8 << 30
			m.refusesStage(v, disk.Blocked, "holds data")
		})
	}
}

// The node records that a disk is used before the disk is mounted or bound, for as long as a VolumeAttachment may say that it is new.
func TestADiskIsRecordedBeforeItsFirstUse(t *testing.T) {
	for name, access := range map[string]func(*testVolume){"mount": func(*testVolume) {}, "block": asBlock} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			v := r.volume(m, access)
			r.ok(r.stage(v))
			r.restart()
			if !r.server.records.has("s1") {
				t.Error("there is no record")
			}
		})
	}
}

// A block volume whose disk comes back as a file system, in the same attachment, is not formatted over its bytes.
func TestABlockVolumeThatComesBackIsNotFormatted(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m)
	block := v
	asBlock(&block)
	r.ok(r.stage(block))
	m.write(elsewhere, []byte("a row"))
	r.ok(r.unstage(block))
	m.refusesStage(v, disk.Blocked, "holds data")
}

// A format that was cut short is not done again over what a Pod has written since to the disk as a block volume, on any node.
func TestABlockVolumeLicensesNoFormatThatWasCutShort(t *testing.T) {
	for _, name := range []string{"only the mark", "interrupted mkfs.ext4", "noted on the node by the version before"} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			v := r.volume(m, usedBefore)
			if name != "only the mark" {
				fillings["interrupted mkfs.ext4"].fill(r, m)
			}
			if name == "noted on the node by the version before" {
				note := r.server.formatting01(volumeUse{serial: "s1"})
				r.ok(os.MkdirAll(filepath.Dir(note), 0o700))
				r.put(note, "d-s1\n"+v.publish[disk.AttachedKey]+"\n")
			} else {
				m.mark("s1", "ext4")
			}
			block := v
			asBlock(&block)
			r.ok(r.stage(block))
			r.ok(r.publish(block, "a"))
			m.write(elsewhere, []byte("a row"))
			r.ok(r.unpublish(block, "a"))
			r.ok(r.unstage(block))
			m.refusesStage(v, disk.Blocked, "")
		})
	}
}

// A Pod that only reads a block volume changes nothing of it: what licenses a format before does so after.
func TestABlockVolumeForReadingKeepsTheMark(t *testing.T) {
	r, m := newRigWithDisk(t)
	m.mark("s1", "ext4")
	check := m.unchanged()
	reader := r.published(m, usedBefore, asBlock, readOnlyNode)
	r.ok(r.unpublish(reader, "a"))
	r.ok(r.unstage(reader))
	check()
	r.server.blanks.Limit = 0 // so that nothing but the mark licenses it
	r.ok(r.stage(r.volume(m, usedBefore)))
}

func TestRecordsKnowHowFarTheyGoBack(t *testing.T) {
	r := records{dir: filepath.Join(t.TempDir(), "records")}
	if err := r.begin(); err != nil {
		t.Fatal(err)
	}
	begun, err := r.begun()
	if err != nil {
		t.Fatal(err)
	}
	minute := begun.Truncate(time.Minute)
	for _, row := range []struct {
		name, attached string
		want           bool
	}{
		{"just now", begun.Add(time.Second).Format(time.RFC3339), true},
		{"in the same minute, to the minute", minute.Format("2006-01-02T15:04Z"), true},
		{"a minute before, to the minute", minute.Add(-time.Minute).Format("2006-01-02T15:04Z"), false},
		{"two minutes before", begun.Add(-2 * time.Minute).Format(time.RFC3339), false},
		{"not said", "", false},
		{"no time", "yesterday", false},
	} {
		if got := r.cover(row.attached); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
	if err := writeDurably(r.since(), begun.Add(-10*rememberedFor).Format(time.RFC3339Nano)); err != nil {
		t.Fatal(err)
	}
	if r.cover(begun.Add(-rememberedFor - time.Hour).Format(time.RFC3339)) {
		t.Error("records of an attachment are believed that may have been dropped")
	}
}

// The version before noted on the node that a format began: an upgrade in its middle does it again.
func TestAFormatThatAnUpgradeCutShortIsDoneAgain(t *testing.T) {
	for name, attached := range map[string]string{"of this attachment": "2026-11-24T10:00:00Z", "of an earlier one": "2026-11-23T10:00:00Z"} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			interrupted := fillings["interrupted mkfs.ext4"]
			interrupted.fill(r, m)
			v := r.volume(m, usedBefore, func(v *testVolume) { v.publish[disk.AttachedKey] = "2026-11-24T10:00:00Z" })
			note := filepath.Join(r.server.plugin, "formatting", "s1")
			r.ok(os.MkdirAll(filepath.Dir(note), 0o700))
			r.put(note, "d-s1\n"+attached+"\n")
			if attached != v.publish[disk.AttachedKey] {
				m.refusesStage(v, disk.Blocked, "a copy of its superblock is left")
				return
			}
			r.ok(r.stage(v))
			r.isEmpty(filepath.Dir(note))
		})
	}
}

// A format that is done again, and cut short before it writes, is done again: what the first has left is still known as its own.
func TestAFormatThatIsCutShortTwiceIsDoneAgain(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		for name, begun := range map[string]func(r *rig, m *testDisk, v testVolume){
			"marked on the disk": func(_ *rig, m *testDisk, _ testVolume) { m.mark("s1", fsType) },
			"noted on the node by the version before": func(r *rig, _ *testDisk, v testVolume) {
				note := r.server.formatting01(volumeUse{serial: "s1"})
				r.ok(os.MkdirAll(filepath.Dir(note), 0o700))
				r.put(note, "d-s1\n"+v.publish[disk.AttachedKey]+"\n")
			},
		} {
			t.Run(fsType+" "+name, func(t *testing.T) {
				r, m := newRigWithDisk(t)
				fillings["interrupted mkfs."+fsType].fill(r, m)
				v := r.volume(m, usedBefore, asFileSystem(fsType))
				begun(r, m, v)
				fails := filepath.Join(t.TempDir(), "fails")
				r.put(fails, "")
				r.instead("mkfs."+fsType, "for path; do :; done; [ -b $path -a -e "+fails+" ] && exit 1; exec $REAL \"$@\"")
				r.refused(r.stage(v), disk.Unexpected, "exit status 1")
				r.ok(os.Remove(fails))
				r.ok(r.stage(v))
				r.isMounted(v.staging, 1)
			})
		}
	}
}

// mkfs lays a file system out by the size of the disk's sectors, which a file doesn't have.
func TestAFormatOfLargeSectorsThatIsCutShortIsDoneAgain(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			r := newRig(t)
			m := &testDisk{rig: r, serial: "s1", file: filepath.Join(t.TempDir(), "body"), size: 1 << 30}
			m.truncate(m.size)
			m.connect(m.file, "--sector-size=4096")
			v := r.volume(m, usedBefore, asFileSystem(fsType))
			fillings["interrupted mkfs."+fsType].fill(r, m)
			m.mark("s1", fsType)
			r.ok(r.stage(v))
			r.isMounted(v.staging, 1)
		})
	}
}

// What a process that was killed has left of a file system that it made to compare with the disk is gone after a start, and no more.
func TestAStartRemovesWhatAKilledProcessMadeToCompare(t *testing.T) {
	r, m := newRigWithDisk(t)
	fillings["interrupted mkfs.ext4"].fill(r, m)
	m.mark("s1", "ext4")
	v := r.volume(m, usedBefore)
	path, begun := os.Getenv("PATH"), filepath.Join(r.dev, "begun")
	r.instead("mkfs.ext4", "for path; do :; done; $REAL \"$@\"; if [ -f $path ]; then touch "+begun+"; exec sleep 60; fi")
	k := r.newKiller("ext4", 0, nil)
	plugin, ended := csi.NewNodeClient(k.plugin.connection), make(chan error, 1)
	go func() {
		_, err := plugin.NodeStageVolume(t.Context(), v.stageRequest())
		ended <- err
	}()
	r.ok(eventually(20*time.Second, func() error {
		_, err := os.Lstat(begun)
		return err
	}))
	k.kill(false)
	<-ended
	pattern := filepath.Join(r.server.plugin, "format-*")
	if left, _ := filepath.Glob(pattern); len(left) != 1 {
		t.Fatalf("left is %v, want one file", left)
	}
	other := filepath.Join(r.server.plugin, "formatting", "s2") // of the version before
	r.ok(os.MkdirAll(filepath.Dir(other), 0o700))
	r.put(other, "")
	t.Setenv("PATH", path)
	r.restart()
	if left, _ := filepath.Glob(pattern); len(left) > 0 {
		t.Errorf("left is %v", left)
	}
	r.holds(other, "")
	r.ok(r.stage(v))
}

// A node whose own file system has no file as large as the disk can't see what a format has left, and says what to do.
func TestAFormatOfADiskLargerThanAnyFileOfTheNodeIsRefused(t *testing.T) {
	r := newRig(t)
	m := r.attachIn(backing(t), "s1", 17<<10)
	m.mark("s1", "xfs")
	host := filepath.Join(t.TempDir(), "host")
	r.sh("truncate", "--size=8G", host)
	r.sh("mkfs.ext4", "-q", host)
	r.sh("mount", "-o", "loop", host, r.server.plugin)
	r.restart()
	m.refusesStage(r.volume(m, usedBefore, asFileSystem("xfs")), disk.Blocked, "takes a file of 17408 GiB, as large as the disk")
	if left, _ := filepath.Glob(filepath.Join(r.server.plugin, "format-*")); len(left) > 0 {
		t.Errorf("left is %v", left)
	}
}

// A context that names another volume, or has the serial number of another disk, is of a VolumeAttachment that outlived its volume.
func TestAContextOfAnotherVolumeIsRefused(t *testing.T) {
	r, m := newRigWithDisk(t)
	other := r.attach("s2", 1)
	defer other.unchanged()()
	for name, publish := range map[string]map[string]string{
		"of now":         {disk.VolumeKey: "d-s2", disk.SerialKey: "s2"},
		"named only":     {disk.VolumeKey: "d-s2", disk.SerialKey: "s1"},
		"of version 0.1": {disk.SerialKey: "s2"},
	} {
		t.Run(name, func(t *testing.T) {
			v := r.volume(m)
			v.publish = publish
			m.refusesStage(v, disk.Invalid, "the context is of another volume")
			r.refused(r.publish(v, "a"), disk.Invalid, "the context is of another volume")
		})
	}
}

// A file system that died under its mount is no use to the next Pod: it is mounted anew, or the error says who has it.
func TestADeadFileSystemIsNotHandedOn(t *testing.T) {
	onEach(t, []string{"ext4", "xfs"}, func(r *rig, m *testDisk, fsType string) {
		v := r.written(m, fsType)
		r.sh("sync", "-f", v.staging)
		r.shutDown(v.staging)
		r.ok(r.publish(v, "a"))
		r.holds(filepath.Join(r.target("a"), "file"), "kept")
		r.put(filepath.Join(r.target("a"), "more"), "kept")
		r.sh("sync", "-f", v.staging)
		r.shutDown(v.staging)
		r.isUnhealthy(v, "FileSystemReadOnly", "Unreadable")
		for name, err := range map[string]error{"publish": r.publish(v, "b"), "stage": r.stage(v)} {
			if disk.KindOf(err) != disk.Blocked || !strings.Contains(err.Error(), "pods/a") {
				r.t.Errorf("%s: %v", name, err)
			}
		}
		r.ok(r.unpublish(v, "a"))
		r.ok(r.publish(v, "b"))
		r.holds(filepath.Join(r.target("b"), "more"), "kept")
	})
}

// A file system that died is no use to the next Pod if the staging mount was lost, either: the mount is not made again over it.
func TestADeadFileSystemIsNotStagedAgain(t *testing.T) {
	for _, row := range []struct {
		name    string
		fsTypes []string
		reads   bool // the Pod that has it
		die     func(r *rig, at string)
	}{
		{"shut down", []string{"ext4", "xfs"}, false, (*rig).shutDown},
		{"shut down while a Pod reads", []string{"ext4", "xfs"}, true, (*rig).shutDown},
		{"made read-only", []string{"ext4"}, false, func(r *rig, at string) { r.sh("mount", "-o", "remount,abort", at) }}, // xfs never is
	} {
		t.Run(row.name, func(t *testing.T) {
			onEach(t, row.fsTypes, func(r *rig, m *testDisk, fsType string) {
				v := r.written(m, fsType)
				w := v
				w.readOnly = row.reads
				r.ok(r.publish(w, "a"))
				r.sh("sync", "-f", v.staging)
				row.die(r, v.staging)
				r.ok(unix.Unmount(v.staging, 0))
				r.refused(r.stage(v), disk.Blocked, "pods/a")
				r.refused(r.publish(v, "b"), disk.Blocked, "pods/a")
				r.isMounted(v.staging, 0)
				r.ok(r.unpublish(v, "a"))
				r.ok(r.publish(v, "b"))
				r.holds(filepath.Join(r.target("b"), "file"), "kept")
			})
		})
	}
}

// A Pod's subPath may be a file, which says nothing of the file system's health.
func TestASubPathThatIsAFileIsNoDeadFileSystem(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m, likeKubelet(r))
	r.put(filepath.Join(v.target("a"), "file"), "kept")
	sub := filepath.Join(r.directory("pods/a/volume-subpaths/d-s1/app"), "0")
	r.put(sub, "")
	r.ok(unix.Mount(filepath.Join(v.target("a"), "file"), sub, "", unix.MS_BIND, ""))
	for _, at := range []string{v.staging, v.target("a")} {
		r.ok(unix.Unmount(at, 0))
	}
	r.ok(r.publish(v, "b"))
	r.holds(filepath.Join(v.target("b"), "file"), "kept")
}

// shutDown has the kernel end a file system as after an error that it can't go on from (Linux, EXT4_IOC_SHUTDOWN).
func (r *rig) shutDown(at string) {
	r.t.Helper()
	dir, err := os.Open(at)
	r.ok(err)
	defer func() { _ = dir.Close() }()
	const shutDown, withoutFlush = 0x8004587d, 2
	r.ok(unix.IoctlSetPointerInt(int(dir.Fd()), shutDown, withoutFlush))
}

// isUnhealthy wants a volume of Pod a to have one of some problems.
func (r *rig) isUnhealthy(v testVolume, reasons ...string) {
	r.t.Helper()
	answer, err := r.server.NodeGetVolumeHealth(r.t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v.volume, StagingTargetPath: v.staging, VolumePublishPath: v.target("a")})
	r.ok(err)
	for _, found := range answer.GetVolumeHealth().GetHealthStatuses() {
		for _, reason := range reasons {
			if found.GetReason() == reason {
				return
			}
		}
	}
	r.t.Errorf("the health is %v, want one of %v", answer.GetVolumeHealth().GetHealthStatuses(), reasons)
}

// A staging mount of another device is of a disk that left and came back, or of another one: nobody can use it as the volume.
func TestAStagingMountOfAnotherDeviceIsReplaced(t *testing.T) {
	r, m := newRigWithDisk(t)
	other := r.attach("s2", 1)
	used("ext4")(r, other)
	v := r.written(m, "ext4")
	r.ok(r.unstage(v))
	r.sh("mount", other.loop, v.staging)
	r.isUnhealthy(v, "AnotherDevice")
	r.ok(r.publish(v, "a"))
	r.holds(filepath.Join(r.target("a"), "file"), "kept")
	r.ok(r.unpublish(v, "a"))
	r.ok(r.unstage(v))

	r.sh("mount", other.loop, v.staging)
	r.ok(os.MkdirAll(r.target("b"), 0o750))
	r.sh("mount", "--bind", v.staging, r.target("b"))
	r.refused(r.stage(v), disk.Blocked, "pods/b")
}

// What is at the path of a volume is another disk's once the volume's has gone: it is neither measured nor grown in its name.
func TestAnotherDiskIsNeitherMeasuredNorGrown(t *testing.T) {
	for name, access := range map[string]func(*testVolume){"mount": asFileSystem("xfs"), "block": asBlock} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			other := r.attach("s2", 1)
			r.sh("mkfs.xfs", "-q", other.loop)
			other.grow(2)
			v := r.volume(m, access)
			if v.capability.GetBlock() != nil {
				r.bind(other.loop, v.target("a"))
			} else {
				r.ok(os.MkdirAll(v.target("a"), 0o750))
				r.sh("mount", other.loop, v.target("a"))
			}
			_, err := r.stats(v, v.target("a"))
			r.refused(err, disk.Blocked, "has another disk than d-s1")
			_, err = r.expand(v)
			r.refused(err, disk.Blocked, "has another disk than d-s1")
			if name == "mount" {
				if size, err := sizeOfXFS(v.target("a")); err != nil || size > 1<<30 {
					t.Errorf("the file system of the other disk has %d bytes, %v", size, err)
				}
			}
		})
	}
}

// A process that is killed while it tries whether a file system can be mounted leaves it mounted read-only.
func TestATryThatWasCutShortIsMountedForWriting(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.written(m, "ext4")
	r.ok(r.unstage(v))
	r.sh("blockdev", "--setro", m.loop)
	r.sh("mount", "-o", "ro", m.loop, v.staging)
	r.restart()
	r.ok(r.publish(v, "a"))
	r.holds(filepath.Join(r.target("a"), "file"), "kept")
	r.put(filepath.Join(r.target("a"), "more"), "kept")
}

// Another disk may take the device's name while the volume is mounted or bound: then it is not handed to the Pod.
func TestADeviceThatIsSwappedIsNotHandedOn(t *testing.T) {
	for name, access := range map[string]func(*testVolume){"mount": func(*testVolume) {}, "block": asBlock} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			other := r.attach("s2", 1)
			used("ext4")(r, m)
			v := r.volume(m, access)
			link := filepath.Join(r.dev, "disk/by-id/virtio-s1")
			r.ok(r.stage(v))
			r.instead("mount", "$REAL \"$@\" && ln -sfn ../../"+filepath.Base(other.loop)+" "+link)
			r.refused(r.publish(v, "a"), disk.Pending, "is not the disk with serial number s1 any more")
			if _, mounted, err := r.server.mounts.at(r.target("a")); err != nil || mounted {
				t.Errorf("it is mounted: %v, %v", mounted, err)
			}
		})
	}
}

func TestAnUnstageOfABlockVolumeThatAPodHasIsRefused(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m, asBlock)
	r.restart()
	r.refused(r.unstage(v), disk.InUse, "published still")
	r.ok(r.unpublish(v, "a"))
	r.ok(r.unstage(v))
}

// What the driver hasn't made of the volume stays, and the error names it.
func TestOnlyWhatTheDriverMadeIsTakenAway(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m)
	r.put(filepath.Join(r.target("a"), "file"), "kept")
	other := r.volume(r.attach("s2", 1))
	other.staging = v.staging
	r.refused(r.unstage(other), disk.Invalid, "has another disk than d-s2")
	r.refused(r.unpublish(other, "a"), disk.Invalid, "has another disk than d-s2")
	r.holds(filepath.Join(r.target("a"), "file"), "kept")

	r.put(r.target("file"), "of somebody else")
	r.refused(r.unpublish(v, "file"), disk.Blocked, "is a file that the driver didn't make")
	r.holds(r.target("file"), "of somebody else")
	r.ok(os.MkdirAll(r.target("dir"), 0o750))
	r.put(filepath.Join(r.target("dir"), "file"), "of somebody else")
	r.refused(r.unpublish(v, "dir"), disk.Blocked, "holds 1 files")
	r.refused(r.publish(v, "dir"), disk.Blocked, "holds 1 files")
	r.holds(filepath.Join(r.target("dir"), "file"), "of somebody else")

	block := r.volume(r.attach("s3", 1), asBlock)
	r.ok(r.stage(block))
	r.refused(r.publish(block, "file"), disk.Blocked, "is a file that the driver didn't make")
	r.refused(r.publish(block, "dir"), disk.Blocked, "holds 1 files")
	r.refused(r.unpublish(block, "file"), disk.Blocked, "is a file that the driver didn't make")
	r.holds(r.target("file"), "of somebody else")
	r.put(r.target("empty"), "") // as a publish leaves it that was cut short before the bind
	r.ok(r.publish(block, "empty"))
	r.ok(r.unpublish(block, "empty"))

	r.put(filepath.Join(r.kubelet, "x"), "")
	for _, id := range []string{"../x", "a/b", "..", "."} {
		bad := v
		bad.volume = id
		for name, err := range map[string]error{"stage": r.stage(bad), "publish": r.publish(bad, "a"), "unpublish": r.unpublish(bad, "a"), "unstage": r.unstage(bad)} {
			if disk.KindOf(err) != disk.Invalid || !strings.Contains(err.Error(), "volume_id") {
				t.Errorf("%s of %q: %v", name, id, err)
			}
		}
	}
	r.holds(filepath.Join(r.kubelet, "x"), "")
}

// The error of a device that is in use says by what.
func TestWhoUsesADeviceIsNamed(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.sh("mkfs.ext4", "-q", m.loop)
	elsewhere := t.TempDir()
	r.sh("mount", m.loop, elsewhere)
	defer func() { r.ok(unix.Unmount(elsewhere, 0)) }()
	r.refused(r.stage(r.volume(m)), disk.InUse, "a mount at "+elsewhere)
}
