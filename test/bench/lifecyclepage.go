package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// operationNames are the operations of a lifecycle in their order.
var operationNames = []string{"create", "publish", "expand", "unpublish", "delete"}

// lifecycleRow is a scenario's medians over the rounds with one driver.
type lifecycleRow struct {
	scenario
	driver             string
	calls, wall, limit float64
	ratio              float64 // of wall and limit, of the same round
	p50, p99           map[string]float64
	later              float64
	lostTime           float64
	wrong              int // in all rounds
	judged             bool

	throttled, connections, memory float64
}

func newLifecycleRow(s scenario, d csiDriver, rounds []outcome) lifecycleRow {
	row := lifecycleRow{scenario: s, driver: d.name, p50: map[string]float64{}, p99: map[string]float64{}, judged: d.path == ""}
	of := func(value func(outcome) float64) float64 {
		var values []float64
		for _, o := range rounds {
			values = append(values, value(o))
		}
		return median(values)
	}
	row.calls = of(func(o outcome) float64 { return o.calls })
	row.wall = of(func(o outcome) float64 { return o.wall })
	row.limit = of(func(o outcome) float64 { return o.limit })
	row.ratio = of(func(o outcome) float64 { return o.wall / o.limit })
	row.later = of(func(o outcome) float64 { return float64(o.later) })
	row.lostTime = of(func(o outcome) float64 { return o.lost })
	row.throttled = of(func(o outcome) float64 { return o.throttled })
	row.connections = of(func(o outcome) float64 { return o.connections })
	row.memory = of(func(o outcome) float64 { return o.memory })
	for _, o := range rounds {
		row.wrong += o.wrong
	}
	for _, name := range operationNames {
		row.p50[name] = of(func(o outcome) float64 { return share(o.operations[name], 0.5) })
		row.p99[name] = of(func(o outcome) float64 { return share(o.operations[name], 0.99) })
	}
	return row
}

// share is the time, in seconds, within which a share of the operations ended.
func share(took []time.Duration, part float64) float64 {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)].Seconds()
}

// target is what the row is held against.
func (r lifecycleRow) target() string {
	if r.lost > 0 {
		return fmt.Sprintf("0 wrong answers: %d; <= %g s lost: %.2f s", r.wrong, r.lost, r.lostTime)
	}
	if r.throttle != "" {
		var texts []string
		for _, f := range r.crowdFigures() {
			texts = append(texts, fmt.Sprintf("%s <= %s: %s", f.name, number(f.most, f.unit), number(f.value, f.unit)))
		}
		return strings.Join(texts, "; ")
	}
	if r.scenario.wall > 0 {
		return fmt.Sprintf("<= %g calls, <= %g s", r.scenario.calls, r.scenario.wall)
	}
	return fmt.Sprintf("<= %g calls, <= %g x limit", r.scenario.calls, r.ofLimit)
}

// crowdFigure is one of the figures that a crowd is held against.
type crowdFigure struct {
	name, unit  string
	value, most float64
}

func (r lifecycleRow) crowdFigures() []crowdFigure {
	return []crowdFigure{
		{"throttled calls, of all calls", "%", r.throttled, mostThrottled},
		{"connections that the driver opened, by the most requests under way together", "", r.connections, mostConnections},
		{"memory of the driver's process at its peak (VmHWM)", "MiB", r.memory, mostMemory},
	}
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "MISSED"
}

func (r lifecycleRow) verdict() string {
	switch {
	case !r.judged:
		return ""
	case r.throttle != "":
		return verdict(!slices.ContainsFunc(r.crowdFigures(), func(f crowdFigure) bool { return f.value > f.most }))
	case r.lost > 0:
		return verdict(r.wrong == 0 && r.lostTime <= r.lost)
	case r.scenario.wall > 0:
		return verdict(r.calls <= r.scenario.calls && r.wall <= r.scenario.wall)
	}
	return verdict(r.calls <= r.scenario.calls && r.ratio <= r.ofLimit)
}

func (r lifecycleRow) print(first bool) {
	if first {
		fmt.Printf("%-70s %-14s %9s %10s %10s %8s  %s\n", "scenario", "driver", "calls", "wall", "limit", "x limit", "target")
	}
	fmt.Printf("%-70s %-14s %9.2f %8.3f s %8.3f s %8.3f  %s %s\n", r.name, r.driver, r.calls, r.wall, r.limit, r.ratio, r.target(), r.verdict())
	fmt.Printf("    p50 / p99 in s:")
	for _, name := range operationNames {
		fmt.Printf(" %s %.3f / %.3f", name, r.p50[name], r.p99[name])
	}
	fmt.Printf("; %.0f answers to come back later\n", r.later)
}

// lifecyclePage is the section of docs/benchmarks.md.
func lifecyclePage(rows []lifecycleRow) string {
	var limits, crowds, times [][]any
	for _, r := range rows {
		if r.throttle == "" {
			limits = append(limits, []any{r.name, r.driver, fmt.Sprintf("%.2f", r.calls), inSeconds(r.wall), inSeconds(r.limit), fmt.Sprintf("%.2f", r.ratio),
				r.target(), r.verdict()})
		} else {
			for _, f := range r.crowdFigures() {
				crowds = append(crowds, []any{r.name, r.driver, f.name, number(f.value, f.unit), "<= " + number(f.most, f.unit), verdict(f.value <= f.most)})
			}
		}
		cells := []any{r.name, r.driver}
		for _, name := range operationNames {
			cells = append(cells, both(quantiles{r.p50[name], r.p99[name]}))
		}
		times = append(times, append(cells, fmt.Sprintf("%.0f", r.later)))
	}
	return render("lifecycle", map[string]any{
		"Rounds": lifecycleRounds, "Rows": limits, "Pause": accountPause, "Crowds": crowds, "Operations": strings.Join(operationNames, " | "), "Times": times,
		"Measured": measured("lifecycle", nil),
	})
}
