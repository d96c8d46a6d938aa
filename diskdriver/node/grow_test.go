package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/need"
)

// told is what the owners of volumes are told.
type told []string

func (e *told) Warn(volume disk.ID, reason, message string) {
	*e = append(*e, string(volume)+" "+reason+" "+message)
}

// listens has the rig remember what the owners of volumes are told.
func (r *rig) listens() *told {
	e := &told{}
	r.server.events = e
	return e
}

// isShort wants that the owner of a volume of Pod a is told that it is used though its file system doesn't fill its disk, and so are
// those who ask for its health and the count of such volumes.
func (r *rig) isShort(e *told, w testVolume, sizes, text string) {
	r.t.Helper()
	if len(*e) == 0 {
		r.t.Fatal("the volume's owner is told nothing")
	}
	for _, want := range []string{w.volume + " FileSystemNotGrown ", sizes, text} {
		if got := (*e)[len(*e)-1]; !strings.Contains(got, want) {
			r.t.Errorf("the volume's owner is told %q; want it to have %q", got, want)
		}
	}
	r.isIll(w, fileSystemNotGrown)
	answer, err := r.server.NodeGetVolumeHealth(r.t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: w.volume, VolumePublishPath: w.target("a")})
	r.ok(err)
	if entry := answer.VolumeHealth.HealthStatuses[0]; entry.Status != csi.VolumeHealthErrorType_DEGRADED || !strings.Contains(entry.Message, sizes) {
		r.t.Errorf("the volume's health is %v; want it to have %q", entry, sizes)
	}
	if n := r.server.NotGrown(); n != 1 {
		r.t.Errorf("%d volumes are counted; want 1", n)
	}
}

// isFilled wants that nobody is told, and the file system of a volume of Pod a fills its disk.
func (r *rig) isFilled(e *told, w testVolume) {
	r.t.Helper()
	r.isIll(w)
	if n := r.server.NotGrown(); n != 0 || len(*e) > 0 {
		r.t.Errorf("%d volumes are counted, and their owners told %q", n, *e)
	}
}

// backing returns a directory whose files may be larger than 16 TiB.
func backing(t *testing.T) string {
	t.Helper()
	need.Has(t, need.Mounts, need.LoopDevices, need.FileSystem("xfs"))
	r, dir := &rig{t: t}, t.TempDir()
	body, at := filepath.Join(dir, "body"), filepath.Join(dir, "at")
	r.ok(os.Mkdir(at, 0o700))
	r.sh("truncate", "--size=4G", body)
	r.sh("mkfs.xfs", "-q", body)
	r.sh("mount", "-o", "loop", body, at)
	t.Cleanup(func() { r.ok(unix.Unmount(at, 0)) })
	return at
}

// N7: an ext4 whose blocks have numbers of 32 bits ends at 16 TiB.
func TestAFileSystemAtItsLimitIsUsedAsItIs(t *testing.T) {
	dir := backing(t)
	r := newRig(t)
	e, m := r.listens(), r.attachIn(dir, "s1", 15<<10)
	r.sh("mkfs.ext4", "-q", "-O", "^64bit,^resize_inode", "-i", "67108864", "-J", "size=64", m.loop)
	v := r.written(m, "ext4")
	r.ok(r.unstage(v))
	m.grow(17 << 10)
	r.instead("e2fsck", "case \"$*\" in *-f*) exit 8;; esac; exec $REAL \"$@\"") // a check of all of it would be in vain
	v = r.published(m)
	r.holds(filepath.Join(r.target("a"), "file"), "kept")
	const sizes, advice = "15360 GiB of the 17408 GiB", "at most 16384 GiB; copy its files to a new volume"
	r.isShort(e, v, sizes, advice)
	_, err := r.expand(v)
	r.refused(err, disk.Blocked, advice)

	r.restart() // a process knows of volumes that others have mounted once it is asked for statistics
	_, err = r.stats(v, r.target("a"))
	r.ok(err)
	if n := r.server.NotGrown(); n != 1 {
		t.Errorf("after a restart %d volumes are counted; want 1", n)
	}
	r.ok(r.unpublish(v, "a"))
	r.ok(r.unstage(v))
	if n := r.server.NotGrown(); n != 0 {
		t.Errorf("%d volumes that aren't mounted are counted", n)
	}
}

