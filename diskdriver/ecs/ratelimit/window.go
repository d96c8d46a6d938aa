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
	lastBackoff  = 16 * time.Second
)

const (
	// careful is how many calls are in flight at most while nobody knows what
	// the window takes: all of them are refused together when it is used up.
	careful = 32
	// share bounds the same as a part of what windows have taken so far, so
	// that large windows are found fast and at the same price.
	share = 25
	// longDark is for how long an action is refused if it has a window. What
	// is accepted again sooner, and not at the start of a minute, trickles in.
	longDark = 5 * time.Second
	// narrow is how well the start of windows has to be known to be sure of it.
	narrow = time.Second
	// lastTry is how many windows at most are used to their limit, and no
	// further, before one is asked for more.
	lastTry = 4
)

// windows is what has been learned of the windows of one action. It is told
// what was sent, accepted and refused, and says what may be sent when. It is
// pure, and not safe for concurrent use.
type windows struct {
	concurrency int // calls in flight at most

	seq      int       // grows with each window
	opens    time.Time // when the present one opened; zero before the first call
	sent     int       // calls sent in it
	accepted int       // of these
	most     int       // calls that one window has accepted, the largest number so far

	limit    int  // calls that a window takes for sure; 0 if none has refused one yet
	ramp     int  // calls in flight beyond the limit, or while windows are not understood
	beyond   bool // the limit of this window is being tried
	tryIn    int  // full windows to come before one is asked for more
	tryPause int

	sure      bool      // of windows, and of their start: it lies
	after, by time.Time // after the one and not after the other, give or take whole minutes

	shut      bool      // nothing may be sent but one probe at notBefore
	refused   bool      // it was ECS that shut it
	dark      time.Time // since when it has refused calls
	last      time.Time // when the last call that it refused was sent
	refusals  int       // probes in a row, since the window was due
	notBefore time.Time
}

// stamp is what a call has to bring back from its way.
type stamp struct {
	seq   int
	at    time.Time // when it was sent
	probe bool
}

// room says whether one more call may be sent beside those in flight. If not,
// at is when to ask again; zero for: when a call is back.
func (w *windows) room(now time.Time, inFlight int) (ok bool, at time.Time) {
	w.roll(now)
	if w.limit > 0 && w.sent >= w.limit && !w.shut && !w.beyond {
		if inFlight > 0 {
			return false, time.Time{} // their answers tell more
		}
		w.goOn(now)
	}
	switch {
	case w.shut && now.Before(w.notBefore):
		return false, w.notBefore
	case w.shut && !w.refused && w.by.Sub(w.after) <= narrow:
		w.open(now) // a window that was left in time needs no probe
		w.sent, w.accepted = 0, 0
	case w.shut:
		return inFlight == 0, time.Time{}
	}
	return inFlight < w.width(), time.Time{}
}

// width is how many calls may be in flight.
func (w *windows) width() int {
	if w.limit > 0 && w.sent < w.limit && !w.beyond {
		return min(w.concurrency, w.limit-w.sent+1)
	}
	return min(w.ramp, max(careful, w.most/share, w.accepted/share), w.concurrency)
}

// goOn decides what to do with a window that has taken all that it is known to
// take: leave it, or every so often ask it for more, one call at first.
func (w *windows) goOn(now time.Time) {
	if w.sure && w.tryIn > 0 {
		w.shut, w.refused, w.refusals = true, false, 0
		w.notBefore = w.nextProbe(now)
		return
	}
	w.beyond, w.ramp = true, 1
}

// roll begins a new window when its time has come. Of windows that nothing is
// known of the likeliest start is that of a minute.
func (w *windows) roll(now time.Time) {
	if w.opens.IsZero() {
		w.opens, w.ramp = now.Truncate(window), careful
	}
	if w.shut || now.Sub(w.opens) < window {
		return
	}
	w.rest()
	w.begin(w.opens.Add(now.Sub(w.opens).Truncate(window)))
}

// rest takes down what a window has shown that is over.
func (w *windows) rest() {
	w.most = max(w.most, w.accepted)
	if w.limit == 0 {
		return
	}
	if w.refused {
		return
	}
	if w.sent >= w.limit && w.tryIn > 0 {
		w.tryIn--
	}
	if w.beyond && w.accepted > w.limit {
		w.limit = w.accepted // and maybe more
	}
}

func (w *windows) begin(at time.Time) {
	w.seq++
	w.opens, w.sent, w.accepted, w.beyond = at, 0, 0, false
	w.ramp = max(w.ramp, careful)
}

// send notes that a call leaves.
func (w *windows) send(now time.Time) stamp {
	if !w.shut {
		w.sent++
	}
	return stamp{seq: w.seq, at: now, probe: w.shut}
}

