package ecs

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// follow looks at one change by a forecast, where a look's answer takes a while,
// and returns how much later than its end it was seen and how many looks left.
func follow(f *forecast, length, answer time.Duration, hurry bool) (late time.Duration, looks int) {
	looked, missed := time.Duration(-1), time.Duration(0)
	for {
		at := f.next(looked, hurry)
		if looks > 0 {
			at = max(at, looked+answer)
		}
		looks++
		if at >= length {
			f.note(span{missed, at})
			return at - length, looks
		}
		looked, missed = at, at
	}
}

func TestAForecastFindsAFixedLength(t *testing.T) {
	for _, length := range []time.Duration{50 * time.Millisecond, 900 * time.Millisecond, 1500 * time.Millisecond, 3600 * time.Millisecond, 20 * time.Second} {
		f := newForecast(usual[toAttach])
		looks, n := 0, 0
		var late []time.Duration
		for range 20 {
			follow(f, length, 120*time.Millisecond, false)
		}
		for range 200 {
			l, k := follow(f, length, 120*time.Millisecond, false)
			late = append(late, l)
			looks += k
			n++
		}
		slices.Sort(late)
		if p50 := late[len(late)/2]; p50 > 3*time.Millisecond {
			t.Errorf("changes of %v are seen %v late in the middle", length, p50)
		}
		if p90 := late[len(late)*9/10]; p90 > 120*time.Millisecond {
			t.Errorf("changes of %v are seen %v late at the 90th percentile", length, p90)
		}
		if each := float64(looks) / float64(n); each > 1.5 {
			t.Errorf("changes of %v take %.2f looks each", length, each)
		}
	}
}

func TestAForecastCopesWithLengthsThatVary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, length := range map[string]func() time.Duration{
		"a little": func() time.Duration { return time.Duration((1.5 + .1*random.NormFloat64()) * float64(time.Second)) },
		"widely": func() time.Duration {
			return time.Duration(math.Exp(.6*random.NormFloat64()) * 2 * float64(time.Second))
		},
		"with one in twenty that takes a minute": func() time.Duration {
			if random.IntN(20) == 0 {
				return time.Minute
			}
			return 2 * time.Second
		},
	} {
		for _, hurry := range []bool{false, true} {
			f := newForecast(usual[toAttach])
			var late []time.Duration
			looks, ordinary := 0, 0
			for range 500 {
				long := length()
				l, k := follow(f, max(long, time.Millisecond), 120*time.Millisecond, hurry)
				late = append(late, l)
				if long < time.Minute {
					looks += k
					ordinary++
				}
			}
			slices.Sort(late)
			if p90 := late[len(late)*9/10]; p90 > 2*time.Second {
				t.Errorf("%s (hurry %v): seen %v late at the 90th percentile", name, hurry, p90)
			}
			if each := float64(looks) / float64(ordinary); each > 5 {
				t.Errorf("%s (hurry %v): %.2f looks each, want at most 5", name, hurry, each)
			}
		}
	}
}

func TestAForecastFollowsAChangeOfPace(t *testing.T) {
	f := newForecast(usual[toDetach])
	for _, length := range []time.Duration{4 * time.Second, time.Second, 10 * time.Second, 2 * time.Second} {
		for range 60 {
			follow(f, length, 120*time.Millisecond, false)
		}
		var late []time.Duration
		for range 20 {
			l, _ := follow(f, length, 120*time.Millisecond, false)
			late = append(late, l)
		}
		slices.Sort(late)
		if late[10] > 5*time.Millisecond {
			t.Errorf("60 changes after they came to take %v, they are seen %v late", length, late[10])
		}
	}
}

func TestLooksAtAChangeThatNeverEndsAreASecondApart(t *testing.T) {
	for hurry, want := range map[bool]time.Duration{false: longestPause, true: urgentPause} {
		f := newForecast(usual[toAttach])
		looked := time.Duration(-1)
		for range 100 {
			at := f.next(looked, hurry)
			if at <= looked {
				t.Fatalf("after a look at %v comes one at %v", looked, at)
			}
			if looked > 10*time.Second && at-looked != want {
				t.Fatalf("hurry %v: after a look at %v comes one at %v, want %v later", hurry, looked, at, want)
			}
			looked = at
		}
	}
}
