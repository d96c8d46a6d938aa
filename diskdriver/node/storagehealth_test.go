package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// stat is what the kernel shows of a disk: reads, writes, in flight, discards, flushes.
func stat(t *testing.T, sys, name, text string) requests {
	t.Helper()
	dir := filepath.Join(sys, "block", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := devices{sys: sys}.requests(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRequestsAreWhatTheKernelCounts(t *testing.T) {
	sys := t.TempDir()
	// A line of Linux 6.1.
	if got := stat(t, sys, "vdb", "     100       23     5120       38       40        8     1024       70        3      120      109        7        0      512        1        5       12\n"); got != (requests{completed: 152, waiting: 3}) {
		t.Errorf("got %+v", got)
	}
	// A kernel before 4.18 has no more than eleven.
	if got := stat(t, sys, "vdc", "1 0 8 0 2 0 8 0 0 0 0\n"); got != (requests{completed: 3}) {
		t.Errorf("got %+v", got)
	}
	if got, err := (devices{sys: sys}).requests("vdd"); err != nil || got != (requests{}) {
		t.Errorf("a disk that has left: %+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(sys, "block/vdc/stat"), []byte("1 x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (devices{sys: sys}).requests("vdc"); err == nil || !strings.Contains(err.Error(), "vdc") {
		t.Errorf("nonsense: %v", err)
	}
}

func TestDiskHangsIfItCompletesNoRequest(t *testing.T) {
	type look struct {
		after time.Duration
		r     requests
		hangs bool
	}
	gone := requests{} // the disk has left the node
	for name, looks := range map[string][]look{
		"it has nothing to do":          {{0, requests{5, 0}, false}, {time.Hour, requests{5, 0}, false}},
		"it is busy and gets on":        {{0, requests{5, 2}, false}, {time.Minute, requests{6, 2}, false}, {time.Minute, requests{7, 9}, false}},
		"it completes nothing":          {{0, requests{5, 2}, false}, {29 * time.Second, requests{5, 2}, false}, {time.Second, requests{5, 4}, true}, {time.Hour, requests{5, 4}, true}},
		"it comes to itself":            {{0, requests{5, 2}, false}, {time.Minute, requests{5, 2}, true}, {time.Second, requests{6, 1}, false}, {time.Second, requests{6, 1}, false}},
		"it was idle between the looks": {{0, requests{5, 1}, false}, {20 * time.Second, requests{5, 0}, false}, {20 * time.Second, requests{5, 1}, false}},
		"it was away for a while":       {{0, requests{5, 1}, false}, {time.Second, gone, false}, {time.Hour, requests{5, 1}, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s stalls
				for i, l := range looks {
					time.Sleep(l.after)
					shown := map[string]requests{"s1": l.r}
					if l.r == gone {
						shown = nil
					}
					if got := s.hanging(shown); (len(got) > 0) != l.hangs {
						t.Errorf("look %d: %v hang, want %v", i, got, l.hangs)
					}
				}
			})
		})
	}
}

func TestTheStorageOfANodeIsAsItsDisksAre(t *testing.T) {
	r := newRig(t)
	names := map[string]string{}
	for _, serial := range []string{"s1", "s2"} {
		names[serial] = filepath.Base(r.attach(serial, 1).loop)
	}
	health := func() []*csi.NodeGetStorageHealthResponse_StorageBackendHealth {
		t.Helper()
		answer, err := r.server.NodeGetStorageHealth(context.Background(), &csi.NodeGetStorageHealthRequest{})
		r.ok(err)
		return answer.BackendHealth
	}
	if got := health(); len(got) != 0 {
		t.Errorf("sound disks are %v", got)
	}
	// The kernel's own numbers would need a disk that hangs.
	r.server.devices.sys = t.TempDir()
	r.server.stalls.seen = map[string]stall{}
	for i, c := range []struct {
		serial, reason string
		status         csi.StorageHealthErrorType
	}{{"s1", someDoNot, csi.StorageHealthErrorType_STORAGE_DEGRADED}, {"s2", noneAnswers, csi.StorageHealthErrorType_STORAGE_UNREACHABLE}} {
		stat(t, r.server.devices.sys, names[c.serial], "1 0 0 0 1 0 0 0 4 0 0\n")
		r.server.stalls.seen[c.serial] = stall{2, time.Now().Add(-time.Hour)}
		got := health()
		if len(got) != 1 || got[0].Reason != c.reason || got[0].Status != c.status || !strings.Contains(got[0].Message, c.serial) {
			t.Errorf("%d hang: %v", i+1, got)
		}
	}
}
