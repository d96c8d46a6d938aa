package batch

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
)

// readerOf returns a Reader of disks that answers with describe.
func readerOf(describe func(context.Context, []disk.ID) (map[disk.ID]disk.Disk, error)) *Reader[disk.ID, disk.Disk] {
	return NewReader(Config[disk.ID, disk.Disk]{
		Action: "DescribeDisks", Form: regexp.MustCompile(`^d-[0-9a-z]+$`), Describe: describe, Throttled: func() bool { return false },
	})
}

// seeing is an account that may see disks.
func seeing(context.Context, time.Time) error { return nil }

// inState answers after 120 ms that all disks are in one state.
func inState(state disk.State) func(context.Context, []disk.ID) (map[disk.ID]disk.Disk, error) {
	return func(_ context.Context, ids []disk.ID) (map[disk.ID]disk.Disk, error) {
		time.Sleep(120 * time.Millisecond)
		shown := make(map[disk.ID]disk.Disk)
		for _, id := range ids {
			shown[id] = disk.Disk{ID: id, State: state}
		}
		return shown, nil
	}
}

func TestWhoHasWaitedLongestIsReadFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first []disk.ID
		var once sync.Once
		r := readerOf(func(ctx context.Context, ids []disk.ID) (map[disk.ID]disk.Disk, error) {
			if len(ids) == Size {
				once.Do(func() { first = ids })
			}
			return inState(disk.Available)(ctx, ids)
		})
		var all sync.WaitGroup
		now := time.Now()
		for i := range 180 {
			age := time.Duration(i%2) * time.Hour // the odd ones are older
			q := &request[disk.ID, disk.Disk]{id: disk.ID(fmt.Sprintf("d-bp1n%d", i)), since: now.Add(-age), due: now.Add(time.Second), wanted: certain}
			r.add(t.Context(), q)
			all.Go(func() { <-q.answer })
		}
		all.Wait()
		older := 0
		for _, id := range first {
			var n int
			if _, err := fmt.Sscanf(string(id), "d-bp1n%d", &n); err != nil {
				t.Fatal(err)
			}
			older += n % 2
		}
		if len(first) != Size || older != 90 {
			t.Errorf("the first batch has %d disks, %d of them of the 90 that waited longest", len(first), older)
		}
	})
}

func TestAnIDThatECSMayRefuseIsReadAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		alone := map[disk.ID]bool{}
		r := readerOf(func(ctx context.Context, ids []disk.ID) (map[disk.ID]disk.Disk, error) {
			if len(ids) == 1 {
				mu.Lock()
				alone[ids[0]] = true
				mu.Unlock()
			}
			return inState(disk.Available)(ctx, ids)
		})
		var all sync.WaitGroup
		for _, id := range []disk.ID{"d-1", "d-2", "1-2345"} {
			all.Go(func() {
				if got, err := r.Get(t.Context(), id); err != nil || got.Value.ID != id {
					t.Errorf("%s: %+v, %v", id, got, err)
				}
			})
		}
		all.Wait()
		if len(alone) != 1 || !alone["1-2345"] {
			t.Errorf("read alone were %v, want 1-2345", alone)
		}
	})
}

// lateness waits for changes, one after the other, and returns how much later than its end each was seen, beyond the time of a
// read, and how many reads there were.
func lateness(t *testing.T, answer time.Duration, lengths []time.Duration) (late []time.Duration, reads int) {
	synctest.Test(t, func(t *testing.T) {
		var over time.Time
		disks := NewDisks(readerOf(func(_ context.Context, ids []disk.ID) (map[disk.ID]disk.Disk, error) {
			reads++
			state := disk.Attaching
			if !time.Now().Before(over) {
				state = disk.Attached
			}
			time.Sleep(answer)
			return map[disk.ID]disk.Disk{ids[0]: {ID: ids[0], State: state}}, nil
		}), NewRecent(func(disk.Disk) {}), NewWaits(), seeing)
		for _, length := range lengths {
			over = time.Now().Add(length)
			c := Change{Disk: "d-bp1a", Kind: Attach, Since: time.Now(), Reply: 400 * time.Millisecond}
			if _, err := disks.Await(t.Context(), c, func(d disk.Disk) (bool, error) { return d.State == disk.Attached, nil }); err != nil {
				t.Fatal(err)
			}
			late = append(late, time.Since(over)-answer)
		}
	})
	return late, reads
}

