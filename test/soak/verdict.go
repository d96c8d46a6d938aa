package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// judgedSeries is a series with its rule.
type judgedSeries struct {
	name string
	unit string
	rule Rule
}

// Slacks are how far the line through a life's windows may rise. They are above what medians of a round differ by where nothing
// leaks, and well below what a leak of one in a hundred claims adds up to in two hours.
var slacks = []struct {
	name     string
	unit     string
	kind     Kind
	absolute float64
	relative float64
}{
	{residentMemory, "MiB", Level, 8, 0.10},
	{heap, "MiB", Level, 4, 0.15},
	{goroutines, "", Level, 10, 0.05},
	{openFiles, "", Level, 4, 0.05},
	{apiRequests, "a round", Counter, 30, 0.15},
}

// Client-go's event correlator remembers the last objects that a leader has written events of, as many as maxLruCacheEntries in
// k8s.io/client-go/tools/record. Once there are so many, the heap is flat: TestHeapIsFlatOnceRecentEventsAreRemembered.
const (
	recentEvents       = 4096
	recentEventsMemory = 16.0 // MiB; 14 were measured
	recentEventsHourly = 3.0  // MiB that an hour of load adds at most
)

// recentEventsGrowth is by how much their memory may grow in a run, in MiB.
func (p Plan) recentEventsGrowth() float64 {
	return min(recentEventsMemory, recentEventsHourly*p.Length().Hours())
}

// judged are the series of a soak. Those of processes and of calls are judged where processes live on, those of what outlives
// processes throughout.
func (p Plan) judged() (list []judgedSeries) {
	add := func(name, unit string, kind Kind, absolute, relative float64) {
		list = append(list, judgedSeries{name, unit, Rule{Kind: kind, WarmUp: p.Round, Window: p.Round, Absolute: absolute, Relative: relative}})
	}
	for _, s := range slacks {
		for _, program := range slices.Sorted(maps.Values(programNames)) {
			absolute := s.absolute
			if s.unit == "MiB" && program == provisionerProgram {
				absolute += p.recentEventsGrowth()
			}
			add(program+": "+s.name, s.unit, s.kind, absolute, s.relative)
		}
	}
	add("ECS calls", "a round", Counter, 30, 0.15)
	add("objects in the API server", "", Floor, 20, 0.05)
	for _, k := range kinds {
		add(k.name, "", Floor, 2, 0.15)
	}
	add("journal records", "", Floor, 2, 0.15)
	add("journal bytes", "", Floor, 500, 0.15)
	for _, name := range []string{"disks", "ECS snapshots", "mounts of volumes", "loop devices"} {
		add(name, "", Floor, 2, 0.15)
	}
	return list
}

// scale has a value in the unit of its series.
func scale(unit string, value float64) float64 {
	if unit == "MiB" {
		return value / (1 << 20)
	}
	return value
}

// judgement is what the rule says of a series, with the life that comes closest to what is allowed.
type judgement struct {
	judgedSeries
	Verdict
	worst   Trend
	allowed float64
}

// judge judges every series of the plan.
func (r result) judge() (list []judgement, err error) {
	by := map[string][]Sample{}
	for _, s := range r.samples {
		by[s.Series] = append(by[s.Series], s)
	}
	for _, s := range r.Plan.judged() {
		of := slices.Clone(by[s.name])
		for i := range of {
			of[i].Value = scale(s.unit, of[i].Value)
		}
		j := judgement{judgedSeries: s}
		if j.Verdict, err = s.rule.Judge(of); err != nil {
			return nil, err
		}
		if len(j.Lives) > 0 {
			j.worst = slices.MaxFunc(j.Lives, func(a, b Trend) int { return cmp.Compare(a.Growth/s.rule.slack(a), b.Growth/s.rule.slack(b)) })
			j.allowed = s.rule.slack(j.worst)
		}
		list = append(list, j)
	}
	return list, nil
}

// servedWithin is how long anything that depends on ECS may take. ECS misbehaves in several ways within three minutes of each round,
// and whoever has failed for so long waits for as long again, as back-offs double.
const servedWithin = 6 * time.Minute

// bounds are how long what the load waits for may take, whatever happens to what is installed and to ECS meanwhile.
var bounds = []struct {
	what  string
	limit time.Duration
}{
	{claimBound, servedWithin},
	{podRunning, servedWithin},
	{claimGrown, servedWithin},
	{snapshotCut, servedWithin},
	{volumeGone, servedWithin},
	{allGone, servedWithin},
	{setUpdated, servedWithin},
}

// waiting is how long one thing was waited for.
type waiting struct {
	what                       string
	times                      int
	half, most, longest, limit time.Duration // half is the median, most the 99th percentile
}

func (r result) waits() (list []waiting) {
	for _, b := range bounds {
		var all []time.Duration
		for _, t := range r.turns {
			if took, ok := t.Waits[b.what]; ok {
				all = append(all, took)
			}
		}
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		list = append(list, waiting{b.what, len(all), all[(len(all)-1)/2], all[(len(all)-1)*99/100], all[len(all)-1], b.limit})
	}
	return list
}

// ended is how long the load went on, and whether it came to its end.
func (r result) ended() (time.Duration, bool) {
	for _, e := range r.events {
		if e.Name == loadEnded {
			return e.At, true
		}
	}
	if len(r.samples) == 0 {
		return 0, false
	}
	return r.samples[len(r.samples)-1].At, false
}

// faults are the sentences that say what is not as it should be.
func (r result) faults(judgements []judgement) (wrong []string) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, j := range judgements {
		if !j.Flat() && (!r.Plan.Trial() || len(j.Lives) > 0) {
			add("%s is not flat: %s", j.name, j.Reason)
		}
	}
	for _, t := range r.turns {
		if t.Failed != "" {
			add("%s failed: %s", t.Name, t.Failed)
		}
	}
	for _, w := range r.waits() {
		if w.longest > w.limit {
			add("%s: the longest took %v, %v is allowed", w.what, w.longest.Round(time.Second), w.limit)
		}
	}
	for _, e := range r.events {
		if e.Failed != "" {
			add("in round %d, %s: %s", e.Round+1, e.Name, e.Failed)
		}
	}
	switch _, whole := r.ended(); {
	case !whole:
		add("the run was killed before the load had ended")
	case len(r.inventory) < 2:
		add("the run was killed before the load was gone")
	default:
		if err := r.inventory[0].Same(r.inventory[1]); err != nil {
			add("%v", err)
		}
	}
	return wrong
}

// number prints a value with as many digits as tell something.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.05 && v > -0.05:
		return "0.0"
	case v < 100 && v > -100:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	}
	return fmt.Sprintf("%.0f", v)
}
