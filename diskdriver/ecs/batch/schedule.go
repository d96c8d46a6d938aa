package batch

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// likelyOver is how likely a change that is waited for alone must be to be over before a read is sent, and mostLikelyOver the
	// share of several that must be: the more there are, the more of what ECS allows an account their reads take.
	likelyOver, mostLikelyOver = 0.1, 0.38
	// mostUnknown is how likely a change of which nothing is known is at most taken to be over when its next read is due.
	mostUnknown = 0.3
	// shortestPause and longestPause bound the time between two reads for one change.
	shortestPause = 50 * time.Millisecond
	longestPause  = 5 * time.Second
	// observationsKept is how many changes of a kind are remembered.
	observationsKept = 32
)

// schedule says how likely a change is to be over that ECS goes on with after it has answered. It goes by how long such
// changes took before, and the fewer of them took as long, the more by the time of ECS's reply and by the age of the change, so that
// it is right for an ECS of any speed.
type schedule struct {
	mu    sync.Mutex
	seen  []span // the newest last
	spans []span // those seen, as spread returns them: over is called for each request every few milliseconds
}

// span is what reads told of one change: not over at one age, over at another.
type span struct{ after, by time.Duration }

func (s span) middle() time.Duration { return (s.after + s.by) / 2 }

// note adds a change that was seen to be over.
func (s *schedule) note(seen span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, seen)
	if len(s.seen) > observationsKept {
		s.seen = append(s.seen[:0:0], s.seen[len(s.seen)-observationsKept:]...)
	}
	s.spans = spread(s.seen)
}

// spread returns the spans in order, each until the middle of the next at least: a change may end at any time between those that
// were seen, and there are few among the longest.
func spread(seen []span) []span {
	ordered := slices.SortedFunc(slices.Values(seen), func(a, b span) int { return cmp.Compare(a.middle(), b.middle()) })
	for i, next := range ordered[1:] {
		ordered[i].by = max(ordered[i].by, next.middle())
	}
	return ordered
}

// over returns how likely a change is to be over at an age, from 0 to 1, that was not at the age of the last read, or has not
// been read (zero). ECS took so long to reply to the call that began it, and a read is sent when it is likely enough.
func (s *schedule) over(read, age, reply time.Duration, enough float64) float64 {
	if age-read >= longestPause {
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown := ageless(read, age, reply, enough)
	if len(s.seen) == 0 {
		return unknown
	}
	all := s.spansAfter(read)
	before, now := share(all, read), share(all, age)
	if before > .99 {
		return unknown // it takes longer than any that was seen
	}
	longer := float64(len(s.seen)) * (1 - before) // so many of those seen
	trust := longer / (longer + 1)
	return trust*(now-before)/(1-before) + (1-trust)*unknown
}

// ageless is over for a change of which nothing is known: as long as ECS took to reply passes between two reads, or a sixth of
// the change's age if that is more.
func ageless(read, age, reply time.Duration, enough float64) float64 {
	pause := max(read/6, reply)
	if read == 0 {
		pause = reply / 2
	}
	return min(1, min(enough, mostUnknown)*float64(age-read)/float64(max(pause, time.Millisecond)))
}

// spansAfter returns the spans to go by: one that all changes seen have in common is that of a change that always takes as long,
// unless the last read has shown that this one takes longer.
func (s *schedule) spansAfter(read time.Duration) []span {
	common := s.seen[0]
	for _, seen := range s.seen {
		common = span{max(common.after, seen.after), min(common.by, seen.by)}
	}
	if common.after < common.by && read < common.by {
		return []span{common}
	}
	return s.spans
}

// share returns the share of the changes that was over at an age, each taken to have ended anywhere in its span.
func share(spans []span, age time.Duration) float64 {
	var over float64
	for _, seen := range spans {
		over += min(max(float64(age-seen.after)/float64(seen.by-seen.after), 0), 1)
	}
	return over / float64(len(spans))
}