func TestFixedTimesAreReadJustAfterTheirEnd(t *testing.T) {
	for _, length := range []time.Duration{300 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second, 4 * time.Second, 17 * time.Second} {
		for _, answer := range []time.Duration{20 * time.Millisecond, 121 * time.Millisecond, 300 * time.Millisecond} {
			late, reads := lateness(t, answer, slices.Repeat([]time.Duration{length}, 100))
			slices.Sort(late)
			if most := max(answer, shortestPause) / 2; late[50] > most || reads > 600 {
				t.Errorf("changes that take %v, where a read takes %v, are seen %v late, want at most %v, with %d reads for a hundred", length, answer, late[50], most, reads)
			}
		}
	}
}

func TestTimesThatVaryAreReadSoonAfterTheirEnd(t *testing.T) {
	for _, test := range []struct {
		spread, median float64
		answer, late   time.Duration
		reads          int
	}{
		{.1, .4, 121 * time.Millisecond, 65 * time.Millisecond, 400},
		{.1, 2, 121 * time.Millisecond, 80 * time.Millisecond, 720},
		{.3, .4, 300 * time.Millisecond, 160 * time.Millisecond, 335},
		{.5, .4, 20 * time.Millisecond, 40 * time.Millisecond, 980},
		{.5, 2, 121 * time.Millisecond, 100 * time.Millisecond, 1550},
	} {
		random := rand.New(rand.NewPCG(3, 4))
		var lengths []time.Duration
		for range 200 {
			lengths = append(lengths, time.Duration(math.Exp(test.spread*random.NormFloat64())*test.median*float64(time.Second)))
		}
		late, reads := lateness(t, test.answer, lengths)
		slices.Sort(late)
		if late[100] > test.late || reads > test.reads {
			t.Errorf("%+v: 200 changes are seen %v late, with %d reads", test, late[100], reads)
		}
	}
}

func TestWhoStopsWaitingLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, waits := readerOf(inState(disk.Creating)), NewWaits()
		disks := NewDisks(r, NewRecent(func(disk.Disk) {}), waits, seeing)
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(i)*17*time.Millisecond, cancel)
				_, err := disks.Await(ctx, Change{Disk: disk.ID(fmt.Sprintf("d-%d", i%5))}, func(disk.Disk) (bool, error) { return false, nil })
				if err == nil {
					t.Error("the wait ended well")
				}
			})
		}
		all.Wait()
		time.Sleep(time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.later)+len(r.ready)+r.inFlight+r.open != 0 || len(waits.began) != 0 {
			t.Errorf("left behind: %d later, %d ready, %d in flight, %d open, %d waits", len(r.later), len(r.ready), r.inFlight, r.open, len(waits.began))
		}
	})
}

func TestPollEnds(t *testing.T) {
	there := map[disk.ID]disk.Disk{"d-bp1a": {ID: "d-bp1a"}}
	for name, test := range map[string]struct {
		shown map[disk.ID]disk.Disk
		read  error
		seen  error
		want  disk.Kind
		took  time.Duration
	}{
		"an error of the watcher": {shown: there, seen: disk.Errorf(disk.Blocked, "no"), want: disk.Blocked},
		"refused for good":        {read: disk.Errorf(disk.Denied, "no"), want: disk.Denied, took: 3 * time.Second},
		"absent":                  {want: disk.NotFound, took: time.Second},
		"in time to answer":       {shown: there, want: disk.Pending, took: 8 * time.Second},
		"throttled":               {read: disk.Errorf(disk.Throttled, "no"), want: disk.Pending, took: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				r := readerOf(func(context.Context, []disk.ID) (map[disk.ID]disk.Disk, error) { return test.shown, test.read })
				_, err := r.Poll(ctx, "d-bp1a", []time.Duration{time.Second, 2 * time.Second},
					func(disk.Disk) (bool, error) { return false, test.seen }, func(disk.Disk) string { return "late" })
				ecstest.WantKind(t, err, test.want)
				if took := time.Since(began).Truncate(100 * time.Millisecond); took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
			})
		})
	}
}
