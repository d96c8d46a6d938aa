package main

import (
	"cmp"
	"slices"
	"time"
)

// milestone is a point on a Pod's way to run.
type milestone int

// The milestones in their order.
const (
	podCreated        milestone = iota // the API server has its creation
	podScheduled                       // its node is chosen: its claim names it or, if that has a volume already, it is bound
	volumeProvisioned                  // the PersistentVolume is saved
	podBound                           // the Pod is bound to its node
	volumeAttached                     // the VolumeAttachment says so
	volumeStaged                       // the volume is mounted for the Pod: NodeStageVolume and NodePublishVolume have ended
	podStarted                         // the Pod runs
	milestones
)

// stepNames are what leads to each milestone but the first.
var stepNames = []string{"scheduled", "provisioned", "bound", "attached", "staged", "started"}

// podStart is one Pod's way to run. What it has not come by is as the milestone before.
type podStart struct {
	at   [milestones]time.Time
	ecs  [milestones]time.Duration // ECS's own time on the way to each
	pace pace                      // what ECS took, whatever else went on at that time
}

// order lets no milestone be before an earlier one, nor after the end.
func (s *podStart) order() {
	for m := podCreated + 1; m < milestones; m++ {
		if s.at[m].Before(s.at[m-1]) {
			s.at[m] = s.at[m-1]
		}
		if s.at[m].After(s.at[podStarted]) {
			s.at[m] = s.at[podStarted]
		}
	}
}

// steps are the times from each milestone to the next, in seconds.
func (s podStart) steps() (steps []float64) {
	for m := podCreated + 1; m < milestones; m++ {
		steps = append(steps, s.at[m].Sub(s.at[m-1]).Seconds())
	}
	return steps
}

func (s podStart) total() time.Duration { return s.at[podStarted].Sub(s.at[podCreated]) }

// ofECS is ECS's own time in all.
func (s podStart) ofECS() (sum time.Duration) {
	for _, d := range s.ecs {
		sum += d
	}
	return sum
}

// setPace counts what the driver has waited as ECS's own time.
func (s *podStart) setPace(p pace) {
	s.pace = p
	s.ecs[volumeProvisioned], s.ecs[volumeStaged] = p.Create, p.Device
	s.ecs[volumeAttached] = p.Attach + max(p.Ready-p.Create-s.at[podBound].Sub(s.at[volumeProvisioned]), 0)
}

// podsSample are Pods that were started.
type podsSample struct {
	starts  []podStart
	wall    float64       // seconds, from the first Pod that was made to the last that ran
	end     time.Time     // when the last ran
	drained time.Duration // what ECS needs for a drain at least
}

// span sets how long all Pods took together.
func (s *podsSample) span() {
	var begin time.Time
	for _, p := range s.starts {
		if begin.IsZero() || p.at[podCreated].Before(begin) {
			begin = p.at[podCreated]
		}
		if p.at[podStarted].After(s.end) {
			s.end = p.at[podStarted]
		}
	}
	s.wall = s.end.Sub(begin).Seconds()
}

// add takes in another round.
func (s *podsSample) add(more podsSample) {
	s.starts = append(s.starts, more.starts...)
	s.wall += more.wall
	s.drained = more.drained
}

// quantiles are of times in seconds.
type quantiles struct{ P50, P99 float64 }

func quantilesOf(times []time.Duration) quantiles {
	return quantiles{P50: share(times, 0.5), P99: share(times, 0.99)}
}

// podsRun is what a scenario came to with one source of volumes. Times are in seconds.
type podsRun struct {
	Source string
	Pods   int
	Wall   float64 // of all rounds
	Total  quantiles
	ECS    quantiles   // ECS's own time of a Pod
	Beyond quantiles   // what a Pod takes beyond it
	Steps  []quantiles // of each step by itself
	Shares []quantiles // of ECS's own time in each step
	Middle []float64   // the steps of the Pod at p50
	Last   []float64   // the steps of the Pod at p99
	Attach float64     // median of ECS's own time for an attach
	Drain  float64     // what ECS needs for a drain at least
}

// summary is what is kept of the Pods.
func (s podsSample) summary(source string) podsRun {
	run := podsRun{Source: source, Pods: len(s.starts), Wall: s.wall, Drain: s.drained.Seconds()}
	of := func(value func(podStart) time.Duration) quantiles {
		var times []time.Duration
		for _, p := range s.starts {
			times = append(times, value(p))
		}
		return quantilesOf(times)
	}
	run.Total = of(podStart.total)
	run.ECS = of(podStart.ofECS)
	run.Beyond = of(func(p podStart) time.Duration { return p.total() - p.ofECS() })
	run.Attach = of(func(p podStart) time.Duration { return p.pace.Attach }).P50
	for m := podCreated + 1; m < milestones; m++ {
		run.Steps = append(run.Steps, of(func(p podStart) time.Duration { return p.at[m].Sub(p.at[m-1]) }))
		run.Shares = append(run.Shares, of(func(p podStart) time.Duration { return p.ecs[m] }))
	}
	byTotal := slices.SortedFunc(slices.Values(s.starts), func(a, b podStart) int { return cmp.Compare(a.total(), b.total()) })
	if n := len(byTotal); n > 0 {
		run.Middle = byTotal[min(n/2, n-1)].steps()
		run.Last = byTotal[min(n*99/100, n-1)].steps()
	}
	return run
}

// podsRow is a scenario with every source of volumes.
type podsRow struct {
	Key, Name  string
	ToAttached bool    // measured until the volumes are attached, not until the Pods run
	Load       float64 // average of the machine before
	Runs       []podsRun
	Figures    []podsFigure
}

// podsFigure is what a scenario is held against.
type podsFigure struct {
	Name       string
	Got, Limit float64 // seconds
}

func (f podsFigure) verdict() string { return verdict(f.Got <= f.Limit) }

// of returns the run of a source.
func (r podsRow) of(source string) podsRun {
	for _, run := range r.Runs {
		if run.Source == source {
			return run
		}
	}
	return podsRun{}
}

// judgeAlone holds what topodisk adds to a Pod against what a Pod takes with the driver that answers at once, and with the one that
// only waits.
func judgeAlone(r podsRow) []podsFigure {
	ours, instant, paced := r.of(sourceOurs), r.of(sourceInstant), r.of(sourcePaced)
	return []podsFigure{
		{"beyond ECS's own time, one Pod, more than with a driver that answers at once, p50", ours.Beyond.P50 - instant.Total.P50, 0.3},
		{"beyond ECS's own time, one Pod, more than with a driver that answers at once, p99", ours.Beyond.P99 - instant.Total.P99, 1},
		{"one Pod, more than with a driver that only waits as long as ECS took, p50", ours.Total.P50 - paced.Total.P50, 0.3},
		{"one Pod, more than with a driver that only waits as long as ECS took, p99", ours.Total.P99 - paced.Total.P99, 1},
	}
}

// judgeCrowd holds many Pods at once against as many without disks.
func judgeCrowd(r podsRow) []podsFigure {
	ours := r.of(sourceOurs)
	return []podsFigure{{"all Pods of a node at once", ours.Wall, 1.25 * (r.of(sourceNone).Wall + ours.Attach)}}
}

// judgeDrain holds a drain against ECS's time and a drain of Pods without disks.
func judgeDrain(r podsRow) []podsFigure {
	ours := r.of(sourceOurs)
	return []podsFigure{{"all Pods of a drained node", ours.Wall, 1.1*ours.Drain + r.of(sourceNone).Wall}}
}
