package batch

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// follow reads for one change alone as a schedule says, where an answer takes a while, and returns how much later than its
// end it was seen and how many reads it took.
func follow(s *schedule, length, answer time.Duration) (late time.Duration, reads int) {
	const reply = 500 * time.Millisecond
	read := time.Duration(0)
	at := shortestPause
	for {
		for s.over(read, at, reply, likelyOver) < likelyOver {
			at += judgeEvery
		}
		reads++
		if at >= length {
			s.note(span{read, at})
			return at - length, reads
		}
		read = at
		at += max(shortestPause, answer)
	}
}

func TestScheduleNeedsNoGuess(t *testing.T) {
	for _, length := range []time.Duration{20 * time.Millisecond, 150 * time.Millisecond, time.Second, 10 * time.Second, time.Minute} {
		late, reads := follow(&schedule{}, length, 120*time.Millisecond)
		if limit := max(length*3/10, 350*time.Millisecond); late > min(limit, longestPause+judgeEvery) {
			t.Errorf("the first change, of %v, is seen %v late", length, late)
		}
		if most := 32; reads > most {
			t.Errorf("the first change, of %v, takes %d reads, want at most %d", length, reads, most)
		}
	}
}

func TestScheduleLearnsAFixedLength(t *testing.T) {
	for _, length := range []time.Duration{100 * time.Millisecond, 900 * time.Millisecond, 3600 * time.Millisecond, 20 * time.Second} {
		s := &schedule{}
		for range 40 {
			follow(s, length, 120*time.Millisecond)
		}
		var late, reads int
		for range 40 {
			l, k := follow(s, length, 120*time.Millisecond)
			late, reads = late+int(l.Milliseconds()), reads+k
		}
		if late/40 > 120 || reads > 200 { // one every longestPause at least
			t.Errorf("after forty changes of %v the next forty are seen %d ms late, with %d reads", length, late/40, reads)
		}
	}
}

func TestScheduleCopesWithLengthsThatVary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name   string
		length func() time.Duration
		p99    time.Duration // the latest at most that 99 of 100 are seen
	}{
		{"a little", func() time.Duration { return time.Duration((1.5 + .1*random.NormFloat64()) * float64(time.Second)) }, 500 * time.Millisecond},
		{"widely", func() time.Duration {
			return time.Duration(math.Exp(.6*random.NormFloat64()) * 2 * float64(time.Second))
		}, 1200 * time.Millisecond},
		{"with one in twenty that takes a minute", func() time.Duration {
			if random.IntN(20) == 0 {
				return time.Minute
			}
			return 2 * time.Second
		}, 2 * time.Second},
	} {
		s := &schedule{}
		var late []time.Duration
		reads, ordinary := 0, 0
		for range 500 {
			long := c.length()
			l, k := follow(s, max(long, time.Millisecond), 120*time.Millisecond)
			late = append(late, l)
			if long < time.Minute {
				reads += k
				ordinary++
			}
		}
		slices.Sort(late)
		if p90 := late[len(late)*9/10]; p90 > 500*time.Millisecond {
			t.Errorf("%s: seen %v late at the 90th percentile", c.name, p90)
		}
		if p99 := late[len(late)*99/100]; p99 > c.p99 {
			t.Errorf("%s: seen %v late at the 99th percentile, want at most %v", c.name, p99, c.p99)
		}
		if each := float64(reads) / float64(ordinary); each > 9 {
			t.Errorf("%s: %.2f reads each, want at most 9", c.name, each)
		}
	}
}

func TestScheduleFollowsAChangeOfPace(t *testing.T) {
	s := &schedule{}
	for _, length := range []time.Duration{4 * time.Second, time.Second, 10 * time.Second, 2 * time.Second} {
		for range 60 {
			follow(s, length, 120*time.Millisecond)
		}
		if late, reads := follow(s, length, 120*time.Millisecond); late > max(length/10, 120*time.Millisecond) || reads > 6 {
			t.Errorf("60 changes after they came to take %v, the next is seen %v late, with %d reads", length, late, reads)
		}
	}
}

func TestScheduleOfAChangeThatNeverEnds(t *testing.T) {
	s := &schedule{}
	for range 10 {
		s.note(span{time.Second, 2 * time.Second})
	}
	_, reads := follow(s, time.Hour, 120*time.Millisecond)
	if least, most := int(time.Hour/longestPause), int(time.Hour/longestPause)+40; reads < least || reads > most {
		t.Errorf("an hour has %d reads, want %d to %d", reads, least, most)
	}
}
