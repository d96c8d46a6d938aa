package node

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	ioError = regexp.MustCompile(`(?i)\b(input/output|i/o|read|write) error\b`)
	advice  = regexp.MustCompile(`(?i)repair|e2fsck|wipe|damaged|by hand`)
)

// refusesIO wants a volume not to be staged for an I/O error, which is said to be one, and no byte of the disk to change.
func (m *testDisk) refusesIO(v testVolume) {
	m.rig.t.Helper()
	defer m.unchanged()()
	err := m.rig.stage(v)
	switch {
	case err == nil:
		m.rig.t.Error("it is staged")
	case !ioError.MatchString(err.Error()):
		m.rig.t.Errorf("it doesn't say that this is an I/O error: %v", err)
	case advice.MatchString(err.Error()):
		m.rig.t.Errorf("it gives advice on what can't be read: %v", err)
	}
}

// What can't be read is not damaged: nobody is to repair or wipe it, and it is mounted once it can be read (N8).
func TestReadErrorIsSaidToBeOne(t *testing.T) {
	for _, row := range []struct {
		name     string
		from, to int64
		fsTypes  string
	}{
		{"the first 4 KiB", 0, 4 << 10, "ext3 ext4 xfs"},
		{"all but the first 4 KiB", 4 << 10, 1 << 30, "ext3 ext4 xfs"},
		{"the middle with the journal", 400 << 20, 700 << 20, "ext4 xfs"},
		{"all", 0, 1 << 30, "ext4 xfs"},
	} {
		for fsType := range strings.FieldsSeq(row.fsTypes) {
			t.Run(fsType+" "+row.name, func(t *testing.T) {
				r := newRig(t)
				m := r.attachBody("s1", 1)
				v := r.written(m, fsType)
				r.ok(r.unstage(v))
				m.sum() // empties the kernel's cache of the device
				end := m.body.fails(reads, row.from, row.to)
				m.refusesIO(v)
				end()
				r.ok(r.stage(v))
				r.holds(filepath.Join(v.staging, "file"), "kept")
			})
		}
	}
}

// A disk of which a part can't be read is not blank.
func TestReadErrorOfBlankDiskIsSaidToBeOne(t *testing.T) {
	for name, from := range map[string]int64{"head": 0, "middle": 400 << 20, "end": 1<<30 - 64<<10} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			m := r.attachBody("s1", 1)
			v := r.volume(m)
			end := m.body.fails(reads, from, from+300<<20)
			m.refusesIO(v)
			end()
			r.ok(r.stage(v))
		})
	}
}

// A format that fails for the disk is done again once the disk takes it.
func TestWriteErrorOfFormatIsSaidToBeOne(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		for name, from := range map[string]int64{"from the head on": 0, "from the middle on": 400 << 20} {
			t.Run(fsType+" "+name, func(t *testing.T) {
				r := newRig(t)
				m := r.attachBody("s1", 1)
				v := r.volume(m, asFileSystem(fsType))
				end := m.body.fails(writes|discards, from, 1<<30)
				if err := r.stage(v); err == nil || !ioError.MatchString(err.Error()) {
					t.Errorf("it doesn't say that this is an I/O error: %v", err)
				}
				end()
				r.ok(r.stage(v))
			})
		}
	}
}
