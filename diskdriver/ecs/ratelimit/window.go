package ratelimit

import (
	"math/rand/v2"
	"time"
)

// ECS counts the calls of an action in fixed windows of one minute; once an
// account has used a window up, every further call is refused until the next
// window (ECS API, "API throttling"). It says neither when windows start nor
// how many calls they take, and all clients of the account share them.
const (
	window       = time.Minute
	firstBackoff = time.Second
	lastBackoff  = 5 * time.Second
)

const (
	// startConcurrency is how many calls are in flight at most before one was
	// accepted: all of them are refused together when a window is used up.
	startConcurrency = 32
	// burstWidth and lateWidth bound the calls in flight, as parts of the share,
	// at the start of a window and late in it: so many are refused together.
	burstWidth = 5
	lateWidth  = 40

	// yieldPart is the part of its share that a client leaves to all clients
	// until late in the window.
	yieldPart = 3
	// lateTime is how long before its end that is, and leastLateTime what is counted
	// on, for the end may be known roughly.
	lateTime      = 15 * time.Second
	leastLateTime = 8 * time.Second
	// latePause is the mean time between two calls of a client then, however
	// large its share is.
	latePause = 400 * time.Millisecond

	// unusedKept is after how many windows in a row that refused nothing, and of
	// which the client did not use its share, the share is forgotten.
	unusedKept = 3

	// leastShare is the least share that is assumed. A client that has less is refused once in each window; with less than that, refusals
	// by chance would leave it one call a minute.
	leastShare = 10
	// leastMore is by how much even a small share can grow in a window.
	leastMore = 10
	// acceptedPerRefusal is how many accepted calls allow one refusal.
	acceptedPerRefusal = 30
	// leastCredit is what every client may risk in a window, and maxCredit what
	// it may save. Twenty clients of 100 calls a minute risk 4 % of them.
	leastCredit = 0.2
	maxCredit   = 2
	// maxDebt is how many refusals that were not allowed are made up for before more is risked: those of a bad minute say nothing of the next.
	maxDebt = 1

	// strayPause is how long calls wait after a refusal that may be a stray one, and
	// strayApart is how long after one another refusal is taken for one again: what
	// is refused more often has a limit.
	strayPause = 200 * time.Millisecond
	strayApart = 10 * time.Second

	// acceptedPerMore is how many calls must be accepted at least before more are tried at once than ECS is known to take, and
	// which part more that is.
	acceptedPerMore = 8

	// windowed is for how long an action is refused if it has windows. What is
	// accepted again sooner, and not at the start of a minute, trickles in.
	windowed = 5 * time.Second
	// narrow is how well the start of windows has to be known.
	narrow = 2 * time.Second
)

// windows is what has been learned of the windows of one action, and of this
// client's share of them. It is told what was sent, accepted and refused, and
// says what may be sent when. It is pure, and not safe for concurrent use.
//
// The share is what the last window accepted of this client, so the shares of
// all busy clients of an account add up to its limit. Two thirds of its share a
// client sends when the window opens. For the rest all clients compete late in
// the window, at the same rate: those with a small share get more than they
// left, those with a large one less, and the shares become alike.
//
// A client may ask for more than its share as long as it has credit: each
// accepted call earns a part of a refusal. That bounds the throttled calls of
// the account however many clients it has, and what other clients don't use is
// found within a few windows. A share that is smaller than what a window has accepted before
// doubles with each window that refuses nothing: ECS may have refused calls by chance.
type windows struct {
	concurrency int // calls in flight at most
	atOnce      int // and how many ECS takes at once, as far as is known; zero for any number
	sinceThen   int // accepted calls since that was changed last

	seq      int       // grows with each window
	opens    time.Time // when the present one opened; zero before the first call
	sent     int       // calls sent in it
	accepted int       // of these
	yield    int       // calls of the share that are left until late
	late     time.Time // when the next of these may be sent
	ramp     int       // calls in flight at most while nothing else limits them

	share  int     // calls that the last window accepted; 0 if none has refused any
	unused int     // windows in a row that refused nothing, and in which fewer calls were sent than the share
	credit float64 // refusals that may be risked
	peak   int     // the most calls that a window accepted; an eighth is forgotten with each window that is used up

	sure      bool      // of windows, and of their start: it lies
	after, by time.Time // after the one and not after the other, give or take whole minutes

	closed    bool      // nothing may be sent but one probe at notBefore
	refused   bool      // ECS closed it
	since     time.Time // when it refused the first call
	last      time.Time // when the last call that it refused was sent
	refusals  int       // probes in a row, since the window was due
	notBefore time.Time

	before  *unlearned // what the refusal is forgotten to if the first probe is accepted; nil if it isn't
	strayed time.Time  // when a refusal was taken for a stray one last
}

