package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
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

// The kubelet asks again when a call takes too long, and the kernel keeps each thread that waits for a disk.
func TestHangingDiskCostsFewThreads(t *testing.T) {
	rows := []struct {
		fsType, name string
		of           operation
	}{{"ext4", "reads", reads}, {"xfs", "writes", writes | flushes}, {"xfs", "reads", reads}, {"ext4", "writes", writes | flushes}}
	if !*Long {
		rows = rows[:2]
	}
	for _, row := range rows {
		t.Run(row.fsType+" "+row.name, func(t *testing.T) {
			r := newRig(t)
			m := r.attachBody("s1", 1)
			v := r.written(m, row.fsType)
			r.ok(r.unstage(v))
			m.sum()
			end := m.body.hangs(row.of, 0, m.size)
			const calls, deadline = 3, 1500 * time.Millisecond
			answers, waiting := make(chan error, calls), calls
			for range calls {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), deadline)
					defer cancel()
					_, err := r.server.NodeStageVolume(ctx, v.stageRequest())
					answers <- err
				}()
				select {
				case err := <-answers:
					waiting--
					if err == nil {
						t.Error("it is staged")
					}
				case <-time.After(deadline + time.Second):
					t.Errorf("NodeStageVolume goes on a second after its deadline of %s", deadline)
				}
			}
			if stuck := stuckTasks(); len(stuck) > 2 {
				t.Errorf("%d threads wait for the disk: %v", len(stuck), stuck)
			}
			end()
			for range waiting {
				<-answers
			}
			r.ok(eventually(10*time.Second, func() error { return r.stage(v) }))
			r.holds(filepath.Join(v.staging, "file"), "kept")
		})
	}
}

// stuckTasks are the threads of this process and of the programs that it runs that the kernel has wait for a device.
func stuckTasks() (stuck []string) {
	family := map[string]bool{fmt.Sprint(os.Getpid()): true}
	for grown := true; grown; {
		grown = false
		all, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, path := range all {
			pid := filepath.Base(filepath.Dir(path))
			if fields := statOf(path); len(fields) > 1 && family[fields[1]] && !family[pid] {
				family[pid], grown = true, true
			}
		}
	}
	for pid := range family {
		all, _ := filepath.Glob("/proc/" + pid + "/task/*/stat")
		for _, path := range all {
			if fields := statOf(path); len(fields) > 0 && fields[0] == "D" {
				name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
				stuck = append(stuck, strings.TrimSpace(string(name)))
			}
		}
	}
	return stuck
}

// statOf returns the fields of a thread's status from its state on (man proc, /proc/pid/stat).
func statOf(path string) []string {
	content, _ := os.ReadFile(path)
	_, fields, _ := strings.Cut(string(content), ") ")
	return strings.Fields(fields)
}
