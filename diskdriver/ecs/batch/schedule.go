package batch

import (
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// shortestPause and longestPause bound the time between two reads for one change.
	shortestPause = 50 * time.Millisecond
	longestPause  = 5 * time.Second
	// observationsKept is how many changes of a kind are remembered, and observationsTrusted how many must have taken longer than a change has
	// so far for the last of them to say when it is all but certainly over.
	observationsKept, observationsTrusted = 32, 8
	// crowdPause is how much longer the pauses between reads of changes of which nothing is known are the more of them wait: so that hundreds
	// of waits cost not many more calls than one.
	crowdPause = 0.4
)

// schedule says when to read a change that ECS goes on with after it has answered. It goes by how long such changes took before, and for one
// that takes longer by the time of ECS's reply and by its age, so that it is right for an ECS of any speed.
type schedule struct {
	mu   sync.Mutex
	seen []span // the newest last
}

// span is what reads told of one change: not over at one age, over at another.
type span struct{ after, by time.Duration }

// likelyOver returns the age in a span at which to read such a change: near its end, for one that is not over is read once more, and at the
// end of a short one.
func (s span) likelyOver() time.Duration {
	if s.by-s.after <= shortestPause {
		return s.by
	}
	return (s.after + 7*s.by) / 8
}

// note adds a change that was seen to be over.
func (s *schedule) note(seen span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, seen)
	if len(s.seen) > observationsKept {
		s.seen = append(s.seen[:0:0], s.seen[len(s.seen)-observationsKept:]...)
	}
}

// next returns the ages at which to read a change that was not over at the age of the last read, or has not been read (zero): with others at
// the one at which a share of those seen that took longer were over, and alone at the other. ECS took so long to reply to the call that began
// it: that passes between two reads of a change that takes longer than any seen, or a sixth of its age if that is more, and once more for each
// one seen that took longer at most.
func (s *schedule) next(read, reply time.Duration, share float64) (shared, alone time.Duration) {
	pause := max(read/6, reply)
	if read == 0 {
		pause = reply / 2
	}
	longer := s.longerThan(read)
	n := len(longer)
	if n == 0 {
		pause += time.Duration(crowdPause * (share - oneShare) * float64(pause))
	}
	shared, alone = read+time.Duration(n+1)*pause, read+2*pause
	if n > 0 {
		shared = min(shared, longer[int(math.Ceil(share*float64(n)))-1])
		if alone = max(alone, longer[n-1]); n >= observationsTrusted {
			alone = longer[n-1]
		}
	}
	return min(shared, read+longestPause), min(alone, read+longestPause)
}

// longerThan returns at what ages the changes were over that were seen and took longer, in order. Where all may have taken equally long, each
// of them tells how long that is.
func (s *schedule) longerThan(age time.Duration) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	common := span{by: math.MaxInt64}
	for _, seen := range s.seen {
		common = span{max(common.after, seen.after), min(common.by, seen.by)}
	}
	var longer []time.Duration
	for _, seen := range s.seen {
		if common.after < common.by {
			seen = common
		}
		if seen.by > age {
			longer = append(longer, span{max(seen.after, age), seen.by}.likelyOver())
		}
	}
	slices.Sort(longer)
	return longer
}