// unlearned is what was known before a refusal.
type unlearned struct {
	share, peak int
	credit      float64
}

// minuteOf is when the minute of a time began. Unlike what Truncate returns it is compared by the monotonic clock, so that a wall clock
// that is set back delays nothing.
func minuteOf(t time.Time) time.Time { return t.Add(t.Truncate(window).Sub(t)) }

// stamp identifies a call when its answer comes.
type stamp struct {
	seq   int
	at    time.Time // when it was sent
	probe bool
}

// room says whether one more call may be sent beside those in flight. If not,
// at is when to ask again; zero for: when a call is answered.
func (w *windows) room(now time.Time, inFlight int) (ok bool, at time.Time) {
	w.roll(now)
	switch {
	case w.closed && now.Before(w.notBefore):
		return false, w.notBefore
	case w.closed && w.refused:
		return inFlight == 0, time.Time{}
	case w.closed:
		w.open(now)
		w.sent, w.accepted = 0, 0
	case w.waitsTillLate(now):
		return false, w.late
	}
	if width := w.width(); width > 0 {
		if w.atOnce > 0 {
			width = min(width, w.atOnce)
		}
		return inFlight < width, time.Time{}
	}
	w.closeUnrefused(now)
	return false, w.notBefore
}

// closeUnrefused ends the window for this client before it refuses a call.
func (w *windows) closeUnrefused(now time.Time) {
	w.closed, w.refused, w.refusals = true, false, 0
	_, w.notBefore = w.nextOpening(now)
}

// waitsTillLate says whether the client has sent what it sends at once.
func (w *windows) waitsTillLate(now time.Time) bool {
	return w.share > 0 && w.sent >= w.share-w.yield && now.Before(w.late)
}

// delays says whether calls have to wait for a time.
func (w *windows) delays(now time.Time) bool {
	return w.closed || w.waitsTillLate(now)
}

// latePause is the mean time between two calls late in a window. It leaves the
// time to send all of the yield and half as much again.
func (w *windows) latePause() time.Duration {
	return min(latePause, leastLateTime/time.Duration(w.yield+w.yield/2+1)) / time.Duration(max(1, w.ramp))
}

// width is how many calls may be in flight.
func (w *windows) width() int {
	switch {
	case w.share == 0:
		return min(w.ramp, max(startConcurrency, max(w.accepted, w.peak)/acceptedPerRefusal), w.concurrency)
	case w.sent < w.share-w.yield:
		return min(w.concurrency, w.share/burstWidth+1)
	case w.sent < w.share:
		return min(w.concurrency, w.share/lateWidth+1)
	case w.credit > 0 && w.sent < w.share+w.more():
		return min(w.ramp, w.share/lateWidth+1, w.concurrency)
	}
	return 0
}

// more is how many calls beyond its share the client asks for in a window.
func (w *windows) more() int { return max(leastMore, w.share) }

// roll begins a new window when its time has come. Of windows that nothing is
// known of the likeliest start is that of a minute.
func (w *windows) roll(now time.Time) {
	if w.opens.IsZero() {
		w.ramp = startConcurrency
		w.begin(minuteOf(now))
	}
	if w.closed || now.Sub(w.opens) < window {
		return
	}
	passed := now.Sub(w.opens).Truncate(window)
	w.settle(int(passed / window))
	w.ramp = max(w.ramp, startConcurrency)
	w.begin(w.opens.Add(passed))
}

// settle learns the share from a window that is over, and after which so many have
// passed, itself counted.
func (w *windows) settle(passed int) {
	if w.share > 0 && !w.refused {
		w.share = max(w.share, w.accepted)
		if w.sent >= w.share { // and would have sent more
			w.share = max(w.share, min(2*w.share, w.peak))
		}
	}
	w.peak = max(w.accepted, w.peak)
	if w.refused || w.sent >= w.share {
		w.unused = -1
	}
	if w.unused += passed; w.unused >= unusedKept {
		w.share, w.unused, w.ramp = 0, 0, startConcurrency
	}
}

