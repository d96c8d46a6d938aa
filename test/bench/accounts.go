package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// Many clusters of one account: a driver each, as a process of its own, and nothing that tells one of the other.
const (
	accountDrivers = 20
	accountCallers = 40 // lifecycles at once of each driver, which begin anew when they are over: more than a window takes

	// accountAction is the action that holds the others up: ECS publishes its limit, the lowest of those of a lifecycle.
	accountAction = "AttachDisk"
	accountLimit  = 500

	accountWindows  = 7
	accountUnsteady = 2 // of these, in which nobody knows the limit

	// accountPause is the longest pause of the sidecars between two calls, as topodisk's chart starts them.
	accountPause = 10 * time.Second
)

// accountFigures are what the windows came to that were counted.
type accountFigures struct {
	throttled, calls int // of the actions that change something, by all drivers
	used             []int
	waits            []time.Duration // mean of each driver, from the first call of a publish to its OK
}

// benchAccounts runs the drivers and writes the page's section.
func benchAccounts(ctx context.Context, programs, page string) (err error) {
	if programs, err = filepath.Abs(programs); err != nil {
		return err
	}
	r, end, err := startReplicas(ctx, programs, "parallel", instances, "--throttle=default")
	if err != nil {
		return err
	}
	defer func() { err = end(err) }()
	if err := r.Simulator.SetLatency(ctx, fixed("real")(0)); err != nil {
		return err
	}
	callers := make([]*caller, accountDrivers)
	for i := range callers {
		if callers[i], err = (csiDriver{name: fmt.Sprintf("topodisk-%d", i)}).start(ctx, r); err != nil {
			return err
		}
		defer callers[i].close()
		callers[i].longestPause = accountPause
	}
	began := time.Now().Truncate(time.Minute).Add(time.Minute)
	time.Sleep(time.Until(began))
	loadAccount(ctx, callers, began)
	calls, err := r.Simulator.Calls(ctx, "")
	if err != nil {
		return err
	}
	f := countAccount(calls, began.Add(accountUnsteady*time.Minute), began.Add(accountWindows*time.Minute))
	for _, c := range callers {
		f.waits = append(f.waits, mean(c.took["publish"]))
	}
	slices.Sort(f.waits)
	text := f.markdown()
	fmt.Println(text)
	if page == "" {
		return nil
	}
	return writeSection(page, "accounts", text)
}

// loadAccount keeps all drivers busy until the last window is over.
func loadAccount(ctx context.Context, callers []*caller, began time.Time) {
	ctx, cancel := context.WithDeadline(ctx, began.Add(accountWindows*time.Minute))
	defer cancel()
	var all sync.WaitGroup
	for i, c := range callers {
		for k := range accountCallers {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					if err := c.lifecycle(ctx, fmt.Sprintf("pvc-%d-%d-%d", i, k, n), instance(i*accountCallers+k)); err != nil && ctx.Err() == nil {
						fmt.Fprintln(os.Stderr, "bench:", err)
					}
				}
			})
		}
	}
	time.Sleep(time.Until(began.Add(accountUnsteady * time.Minute)))
	for _, c := range callers {
		c.reset()
	}
	all.Wait()
}

// countAccount counts the calls of the windows from one time to another.
func countAccount(calls []ecssim.Call, from, to time.Time) (f accountFigures) {
	f.used = make([]int, int(to.Sub(from)/time.Minute))
	for _, call := range calls {
		if call.Time.Before(from) || !call.Time.Before(to) || strings.HasPrefix(call.Action, "Describe") {
			continue
		}
		f.calls++
		switch {
		case strings.HasPrefix(call.Code, "Throttling"):
			f.throttled++
		case call.Action == accountAction:
			f.used[int(call.Time.Sub(from)/time.Minute)]++
		}
	}
	return f
}

func mean(took []time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, d := range took {
		sum += d
	}
	return sum / time.Duration(max(1, len(took)))
}

// markdown is the section of docs/benchmarks.md.
func (f accountFigures) markdown() string {
	throttled, least := 100*float64(f.throttled)/float64(f.calls), 100*float64(slices.Min(f.used))/accountLimit
	longest, median := f.waits[len(f.waits)-1], f.waits[len(f.waits)/2]
	ratio := longest.Seconds() / median.Seconds()
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
	return render("accounts", map[string]any{
		"Drivers": accountDrivers, "Limit": accountLimit, "Action": accountAction, "Callers": accountCallers, "Pause": accountPause,
		"Rows": [][]any{
			{"throttled calls, of the mutating calls", number(throttled, "%"), "<= 5 %", verdict(throttled <= 5)},
			{"used part of the limit of " + accountAction + ", minimum of the windows", number(least, "%"), ">= 85 %", verdict(least >= 85)},
			{"mean wait for a publish, maximum of the drivers / their median", number(ratio, ""), "<= 3", verdict(ratio <= 3)},
		},
		"Unsteady": accountUnsteady, "Used": f.used, "Throttled": f.throttled, "Calls": f.calls,
		"Shortest": round(f.waits[0]), "Longest": round(longest), "Median": round(median), "Measured": measured("accounts", nil),
	})
}