// calls returns how often a program was called that instead has note it in a file.
func (r *rig) calls(file string) int {
	r.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

func TestAFileSystemThatDoesNotGrowIsUsedAsItIs(t *testing.T) {
	for _, row := range []struct{ name, fsType, program, script, text string }{
		{"ext4", "ext4", "resize2fs", "echo no more of this >&2; exit 1", "no more of this"},
		{"ext4 that is damaged", "ext4", "e2fsck", "case \"$*\" in *-n*) echo damage; exit 4;; *-f*) exit 8;; esac; exec $REAL \"$@\"", "damage; take a snapshot of the disk, and repair"},
		{"xfs", "xfs", "xfs_growfs", "echo no more of this >&2; exit 1", "no more of this"},
		{"in vain", "xfs", "xfs_growfs", "exit 0", "have ended without an error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			e := r.listens()
			r.ok(r.unstage(r.written(m, row.fsType)))
			m.grow(2)
			path := os.Getenv("PATH")
			if row.program == "e2fsck" {
				r.instead("resize2fs", "exit 1") // not every kernel lets it grow while it is mounted
			}
			noted := filepath.Join(t.TempDir(), "calls")
			r.instead(row.program, "echo >>"+noted+"\n"+row.script)
			v := r.volume(m, asFileSystem(row.fsType))
			r.ok(r.stage(v))
			tried := r.calls(noted)
			r.ok(r.publish(v, "a"))
			r.holds(filepath.Join(r.target("a"), "file"), "kept")
			if again := r.calls(noted) - tried; again > 0 && row.fsType == "ext4" {
				t.Errorf("it was unmounted for it again: %s was called %d times", row.program, again)
			}
			r.isShort(e, v, "1 GiB of the 2 GiB", row.text)
			_, err := r.expand(v)
			r.refused(err, disk.Blocked, row.text)
			r.ok(r.unpublish(v, "a"))
			r.ok(r.unstage(v))
			*e = nil
			t.Setenv("PATH", path)
			v = r.published(m, asFileSystem(row.fsType))
			r.holdsBytes(v, 15<<27)
			r.isFilled(e, v)
		})
	}
}

// A growth that failed and left a sound file system licenses no repair of what Pods have done to it since, in the same attachment.
func TestAFailedGrowthLicensesNoLaterRepair(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.ok(r.unstage(r.written(m, "ext4")))
	m.grow(2)
	path := os.Getenv("PATH")
	r.instead("resize2fs", "exit 1")
	v := r.volume(m)
	r.ok(r.stage(v))
	r.holds(filepath.Join(v.staging, "file"), "kept")
	r.ok(r.unstage(v))
	t.Setenv("PATH", path)
	r.sh("debugfs", "-w", "-R", "sif /file mode 0", m.loop) // which the kernel has not noted
	noted := filepath.Join(t.TempDir(), "calls")
	r.instead("e2fsck", "case \"$*\" in *-y*) echo >>"+noted+";; esac; exec $REAL \"$@\"")
	r.ok(r.stage(v))
	r.ok(r.unstage(v))
	if n := r.calls(noted); n > 0 {
		t.Errorf("e2fsck was to repair all that it finds %d times", n)
	}
	if files := r.sh("debugfs", "-R", "ls -l /", m.loop); !strings.Contains(files, "file") {
		t.Errorf("the file is gone; left is %s", files)
	}
}

// Of an attachment whose time isn't known neither a record of growth nor a check says anything that was made in an earlier one.
func TestAnAttachmentWithoutATimeIsTakenForAnother(t *testing.T) {
	without := func(w *testVolume) { delete(w.publish, disk.AttachedKey) }
	t.Run("growth", func(t *testing.T) {
		r, m := newRigWithDisk(t)
		v := r.volume(m, usedBefore, without)
		u, err := parseVolumeUse(v.stageRequest(), disk.AllowedOptions{})
		r.ok(err)
		r.ok(r.server.records.noteGrowth(u))
		used("ext4")(r, m)
		r.sh("debugfs", "-w", "-R", "clri <2>", m.loop) // as happens elsewhere
		m.refusesStage(v, disk.Blocked, "repair it by hand")
	})
	t.Run("check", func(t *testing.T) {
		r, m := newRigWithDisk(t)
		v := r.volume(m, usedBefore, without)
		<-r.checkIsRunning(v).ended
		r.sh("losetup", "--detach", m.loop)
		r.sh("losetup", m.loop, m.file)
		m.write(elsewhere, []byte("a row"))
		m.refusesStage(v, disk.Blocked, "holds data")
	})
}