// begin starts to count a new window.
func (w *windows) begin(at time.Time) {
	w.seq++
	w.earn(max(0, leastCredit-float64(w.accepted)/acceptedPerRefusal))
	w.opens, w.sent, w.accepted = at, 0, 0
	if w.share == 0 {
		return
	}
	w.ramp = 1
	w.yield = w.share / yieldPart
	w.late = at.Add(window - lateTime + rand.N(w.latePause()))
}

func (w *windows) earn(credit float64) { w.credit = min(maxCredit, w.credit+credit) }

// send notes that a call is sent.
func (w *windows) send(now time.Time) stamp {
	if !w.closed {
		w.sent++
		if w.share > 0 && w.sent > w.share-w.yield {
			w.late = now.Add(w.latePause()/2 + rand.N(w.latePause()))
		}
	}
	return stamp{seq: w.seq, at: now, probe: w.closed}
}

// unsend notes that it was not.
func (w *windows) unsend(s stamp) {
	if !s.probe && s.seq == w.seq {
		w.sent--
	}
}

// accept learns from a call that ECS took.
func (w *windows) accept(s stamp) {
	w.earn(1. / acceptedPerRefusal)
	w.allowMore()
	switch {
	case s.probe && w.closed && w.before != nil:
		w.resume()
	case s.probe && w.closed:
		w.open(s.at)
	case s.seq != w.seq:
	case w.closed && w.refused:
		w.accepted++ // it was sent before the window was closed
		w.share = max(w.share, w.accepted)
	default:
		w.accepted++
		if w.share == 0 || w.accepted > w.share {
			w.ramp++
		}
	}
}

// isStray says whether a refusal may have nothing to do with a window that is used
// up: the client was not near its share, as far as it has one, and ECS has refused
// nothing for a while.
func (w *windows) isStray(now time.Time) bool {
	return (w.share == 0 || w.accepted < w.share*3/4) && now.Sub(w.strayed) >= strayApart
}

// pause holds calls back for a moment, after which one probes. Accepted, it shows
// that no window is used up.
func (w *windows) pause(s stamp, now time.Time) {
	if w.before == nil {
		w.before = &unlearned{w.share, w.peak, w.credit}
		w.strayed = now
	}
	if s.at.After(w.last) {
		w.last = s.at
	}
	w.closed, w.refused, w.since = true, true, s.at
	w.notBefore = now.Add(min(strayPause<<min(w.refusals, 10), lastBackoff) + rand.N(strayPause/2))
	w.refusals++
}

// resume goes on as before a refusal.
func (w *windows) resume() {
	w.share, w.peak, w.credit = w.before.share, w.before.peak, w.before.credit
	w.before, w.closed, w.refused, w.refusals = nil, false, false, 0
	w.sent++
	w.accepted++
}

// refuseCrowd learns from a call that ECS did not take for the calls beside it,
// of which so many were in flight: a quarter fewer may be there now.
func (w *windows) refuseCrowd(s stamp, now time.Time, inFlight int) {
	if s.seq != w.seq && !s.probe || w.closed && !s.probe {
		return // one of a crowd that was refused together
	}
	if w.closed && w.before == nil {
		w.refuse(s, now)
		return
	}
	w.atOnce, w.sinceThen = max(1, inFlight*3/4), 0
	w.pause(s, now)
}

// allowMore lets more calls be in flight once many were accepted.
func (w *windows) allowMore() {
	if w.atOnce == 0 {
		return
	}
	if w.sinceThen++; w.sinceThen < max(acceptedPerMore, w.atOnce) {
		return
	}
	if w.atOnce, w.sinceThen = w.atOnce+max(1, w.atOnce/acceptedPerMore), 0; w.atOnce >= w.concurrency {
		w.atOnce = 0
	}
}

