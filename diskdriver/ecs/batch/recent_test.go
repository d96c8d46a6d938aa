package batch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestWhatIsKnownExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecent(func(disk.Disk) {})
		see := func(id disk.ID) {
			now := time.Now()
			r.saw(id, Observation[disk.Disk]{Sent: now.Add(-heldUp / 2), Received: now, Found: true, Value: disk.Disk{ID: id}})
		}
		see("d-once")
		for range 6 {
			time.Sleep(time.Second)
			see("d-renewed")
		}
		if _, ok := r.observed.values["d-once"]; ok {
			t.Error("what a read showed six seconds ago is kept")
		}
		if _, ok := r.fresh("d-renewed"); !ok {
			t.Error("what a read has just shown is gone")
		}
		r.Begin(Change{Disk: "d-once", Kind: Create})
		time.Sleep(recentKept / 2)
		if r.UnderWay("d-once").Kind != Create {
			t.Error("a change of half a minute ago is forgotten")
		}
		time.Sleep(3 * recentKept)
		r.Changed("d-renewed")
		if len(r.disks.values) != 1 {
			t.Errorf("%d disks are known, want the one that was changed just now", len(r.disks.values))
		}
	})
}

func TestObservationsAreKeptWhileTheyAreFresh(t *testing.T) {
	const each, took = 20, 120 * time.Millisecond // every 10 ms
	synctest.Test(t, func(t *testing.T) {
		r := NewRecent(func(disk.Disk) {})
		for i := range 500 {
			time.Sleep(10 * time.Millisecond)
			for j := range each {
				id, now := disk.ID(fmt.Sprintf("d-%dx%d", i, j)), time.Now()
				r.saw(id, Observation[disk.Disk]{Sent: now.Add(-took), Received: now, Found: true, Value: disk.Disk{ID: id}})
			}
			if n, most := len(r.observed.values), 3*each*int(took/(10*time.Millisecond)); n > most {
				t.Fatalf("%d disks are kept after %d were seen, want at most %d", n, (i+1)*each, most)
			}
		}
		if _, ok := r.fresh("d-490x0"); !ok {
			t.Error("what a read has just shown is gone")
		}
	})
}

func TestFreshIsOnlyWhatNoCallChanged(t *testing.T) {
	for name, test := range map[string]struct {
		changed, took, since time.Duration // from the read's leaving, to its answer, and from that to the question
		want                 bool
	}{
		"at once":            {-time.Second, 200 * time.Millisecond, 0, true},
		"as old as a read":   {-time.Second, 200 * time.Millisecond, 200 * time.Millisecond, false},
		"held up":            {-time.Second, heldUp, 0, false},
		"changed meanwhile":  {50 * time.Millisecond, 200 * time.Millisecond, 0, false},
		"changed as it left": {0, 200 * time.Millisecond, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRecent(func(disk.Disk) {})
				sent := time.Now().Add(time.Second)
				time.Sleep(time.Second + test.changed)
				r.Changed("d-1")
				time.Sleep(test.took - test.changed)
				r.saw("d-1", Observation[disk.Disk]{Sent: sent, Received: time.Now(), Found: true, Value: disk.Disk{ID: "d-1"}})
				time.Sleep(test.since)
				if got, ok := r.fresh("d-1"); ok != test.want || ok && got.Value.ID != "d-1" {
					t.Errorf("fresh is %v, want %v", ok, test.want)
				}
			})
		})
	}
}