// What a growth that failed has damaged is repaired before it is mounted again, and not mounted as long as that fails.
func TestWhatAFailedGrowthHasLeftIsRepairedBeforeItIsMounted(t *testing.T) {
	for name, repair := range map[string]string{"at once": "exec $REAL \"$@\"", "by the next call": "[ -e $DONE ] || { touch $DONE; exit 12; }; exec $REAL \"$@\""} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			r.ok(r.unstage(r.written(m, "ext4")))
			m.grow(2)
			calls := filepath.Join(t.TempDir(), "calls")
			r.instead("resize2fs", "case \"$*\" in -f*) debugfs -w -R 'sif /file links_count 7' $2;; esac; exit 1")
			r.instead("e2fsck", "DONE="+filepath.Join(t.TempDir(), "done")+"\ncase \"$*\" in *-y*) echo >>"+calls+"; "+repair+";; esac; exec $REAL \"$@\"")
			v := r.volume(m, func(w *testVolume) { w.context[disk.UncheckedKey] = "true" })
			if name == "by the next call" {
				r.refused(r.stage(v), disk.Blocked, "was put back")
				r.isMounted(v.staging, 0)
			}
			r.ok(r.stage(v))
			r.holds(filepath.Join(v.staging, "file"), "kept")
			r.ok(r.publish(v, "a")) // it is not tried again while it is staged
			if want := map[string]int{"at once": 1, "by the next call": 3}[name]; r.calls(calls) != want {
				t.Errorf("it was repaired %d times, want %d", r.calls(calls), want)
			}
			r.ok(r.unpublish(v, "a"))
			r.ok(r.unstage(v))
			r.sh("e2fsck", "-f", "-n", m.loop)
			if _, err := os.Lstat(r.server.records.growth("s1")); err == nil {
				t.Error("the record of the growth is left")
			}
		})
	}
}

// resize2fs counts the free blocks of clusters wrong, and only its -f has it go on: files would be written to blocks that aren't there.
func TestAFileSystemOfClustersIsNotForcedToGrow(t *testing.T) {
	r := newRig(t)
	e, m := r.listens(), r.attach("s1", 4)
	used("ext4", "-O", "bigalloc")(r, m)
	m.grow(7)
	r.instead("resize2fs", "case $1 in -*) ;; *) exit 1;; esac; exec $REAL \"$@\"") // not every kernel lets it grow while it is mounted
	v := r.published(m, usedBefore)
	r.isShort(e, v, "4 GiB of the 7 GiB", "with the feature bigalloc it grows only while it is mounted")
	r.ok(r.unpublish(v, "a"))
	r.ok(r.unstage(v))
	r.sh("e2fsck", "-f", "-n", m.loop)
}

// That resize2fs has ended well does not say that the file system is sound.
func TestWhatAGrowthHasLeftIsChecked(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.ok(r.unstage(r.written(m, "ext4")))
	m.grow(2)
	r.instead("resize2fs", "case \"$*\" in -f*) $REAL \"$@\"; exec debugfs -w -R 'sif /file links_count 7' $2;; esac; exit 1")
	v := r.published(m)
	r.holds(filepath.Join(r.target("a"), "file"), "kept")
	r.holdsBytes(v, 15<<27)
	r.ok(r.unpublish(v, "a"))
	r.ok(r.unstage(v))
	r.sh("e2fsck", "-f", "-n", m.loop)
}

