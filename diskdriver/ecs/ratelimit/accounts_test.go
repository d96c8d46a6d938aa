package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// shared is an account whose limit is used by clients that know nothing of it
// and of each other.
type shared struct {
	limit   int
	phase   time.Duration // of the windows, after the full minute
	clients int
	callers int // of each client, which call again as soon as they are answered

	began time.Time

	mu                sync.Mutex
	accepted, refused map[int]int     // by window
	calls             []int           // of each client that were accepted, after the first windows
	waited            []time.Duration // by these
}

// unsteady is how many windows are not counted, in which nobody knows the limit.
const unsteady = 2

func (a *shared) window() int {
	return int((time.Since(a.began) - a.phase + time.Minute) / time.Minute)
}

// call is one call by anybody.
func (a *shared) call(latency time.Duration) error {
	a.mu.Lock()
	window := a.window()
	ok := a.accepted[window] < a.limit
	if ok {
		a.accepted[window]++
	} else {
		a.refused[window]++
	}
	a.mu.Unlock()
	time.Sleep(latency)
	if !ok {
		return disk.Errorf(disk.Throttled, "throttled")
	}
	return nil
}

// run lets the clients call for so many windows after the unsteady ones.
func (a *shared) run(windows int) {
	a.began, a.accepted, a.refused = time.Now(), map[int]int{}, map[int]int{}
	a.calls, a.waited = make([]int, a.clients), make([]time.Duration, a.clients)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Duration(unsteady+windows)*time.Minute+a.phase, cancel)
	var all sync.WaitGroup
	for i := range a.clients {
		l := New("CreateDisk", callsInFlight, func() func() { return func() {} })
		start, latency := rand.N(5*time.Second), 300*time.Millisecond+rand.N(400*time.Millisecond)
		for range a.callers {
			all.Go(func() {
				time.Sleep(start)
				for ctx.Err() == nil {
					since := time.Now()
					err := do(ctx, l, func() error { return a.call(latency + rand.N(latency/2)) })
					a.note(i, time.Since(since), err)
				}
			})
		}
	}
	all.Wait()
}

func (a *shared) note(client int, waited time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && a.window() > unsteady {
		a.calls[client]++
		a.waited[client] += waited
	}
}

func TestClientsShareAnAccount(t *testing.T) {
	for _, test := range []struct {
		limit   int
		phase   time.Duration
		clients int
	}{
		{500, 0, 20}, {500, 37 * time.Second, 20}, {1000, 0, 20}, {500, 0, 5}, {500, 37 * time.Second, 5},
	} {
		t.Run(fmt.Sprint(test.clients, " clients, ", test.limit, " calls, from ", test.phase), func(t *testing.T) {
			var ratios []float64
			for run := 0; run < 5 && (run == 0 || test.clients >= 20); run++ {
				synctest.Test(t, func(t *testing.T) {
					a := &shared{limit: test.limit, phase: test.phase, clients: test.clients, callers: 2 * test.limit / test.clients}
					ratios = append(ratios, a.check(t))
				})
			}
			slices.Sort(ratios)
			if median := ratios[len(ratios)/2]; median > 3 && test.clients >= 20 { // few clients have few chances to become alike
				t.Errorf("the longest mean wait of a client is %.2f times their median, want at most 3 in most runs", ratios)
			}
		})
	}
}

// check runs the clients, and returns the longest of their mean waits as a multiple of the median.
func (a *shared) check(t *testing.T) (ratio float64) {
	const windows = 30
	a.run(windows)
	refused, sent := 0, 0
	for w := unsteady + 1; w < unsteady+windows; w++ {
		refused, sent = refused+a.refused[w], sent+a.refused[w]+a.accepted[w]
		if used := float64(a.accepted[w]) / float64(a.limit); used < 0.85 {
			t.Errorf("window %d: %.0f %% of the limit was used, want 85 %%", w, 100*used)
		}
	}
	if part := float64(refused) / float64(sent); part > 0.05 {
		t.Errorf("%.1f %% of the calls were throttled, want at most 5 %%", 100*part)
	}
	waits, total := make([]float64, a.clients), 0
	for i, n := range a.calls {
		waits[i], total = a.waited[i].Seconds()/float64(max(n, 1)), total+n
	}
	slices.Sort(waits)
	ratio = waits[len(waits)-1] / waits[len(waits)/2]
	least := float64(slices.Min(a.calls)*a.clients) / float64(total)
	t.Logf("throttled %.2f %%, longest wait / median %.2f, least share / mean %.2f", 100*float64(refused)/float64(sent), ratio, least)
	if least < 0.1 && a.clients >= 20 {
		t.Errorf("the clients made %d calls: the least is %.2f of the mean, want at least 0.1", a.calls, least)
	}
	return ratio
}