// refuse learns from a call that ECS did not take. now is when that is known.
func (w *windows) refuse(s stamp, now time.Time) {
	if !w.closed && s.seq == w.seq && w.isStray(now) {
		w.pause(s, now)
		w.share = max(leastShare, w.accepted)
		return
	}
	if w.closed && w.before != nil && s.probe { // it was no stray one
		w.before = nil
		if w.sure {
			w.credit = max(-maxDebt, w.credit-1)
			w.peak = w.peak * 7 / 8
		}
	}
	if w.sure {
		w.credit = max(-maxDebt, w.credit-1)
	}
	if s.seq != w.seq && !s.probe {
		return // of a window that is over
	}
	if s.at.After(w.last) {
		w.last = s.at
	}
	if w.closed && !s.probe {
		return // one of a crowd that was refused together
	}
	if !w.closed {
		w.share = max(leastShare, w.accepted)
		if w.sure {
			w.peak = w.peak * 7 / 8
		}
	}
	if !w.refused {
		w.refused, w.since = true, s.at
	}
	w.closed = true
	w.refusals++
	w.notBefore = w.nextProbe(now)
}

// nextProbe is when to try whether the next window is open.
func (w *windows) nextProbe(now time.Time) time.Time {
	if w.sure {
		first, surely := w.nextOpening(now)
		switch within := first.Add(surely.Sub(first) / 2); {
		case w.credit > -1 && surely.Sub(first) > narrow && within.After(now):
			return within // accepted there, it shows an opening; without a refusal before it would show nothing
		case w.refusals <= 2 || surely.Sub(now) < lastBackoff:
			return surely
		}
	}
	backoff := min(lastBackoff, firstBackoff<<min(max(w.refusals-1, 0), 10))
	probe := now.Add(backoff + rand.N(backoff/4))
	// A call that was sent before a minute began says nothing of that minute, though
	// its refusal came within it. Clusters that share an account must not all come
	// in the first instant.
	minute := minuteOf(w.last).Add(window)
	switch before := minute.Add(-narrow / 2); {
	case probe.Before(before):
		return probe
	case now.Before(before):
		return before // refused there and accepted a moment later, it shows that windows start with the minute
	case probe.Before(minute):
		return probe
	}
	w.refusals = 0
	return minute.Add(rand.N(firstBackoff / 4))
}

// earliest is the soonest that a call may be sent before which so many others
// wait, while calls are delayed.
func (w *windows) earliest(ahead int) time.Time {
	first := w.notBefore
	if !w.closed {
		if ahead < w.yield {
			return w.late
		}
		first, ahead = w.opens.Add(window), ahead-w.yield
	}
	if !w.sure || w.share == 0 {
		return first
	}
	return first.Add(time.Duration(ahead/w.share) * window)
}

// nextOpening is the span in which the next window opens.
func (w *windows) nextOpening(now time.Time) (after, by time.Time) {
	after, by = w.after, w.by
	if !w.sure {
		after, by = w.opens, w.opens
	}
	ahead := now.Sub(by).Truncate(window)
	if !by.Add(ahead).After(now) {
		ahead += window
	}
	return after.Add(ahead), by.Add(ahead)
}

// open learns from a call that was accepted again after a time of refusals, or
// begins the window that was waited for.
func (w *windows) open(at time.Time) {
	w.settle(1)
	w.locate(at)
	w.closed, w.refused, w.refusals = false, false, 0
	if w.sure {
		w.begin(w.by)
	} else {
		w.begin(at)
	}
	w.sent, w.accepted = 1, 1
}

// locate learns when windows open from a call that was accepted.
func (w *windows) locate(at time.Time) {
	minute := minuteOf(at)
	switch {
	case w.sure:
		w.fit(at)
	case !w.refused || at.Sub(w.last) >= window:
		// Nobody has asked for so long that any window could have opened.
	case at.Sub(w.since) >= windowed:
		w.sure, w.after, w.by = true, w.last, at
	case at.Sub(minute) >= narrow:
		// No window opens here: calls trickle in. There is no limit to a minute
		// to hold to, and few are risked at a time.
		w.share, w.ramp = 0, 1
	}
}

// fit makes the start of windows narrower by one opening, or gives it up if
// windows opened at another time. Only a call that was refused shortly before
// shows that it was an opening.
func (w *windows) fit(at time.Time) {
	k := at.Sub(w.after).Truncate(window)
	w.after, w.by = w.after.Add(k), w.by.Add(k)
	if !w.refused {
		return
	}
	if w.last.After(w.after) {
		w.after = w.last
	}
	if at.Before(w.by) {
		w.by = at
	}
	w.sure = w.after.Before(w.by)
}