// A file system that was unmounted to grow and can't be mounted again is no use.
func TestAFileSystemThatIsLostWhileItGrowsIsAnError(t *testing.T) {
	r, m := newRigWithDisk(t)
	e := r.listens()
	r.ok(r.unstage(r.written(m, "ext4")))
	m.grow(2)
	path, noted := os.Getenv("PATH"), filepath.Join(t.TempDir(), "calls")
	r.instead("resize2fs", "exit 1")
	r.instead("mount", "echo >>"+noted+"\n[ $(wc -l <"+noted+") -gt 2 ] && exit 32; exec $REAL \"$@\"")
	v := r.volume(m)
	r.refused(r.stage(v), disk.Blocked, "mount "+m.loop)
	if n := r.server.NotGrown(); n != 0 || len(*e) > 0 {
		t.Errorf("%d volumes are counted, and their owners told %q", n, *e)
	}
	t.Setenv("PATH", path)
	r.ok(r.stage(v))
}

// N10
func TestAPartitionOfALargerDiskGrowsAtStage(t *testing.T) {
	for _, label := range []string{"gpt", "dos"} {
		for _, fsType := range []string{"ext4", "xfs"} {
			t.Run(label+" "+fsType, func(t *testing.T) {
				r, m := newRigWithDisk(t)
				e := r.listens()
				r.partitionAs(label, m, ",")
				r.sh("mkfs."+fsType, "-q", m.loop+"p1")
				r.ok(r.unstage(r.written(m, fsType)))
				m.grow(3)
				v := r.published(m, asFileSystem(fsType), origin(disk.OriginSnapshot))
				r.holds(filepath.Join(r.target("a"), "file"), "kept")
				r.holdsBytes(v, 5<<29)
				r.isFilled(e, v)
				r.sh("sfdisk", "--verify", m.loop)
			})
		}
	}
}

// sfdisk makes a partition smaller that is to grow beyond what a table of type dos has numbers for.
func TestAPartitionIsNeverMadeSmaller(t *testing.T) {
	r := newRig(t)
	e, m := r.listens(), r.attach("s1", 2047)
	r.partitionAs("dos", m, ",")
	r.sh("mkfs.xfs", "-q", m.loop+"p1")
	r.ok(r.unstage(r.written(m, "xfs")))
	table := func() string {
		_, shown, _ := strings.Cut(r.sh("sfdisk", "--dump", m.loop), "label:") // after a warning
		return shown
	}
	before := table()
	m.grow(3 << 10)
	v := r.published(m, asFileSystem("xfs"))
	r.holds(filepath.Join(r.target("a"), "file"), "kept")
	r.isShort(e, v, "2047 GiB of the 3072 GiB", "type dos, which reaches no further than 2048 GiB")
	_, err := r.expand(v)
	r.refused(err, disk.Blocked, "copy its files to a new volume")
	if now := table(); now != before {
		t.Errorf("the table was %s\nand is %s", before, now)
	}
}

// The kernel may not show all partitions of a table.
func TestAPartitionThatIsNotAloneIsLeft(t *testing.T) {
	r := newRig(t)
	e, m := r.listens(), r.attach("s1", 2)
	r.partition(m, ",500M", ",500M")
	r.sh("partx", "--delete", "--nr", "2", m.loop)
	r.sh("mkfs.xfs", "-q", m.loop+"p1")
	v := r.published(m, asFileSystem("xfs"))
	r.isShort(e, v, "0.5 GiB of the 2 GiB", "2 partitions, and only one that is alone")
}

// N16
func TestAVolumeThatAPodReadsGrows(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m, asFileSystem("xfs"))
	v.readOnly = true
	r.ok(r.stage(v))
	r.ok(r.publish(v, "a"))
	m.grow(2)
	elsewhere := v
	elsewhere.staging = r.directory("elsewhere")
	_, err := r.expand(elsewhere)
	r.refused(err, disk.Blocked, "1 GiB of the 2 GiB")
	r.expands(v)
	r.isReadOnly(filepath.Join(r.target("a"), "file"))
}

// What a disk is read for only is left as it is, and as it should be.
func TestAFileSystemForReadingIsAsItShouldBe(t *testing.T) {
	r, m := newRigWithDisk(t)
	r.ok(r.unstage(r.written(m, "ext4")))
	m.grow(2)
	e := r.listens()
	r.isFilled(e, r.published(m, readOnlyNode))
}
