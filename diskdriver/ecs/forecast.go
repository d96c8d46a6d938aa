package ecs

import (
	"sync"
	"time"
)

// A forecast's memory: how many changes it goes by, how many in a row must
// agree to be taken for the rule, and how closely it cares to know.
const (
	forecastMemory = 32
	forecastAgrees = 4
	forecastClose  = time.Millisecond
)

// The pauses between looks at a change that takes longer than was to be
// expected.
const (
	shortestPause = 100 * time.Millisecond
	longestPause  = time.Second
)

// forecast says when to look at a change that ECS makes in its own time, from
// how long it has been taking for such changes. It wants to see each as soon as
// it is over, and to look in vain seldom.
type forecast struct {
	mu   sync.Mutex
	past []span // the newest last
}

// span is what looks told of one change: not over at one age, over at another.
type span struct{ after, by time.Duration }

// newForecast returns a forecast that goes by what is usual until it has seen
// changes itself.
func newForecast(usual span) *forecast { return &forecast{past: []span{usual}} }

// note adds a change that was seen to be over.
func (f *forecast) note(s span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.past = append(f.past, s)
	if len(f.past) > forecastMemory {
		f.past = append(f.past[:0:0], f.past[len(f.past)-forecastMemory:]...)
	}
}

// next returns the age at which to look at a change next: looked is its age at
// the last look, or less than zero before the first. In a hurry looks are
// earlier and closer.
func (f *forecast) next(looked time.Duration, hurry bool) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, second := f.guess(hurry)
	if looked < first {
		return first
	}
	pause := pauseAfter(looked, hurry)
	if looked < second {
		pause = min(pause, second-looked)
	}
	return looked + pause
}

// pauseAfter returns the pause after a look in vain at a change of some age.
func pauseAfter(age time.Duration, hurry bool) time.Duration {
	longest := longestPause
	if hurry {
		longest = urgentPause
	}
	return min(max(age/4, shortestPause), longest)
}

// guess returns the two ages at which a change is likely to be seen over.
func (f *forecast) guess(hurry bool) (first, second time.Duration) {
	if rule, ok := f.agreed(); ok {
		width := rule.by - rule.after
		if width <= forecastClose {
			return rule.by, rule.by
		}
		return rule.by - width/4, rule.by
	}
	if hurry {
		return f.quantile(.5), f.quantile(.8)
	}
	return f.quantile(.65), f.quantile(.9)
}

// agreed returns what all changes of late have in common: where ECS takes the
// same time for each, every change narrows it down.
func (f *forecast) agreed() (span, bool) {
	common, n := f.past[len(f.past)-1], 0
	for i := len(f.past) - 1; i >= 0; i-- {
		s := span{max(common.after, f.past[i].after), min(common.by, f.past[i].by)}
		if s.after >= s.by {
			break
		}
		common = s
		n++
	}
	return common, n >= forecastAgrees
}

// quantile returns the age by which a share of the changes was over, each
// taken to have ended anywhere between its two looks.
func (f *forecast) quantile(share float64) time.Duration {
	var low, high time.Duration
	for _, s := range f.past {
		high = max(high, s.by)
	}
	for high-low > forecastClose/2 {
		middle := (low + high) / 2
		var over float64
		for _, s := range f.past {
			over += min(max(float64(middle-s.after)/float64(s.by-s.after), 0), 1)
		}
		if over < share*float64(len(f.past)) {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}
