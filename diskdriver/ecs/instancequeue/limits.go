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

// How long an instance isn't asked for more than its limit.
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
	probeAt time.Time     // when one more may be tried; zero for at once
	probing bool          // one more is tried, and has no answer yet
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

// fits says whether one more may join those that are active, and whether it does so to find out.
func (l *limit) fits(active int, now time.Time) (ok, probe bool) {
	if active < l.allowed {
		return true, false
	}
	return active == l.allowed && l.allowed < l.most && !l.probing && !now.Before(l.probeAt), true
}

// lower learns from a refusal: ECS takes no more than it is running. Several that are refused together are refused once.
func (l *limit) lower(running int, probe bool, now time.Time) {
	l.allowed = max(1, min(l.allowed, running))
	l.taken = min(l.taken, l.allowed)
	if probe || l.backoff == 0 {
		l.backoff = min(max(2*l.backoff, firstBackoff), lastBackoff)
		l.probeAt = now.Add(l.backoff)
	}
}

// raise learns from what ECS accepts. After a probe it doubles, so that a lifted limit is found in a few steps.
func (l *limit) raise(running int, probe bool) {
	l.taken = max(l.taken, running)
	if running <= l.allowed {
		return
	}
	l.allowed = running
	if probe {
		l.allowed = 2 * running
		l.backoff, l.probeAt = 0, time.Time{}
	}
	l.allowed = min(l.allowed, l.most)
}

// accepted learns from a call that ECS has accepted beside those that run.
func (all *limits) accepted(v Verb, running [2]int, probe bool) {
	for _, by := range []Limit{Limit(v), OfBoth} {
		all[by].raise(total(by, running), probe)
	}
}

// join adds one operation to the active ones if the limits have room for it, and says whether it probes one. Those who can't yet
// hold back everybody behind them whom the same limit counts.
func (all *limits) join(v Verb, active *[2]int, now time.Time) (ok, probe bool) {
	own, ownProbe := all[v].fits(active[v], now)
	both, bothProbe := all[OfBoth].fits(total(OfBoth, *active), now)
	if !own || !both {
		return false, false
	}
	active[v]++
	return true, ownProbe || bothProbe
}

// probe notes that one more is sent than an instance is known to take. Nobody else goes beyond until that has its answer.
func (all *limits) probe(v Verb, active [2]int) {
	for _, by := range []Limit{Limit(v), OfBoth} {
		if l := &all[by]; l.allowed < l.most && total(by, active) >= l.allowed {
			l.probing = true
		}
	}
}

// probed notes that the probe of an operation is over.
func (all *limits) probed(v Verb) { all[v].probing, all[OfBoth].probing = false, false }
