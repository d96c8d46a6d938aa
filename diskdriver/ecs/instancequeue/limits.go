package instancequeue

import "time"

// Limit is one of an instance's limits.
type Limit int

// The limits.
const (
	OfAttaches Limit = Limit(Attach)
	OfDetaches Limit = Limit(Detach)
	OfBoth     Limit = 2 // attaches and detaches count together
)

// What an instance takes at most: the limits of parallel operations. None has been seen to take more.
const (
	mostAttaches = 32
	mostDetaches = 5
)

// How long an instance isn't asked for more than its limit, at first and at most: ECS's limits rise seldom, and a refusal costs a call.
const (
	firstBackoff = time.Minute
	lastBackoff  = time.Hour
)

// limit is what is known of one limit of an instance.
type limit struct {
	allowed int           // as many at a time as ECS is known, or hoped, to take
	most    int           // more than that are never tried
	taken   int           // the most at a time that ECS has accepted
	backoff time.Duration // between one try of more and the next
	tryAt   time.Time     // when one more may be tried; zero for at once
}

// limits are those of one instance, by Limit.
type limits [3]limit

// highest returns the limits of an account of which nothing is known.
func highest() limits {
	var all limits
	for by, n := range []int{mostAttaches, mostDetaches, mostAttaches + mostDetaches} {
		all[by] = limit{allowed: n, most: n}
	}
	return all
}

// total is how many operations of those of each Verb a limit counts.
func total(by Limit, operations [2]int) int {
	if by == OfBoth {
		return operations[Attach] + operations[Detach]
	}
	return operations[by]
}

// fits says whether one more may join those that are active.
func (l *limit) fits(active int, now time.Time) bool {
	return active < l.allowed || l.isTry(active) && !now.Before(l.tryAt)
}

// isTry says whether one more is tried than ECS is known to take.
func (l *limit) isTry(active int) bool { return active == l.allowed && l.allowed < l.most }

// lower learns from a refusal: ECS takes no more than it is running. Several that are refused together are refused once.
func (l *limit) lower(running int, tried bool, now time.Time) {
	l.allowed = max(1, min(l.allowed, running))
	l.taken = min(l.taken, l.allowed)
	if tried || l.backoff == 0 {
		l.backoff = min(max(2*l.backoff, firstBackoff), lastBackoff)
		l.tryAt = now.Add(l.backoff)
	}
}

// raise learns from what ECS accepts: the next may try one more at once.
func (l *limit) raise(running int, tried bool) {
	l.taken = max(l.taken, running)
	if tried {
		l.allowed, l.backoff, l.tryAt = l.allowed+1, 0, time.Time{}
	}
	l.allowed = min(max(l.allowed, running), l.most)
}

// join adds one operation to the active ones if the limits have room for it. Those who can't yet hold back everybody behind them whom the same
// limit counts.
func (all *limits) join(v Verb, active *[2]int, now time.Time) bool {
	if !all[v].fits(active[v], now) || !all[OfBoth].fits(total(OfBoth, *active), now) {
		return false
	}
	active[v]++
	return true
}

// sent notes that a call is sent beside those that are active, and returns the limits by which it tries one more than ECS is known to take.
// Nobody else does then until ECS has accepted that, or for a while.
func (all *limits) sent(v Verb, active [2]int, now time.Time) (tried [3]bool) {
	for _, by := range []Limit{Limit(v), OfBoth} {
		if l := &all[by]; l.isTry(total(by, active)) {
			l.tryAt, tried[by] = now.Add(max(l.backoff, firstBackoff)), true
		}
	}
	return tried
}

// unsent lets another one try what a call did not, for it did not get as far as the instance.
func (all *limits) unsent(tried [3]bool) {
	for by, tried := range tried {
		if tried {
			all[by].tryAt = time.Time{}
		}
	}
}

// accepted learns from a call that ECS has accepted beside those that run.
func (all *limits) accepted(v Verb, running [2]int, tried [3]bool) {
	for _, by := range []Limit{Limit(v), OfBoth} {
		all[by].raise(total(by, running), tried[by])
	}
}
