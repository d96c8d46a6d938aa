//go:build e2e

package handover

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/ecssim"
)

// begun is what the first driver is at when it ends, followed what the second is asked for.
type (
	begun    string
	followed string
)

const (
	attaching begun = "attach"
	detaching begun = "detach"

	unpublishHere  followed = "unpublish"
	publishHere    followed = "publish"
	publishThere   followed = "publish to another node"
	unpublishTwice followed = "unpublish twice"
)

// point is a moment at which the first driver ends.
type point struct {
	begun    begun
	age      time.Duration // since it was asked
	followed followed
	shared   bool // a disk for several nodes, which another has all the time
}

func (p point) String() string {
	kind := "plain"
	if p.shared {
		kind = "multi-attach"
	}
	return fmt.Sprintf("%s disk: %s, ended %s later, then %s", kind, p.begun, p.age, p.followed)
}

// points are the moments: before ECS has the call, before a read shows it, in the middle, just before and after its end.
func points(short bool) []point {
	attaches := []time.Duration{0, 50 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second, 5 * time.Second,
		19 * time.Second, 21 * time.Second, 26 * time.Second}
	detaches := []time.Duration{0, 50 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second, 5 * time.Second,
		30 * time.Second, 44 * time.Second, 46 * time.Second, 50 * time.Second}
	if short {
		attaches, detaches = []time.Duration{0, 1500 * time.Millisecond, 19 * time.Second}, []time.Duration{0, 1500 * time.Millisecond, 19 * time.Second}
	}
	var all []point
	for _, shared := range []bool{false, true} {
		for _, age := range attaches {
			all = append(all, point{attaching, age, unpublishHere, shared}, point{attaching, age, publishHere, shared},
				point{attaching, age, publishThere, shared}, point{attaching, age, unpublishTwice, shared})
		}
		for _, age := range detaches {
			all = append(all,
				point{detaching, age, unpublishHere, shared}, point{detaching, age, publishHere, shared}, point{detaching, age, publishThere, shared})
		}
	}
	return all
}

// The time that the stand-by has run for: a driver that judged by its own age would think itself old after two minutes,
// and have some doubts until then.
const (
	oldEnough = 125 * time.Second
	oldShort  = 12 * time.Second
)

// TestHandover has one driver end and another take over while disks are at every point.
func TestHandover(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := points(testing.Short())
			s := newScene(t, len(all))
			ids := s.prepare(all)
			s.slowDown()
			old, limit, after := oldEnough, 4*time.Minute, 50*time.Second
			if testing.Short() {
				old, limit, after = oldShort, 65*time.Second, 3*time.Second
			}
			longest := time.Duration(0)
			for _, p := range all {
				longest = max(longest, p.age)
			}
			end := time.Now().Add(max(longest, old-time.Since(s.began)) + time.Second)
			s.begin(all, ids, end)
			s.pause(end, 0)
			s.Must(s.conns["A"].Close()) // csi-attacher ends with the Pod
			s.Must(s.EndDriver("A", sig))
			oks := s.follow(all, ids, limit)
			for began := time.Now(); time.Since(began) < after; s.pause(time.Now(), time.Second) {
				s.check(s.claims)
			}
			t.Logf("%d points, %d answers of the stand-by were OK", len(all), oks)
			if oks < len(all)/2 {
				t.Errorf("only %d of %d points came to an end within %s", oks, len(all), limit)
			}
		})
	}
}

// prepare makes the disks, and attaches those that are to be detached.
func (s *scene) prepare(all []point) []string {
	ids := make([]string, len(all))
	s.each(all, func(n int, p point) {
		var err error
		ids[n], err = s.create(s.Context(), "A", fmt.Sprintf("disk-%d", n), p.shared)
		if err == nil && p.shared {
			err = s.insist(time.Minute, func(ctx context.Context) error { return s.publish(ctx, "A", ids[n], other(n), true) })
		}
		if err == nil && p.begun == detaching {
			err = s.insist(time.Minute, func(ctx context.Context) error { return s.publish(ctx, "A", ids[n], here(n), p.shared) })
		}
		if err != nil {
			s.Errorf("%s: %v", p, err)
		}
	})
	if s.Failed() {
		s.FailNow()
	}
	return ids
}

