package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Kind says what the values of a series are.
type Kind int

// Level, Floor and Counter are the kinds.
const (
	Level   Kind = iota // what there is: memory
	Floor               // what there is at least: of objects that come and go, those that stay
	Counter             // what has happened since the process began, and so begins at 0 in each life
)

// Rule says when a series is flat. Each life of a process is judged for itself: its beginning is left out, the rest is cut
// into windows of equal length, each as long as a round of the load with its faults, so that windows have seen the same.
// A window's value is the median of a level, the least of a floor, and the increase of a counter. The life is not flat if its windows rise with
// significance (Mann-Kendall, one-sided, 5 %) and the line through them (Theil-Sen) rises by more than the slack.
type Rule struct {
	Kind     Kind
	WarmUp   time.Duration // left out at the beginning of each life
	Window   time.Duration // one round of the load
	Absolute float64       // slack over the whole life, in the unit of a window's value
	Relative float64       // slack as a part of the median window; the larger of both counts
}

// minWindows is how many windows a life needs to be judged: of 6, a steady rise is significant.
const minWindows = 6

// significant is the quantile of the normal distribution that 5 % lie above.
const significant = 1.645

// Verdict is what the rule says of one series.
type Verdict struct {
	Lives  []Trend // the judged lives, in the order of their beginnings
	Short  int     // lives too short to be judged
	Reason string  // why the series is not flat; empty if it is
}

// Flat says whether at least one life was judged, and each that was is flat.
func (v Verdict) Flat() bool { return v.Reason == "" }

// Trend is the line through the windows of a life.
type Trend struct {
	Life    string
	Windows []float64
	Median  float64 // of the windows
	Growth  float64 // of the line from the first window to the last
	Score   float64 // Mann-Kendall's, of a normal distribution if there is no trend
}

// Judge says whether the samples of one series are flat. A series of which no life is long enough is not.
func (r Rule) Judge(samples []Sample) (v Verdict, err error) {
	if r.Window <= 0 || r.WarmUp < 0 || r.Absolute < 0 || r.Relative < 0 {
		return v, fmt.Errorf("rule %+v: Window must be above 0, WarmUp, Absolute and Relative not below 0", r)
	}
	for _, life := range lives(samples) {
		windows, err := r.windows(life)
		if err != nil {
			return v, err
		}
		if len(windows) < minWindows {
			v.Short++
			continue
		}
		trend := Trend{life[0].Life, windows, median(windows), slope(windows) * float64(len(windows)-1), score(windows)}
		v.Lives = append(v.Lives, trend)
		if reason := r.refuse(trend); reason != "" && v.Reason == "" {
			v.Reason = reason
		}
	}
	if len(v.Lives) == 0 {
		v.Reason = fmt.Sprintf("no process lived for %v and %d windows of %v", r.WarmUp, minWindows, r.Window)
	}
	return v, nil
}

// refuse says why a life is not flat.
func (r Rule) refuse(t Trend) string {
	slack := r.slack(t)
	if t.Score <= significant || t.Growth <= slack {
		return ""
	}
	return fmt.Sprintf("%q rises by %.4g over %d windows of %v at a median of %.4g (%.4g is allowed)",
		t.Life, t.Growth, len(t.Windows), r.Window, t.Median, slack)
}

// slack is how far the line through a life's windows may rise.
func (r Rule) slack(t Trend) float64 { return max(r.Absolute, r.Relative*t.Median) }

// lives are the samples of each life in the order of time, the lives in the order of their beginnings.
func lives(samples []Sample) (list [][]Sample) {
	number := map[string]int{}
	for _, s := range slices.SortedStableFunc(slices.Values(samples), func(a, b Sample) int { return cmp.Compare(a.At, b.At) }) {
		n, known := number[s.Life]
		if !known {
			n = len(list)
			number[s.Life], list = n, append(list, nil)
		}
		list[n] = append(list[n], s)
	}
	return list
}

// windows are the values of the full windows of a life after its warm-up.
func (r Rule) windows(life []Sample) (values []float64, err error) {
	begin := life[0].At + r.WarmUp
	first, _ := slices.BinarySearchFunc(life, begin, func(s Sample, at time.Duration) int { return cmp.Compare(s.At, at) })
	for end := begin + r.Window; end <= life[len(life)-1].At; end += r.Window {
		next, _ := slices.BinarySearchFunc(life, end, func(s Sample, at time.Duration) int { return cmp.Compare(s.At, at) })
		if next == first {
			return nil, fmt.Errorf("series %q, life %q: there is no sample between %v and %v", life[0].Series, life[0].Life, end-r.Window, end)
		}
		value, err := r.value(life[first : next+1])
		if err != nil {
			return nil, err
		}
		values, first = append(values, value), next
	}
	return values, nil
}

// value is that of one window, whose last sample begins the next one.
func (r Rule) value(samples []Sample) (float64, error) {
	if r.Kind != Counter {
		var all []float64
		for _, s := range samples[:len(samples)-1] {
			all = append(all, s.Value)
		}
		if r.Kind == Floor {
			return slices.Min(all), nil
		}
		return median(all), nil
	}
	for i, s := range samples[1:] {
		if s.Value < samples[i].Value {
			return 0, fmt.Errorf("series %q, life %q: the counter falls from %v to %v at %v", s.Series, s.Life, samples[i].Value, s.Value, s.At)
		}
	}
	return samples[len(samples)-1].Value - samples[0].Value, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// slope is Theil's and Sen's: the median of the slopes between any two values.
func slope(values []float64) float64 {
	var slopes []float64
	for i := range values {
		for j := i + 1; j < len(values); j++ {
			slopes = append(slopes, (values[j]-values[i])/float64(j-i))
		}
	}
	return median(slopes)
}

// score is Mann's and Kendall's: how far the pairs that rise outnumber those that fall, in standard deviations, corrected
// for continuity and for equal values.
func score(values []float64) float64 {
	balance, equals := 0, map[float64]int{}
	for i, v := range values {
		equals[v]++
		for _, later := range values[i+1:] {
			balance += cmp.Compare(later, v)
		}
	}
	spread := func(n int) float64 { return float64(n*(n-1)*(2*n+5)) / 18 }
	variance := spread(len(values))
	for _, n := range equals {
		variance -= spread(n)
	}
	switch {
	case balance > 0:
		return float64(balance-1) / math.Sqrt(variance)
	case balance < 0:
		return float64(balance+1) / math.Sqrt(variance)
	}
	return 0
}