// unsend notes that it didn't.
func (w *windows) unsend(s stamp) {
	if !s.probe && s.seq == w.seq {
		w.sent--
	}
}

// accept learns from a call that ECS took.
func (w *windows) accept(s stamp) {
	switch {
	case s.probe && w.shut:
		w.open(s.at)
	case s.seq != w.seq:
	case w.shut && w.refused:
		w.accepted++ // it left before the window was shut
		w.limit = max(w.limit, w.accepted)
	default:
		w.accepted++
		w.ramp++
	}
}

// refuse learns from a call that ECS did not take. now is when that is known.
func (w *windows) refuse(s stamp, now time.Time) {
	if s.seq != w.seq && !s.probe {
		return // of a window that is over
	}
	if s.at.After(w.last) {
		w.last = s.at
	}
	if w.shut && !s.probe {
		return // one of a crowd that was refused together
	}
	if !w.shut {
		w.exhaust()
	}
	if !w.refused {
		w.refused, w.dark = true, s.at
	}
	w.shut = true
	w.refusals++
	w.notBefore = w.nextProbe(now)
}

// exhaust learns how many calls a window takes from the one that it refused.
func (w *windows) exhaust() {
	asMuch := w.beyond && w.accepted >= w.limit && w.accepted <= w.limit+1
	w.most = max(w.most, w.accepted)
	w.limit = max(1, w.accepted)
	w.tryPause = max(1, w.tryPause)
	if asMuch {
		w.tryPause = min(2*w.tryPause, lastTry)
	} else {
		w.tryPause = 1
	}
	w.tryIn = w.tryPause
}

// nextProbe is when to try whether the next window is open.
func (w *windows) nextProbe(now time.Time) time.Time {
	if w.sure {
		first, surely := w.nextOpening(now)
		switch middle := surely.Add(-w.by.Sub(w.after) / 2); {
		case w.refused && surely.Sub(first) > narrow && middle.After(now):
			return middle // accepted there, it shows an opening; without a refusal before it would show nothing
		case w.refusals <= 2 || surely.Sub(now) < lastBackoff:
			return surely
		}
	}
	backoff := min(lastBackoff, firstBackoff<<min(max(w.refusals-1, 0), 10))
	probe := now.Add(backoff + rand.N(backoff/4))
	// A call that was sent before a minute began says nothing of that minute, though
	// its refusal came within it. Clusters that share an account must not all come
	// in the first instant.
	minute := w.last.Truncate(window).Add(window + rand.N(firstBackoff/4))
	if minute.Before(probe) {
		w.refusals = 0
		return minute
	}
	return probe
}

// earliest is the soonest that a call may leave before which so many others
// wait, while the window is shut.
func (w *windows) earliest(ahead int) time.Time {
	if !w.sure || w.limit == 0 {
		return w.notBefore
	}
	return w.notBefore.Add(time.Duration(ahead/w.limit) * window)
}

// nextOpening is the span in which the next window opens.
func (w *windows) nextOpening(now time.Time) (after, by time.Time) {
	ahead := now.Sub(w.by).Truncate(window)
	if !w.by.Add(ahead).After(now) {
		ahead += window
	}
	return w.after.Add(ahead), w.by.Add(ahead)
}

// open learns from a call that was accepted again after a time of refusals, or
// begins the window that was waited for.
func (w *windows) open(at time.Time) {
	refused, dark := w.refused, at.Sub(w.dark)
	sinceMinute := at.Sub(at.Truncate(window))
	w.rest()
	w.shut, w.refused, w.refusals = false, false, 0
	w.begin(at)
	w.sent, w.accepted = 1, 1
	switch {
	case w.sure:
		w.fit(refused, at)
	case at.Sub(w.last) >= window:
		// Nobody has asked for so long that any window could have opened.
	case dark >= longDark:
		w.sure, w.after, w.by = true, w.last, at
	case sinceMinute >= narrow:
		// No window opens here: calls trickle in. There is no limit to a minute
		// to hold to, and few are risked at a time.
		w.limit, w.ramp = 0, 1
	}
}

// fit makes the start of windows narrower by one opening, or gives it up if
// windows opened at another time.
func (w *windows) fit(refused bool, at time.Time) {
	k := at.Sub(w.after).Truncate(window)
	after, by := w.after.Add(k), w.by.Add(k)
	if refused && w.last.After(after) {
		after = w.last
	}
	if at.Before(by) {
		by = at
	}
	if w.sure = after.Before(by); w.sure {
		w.after, w.by, w.opens = after, by, by
	}
}