// slowDown makes ECS slow from now on.
func (s *scene) slowDown() {
	s.Must(s.Simulator.SetSpans(s.Context(), map[string]time.Duration{"Attach": attachTakes, "Detach": detachTakes}))
	s.Must(s.Simulator.SetSpread(s.Context(), spread))
	s.Must(s.Simulator.AddFault(s.Context(), ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultStale, Lag: readsLag}))
}

// begin asks the first driver for everything, each so long before the end as its point says.
func (s *scene) begin(all []point, ids []string, end time.Time) {
	for n, p := range all {
		go func() {
			s.pause(end, -p.age)
			for s.Context().Err() == nil {
				ctx, cancel := context.WithTimeout(s.Context(), callTime)
				var err error
				if p.begun == attaching {
					err = s.publish(ctx, "A", ids[n], here(n), p.shared)
				} else {
					err = s.unpublish(ctx, "A", ids[n], here(n))
				}
				cancel()
				if err == nil || status.Code(err) == codes.Canceled || time.Now().After(end) {
					return
				}
				s.pause(time.Now(), time.Second)
			}
		}()
	}
}

// follow asks the second driver for what follows, and counts what it said was done.
func (s *scene) follow(all []point, ids []string, limit time.Duration) int {
	var mu sync.Mutex
	oks := 0
	s.each(all, func(n int, p point) {
		c := claimed{point: p.String(), disk: ids[n], instance: here(n), attached: p.followed == publishHere || p.followed == publishThere}
		call := func(ctx context.Context) error { return s.unpublish(ctx, "B", c.disk, c.instance) }
		if p.followed == publishThere {
			c.instance = there(n)
		}
		if c.attached {
			call = func(ctx context.Context) error { return s.publish(ctx, "B", c.disk, c.instance, p.shared) }
		}
		err := s.insist(limit, call)
		if err == nil && p.followed == unpublishTwice {
			err = call(s.Context())
		}
		if err != nil {
			s.Logf("%s: %v", p, err)
			return
		}
		s.claim(c)
		mu.Lock()
		defer mu.Unlock()
		oks++
	})
	return oks
}

// each does something for all points at the same time.
func (s *scene) each(all []point, do func(n int, p point)) {
	var group sync.WaitGroup
	for n, p := range all {
		group.Go(func() { do(n, p) })
	}
	group.Wait()
}

// TestTheSameNameADayLater has drivers asked for volumes that another has made, or may have made, longer ago than ECS
// remembers client tokens.
func TestTheSameNameADayLater(t *testing.T) {
	t.Parallel()
	const n = 30
	s := newScene(t, 0)
	ids := make([]string, n)
	for i := range ids {
		var err error
		ids[i], err = s.create(t.Context(), "A", fmt.Sprintf("day-%d", i), false)
		s.Must(err)
	}
	s.Must(s.Simulator.AddFault(t.Context(), ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultLostReply, Count: 1}))
	if _, err := s.create(t.Context(), "A", "lost", false); status.Code(err) != codes.Unavailable {
		t.Fatalf("a lost reply is answered %v", err)
	}
	s.Must(s.EndDriver("A", syscall.SIGKILL))
	s.Must(s.Simulator.Advance(t.Context(), 25*time.Hour))
	for _, driver := range []string{"B", "C"} {
		if driver == "C" {
			s.startDriver("C")
		}
		calls, err := s.Simulator.Calls(t.Context(), "DescribeDisks")
		s.Must(err)
		var group sync.WaitGroup
		for i := range ids {
			group.Go(func() {
				if id, err := s.create(t.Context(), driver, fmt.Sprintf("day-%d", i), false); err != nil || id != ids[i] {
					t.Errorf("%s: day-%d is %s, %v; a day ago it was %s", driver, i, id, err, ids[i])
				}
			})
		}
		group.Wait()
		if _, err := s.create(t.Context(), driver, "lost", false); err != nil {
			t.Errorf("%s: the volume whose reply was lost: %v", driver, err)
		}
		later, err := s.Simulator.Calls(t.Context(), "DescribeDisks")
		s.Must(err)
		t.Logf("%s: %d names took %d reads", driver, n+1, len(later)-len(calls))
	}
	state, err := s.Simulator.State(t.Context())
	s.Must(err)
	if state.DisksMade != n+1 {
		t.Errorf("%d disks for %d names", state.DisksMade, n+1)
	}
}
