package batch

import (
	"sync"
	"time"
)

const (
	// likelyOver is the share of the changes that are waited for which must be likely to be over before a read is sent: so much
	// later than it could a change is seen, as a part of how long it takes.
	likelyOver = 0.3
	// manyLikelyOver is that share where several are waited for: their reads take more of what ECS allows an account.
	manyLikelyOver = 0.38
	// shortestPause and longestPause bound the time between two reads for one change.
	shortestPause = 50 * time.Millisecond
	longestPause  = 5 * time.Second
	// observationsKept is how many changes of a kind are remembered.
	observationsKept = 32
)

// schedule says how likely a change is to be over that ECS goes on with after it has answered. It goes by how long such
// changes took before, and while it has seen few by the time of ECS's reply and by the age of the change, so that it is right
// for an ECS of any speed.
type schedule struct {
	mu   sync.Mutex
	seen []span // the newest last
}

// span is what reads told of one change: not over at one age, over at another.
type span struct{ after, by time.Duration }

// note adds a change that was seen to be over.
func (s *schedule) note(seen span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, seen)
	if len(s.seen) > observationsKept {
		s.seen = append(s.seen[:0:0], s.seen[len(s.seen)-observationsKept:]...)
	}
}

// over returns how likely a change is to be over at an age, from 0 to 1, that was not at the age of the last read, or has not
// been read (zero). ECS took so long to reply to the call that began it.
func (s *schedule) over(read, age, reply time.Duration) float64 {
	if age-read >= longestPause {
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown := ageless(read, age, reply)
	if len(s.seen) == 0 {
		return unknown
	}
	before, now := s.share(read), s.share(age)
	if before > .99 {
		return unknown // it takes longer than any that was seen
	}
	trust := float64(len(s.seen)) / float64(len(s.seen)+1)
	return trust*(now-before)/(1-before) + (1-trust)*unknown
}

// ageless is over for a change of which nothing is known: as long as ECS took to reply passes between two reads, or a sixth of
// the change's age if that is more.
func ageless(read, age, reply time.Duration) float64 {
	pause := max(read/6, reply)
	if read == 0 {
		pause = reply / 2
	}
	return min(1, likelyOver*float64(age-read)/float64(max(pause, time.Millisecond)))
}

// share returns the share of the changes seen that was over at an age, each taken to have ended anywhere between its two reads.
func (s *schedule) share(age time.Duration) float64 {
	var over float64
	for _, seen := range s.seen {
		over += min(max(float64(age-seen.after)/float64(seen.by-seen.after), 0), 1)
	}
	return over / float64(len(s.seen))
}
