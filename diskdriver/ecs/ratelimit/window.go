package ratelimit

import (
	"math"
	"math/rand/v2"
	"time"
)

// ECS counts the calls of an action in fixed windows of one minute; once an
// account has used a window up, every further call is refused until the next
// window (ECS API, "API throttling"). It says neither when windows start nor
// how many calls they take, and all clients of the account share them.
const (
	window = time.Minute

	// startConcurrency is how many calls are in flight at most before many were accepted, and acceptedPerFlight how many of these allow
	// one more: all calls in flight are refused together when a window is used up.
	startConcurrency  = 32
	acceptedPerFlight = 30

	// leastShare is the least share that is assumed: with less, refusals by chance would leave a client one call a minute.
	leastShare = 10
	// kept is the part of its share that a client keeps when a window has refused it a call.
	kept = 0.95
	// more is by how much the share grows when a window has refused none, as a part of its square root, so that small shares grow more;
	// twice as much after each further one. A share that was larger of late grows four times at once.
	more     = 0.35
	regrowth = 4
	// atOnce is the part of its share that a client sends when a window opens. The rest it sends over all of the window, as all others
	// do: so each of them may be refused when their shares are too large together, and the shares become alike.
	atOnce = 2. / 3
	// unusedKept is after how many windows in a row in which the share was enough it is forgotten.
	unusedKept = 3

	// The shortest and the longest pause between two calls that probe whether the next window is open.
	firstBackoff = time.Second
	lastBackoff  = 5 * time.Second
	// windowed is for how long an action is refused if a window is used up.
	windowed = 5 * time.Second

	// strayPause is how long calls wait after a refusal that may be a stray one, and
	// strayApart is how long after one another refusal is taken for one again: what
	// is refused more often has a limit.
	strayPause = 200 * time.Millisecond
	strayApart = 10 * time.Second

	// acceptedPerMore is how many calls must be accepted at least before more are tried at once than ECS is known to take, and
	// which part more that is.
	acceptedPerMore = 8
)

// windows decides how many calls of one action may be sent when: as many as ECS takes until it has refused one, and then a share of each
// window, which shrinks with each window that refuses a call and grows with each that doesn't. It is told what was sent, accepted and
// refused; it is pure, and not safe for concurrent use.
type windows struct {
	concurrency int // calls in flight at most
	inFlight    int // calls of the epoch
	epoch       int // grows each time a window is found to be used up
	fitting     int // and how many ECS takes at once, as far as is known; zero for any number
	sinceThen   int // accepted calls since that was changed last

	opens    time.Time // when the present one opened, or is taken to have; zero before the first call
	seen     bool      // an opening was seen
	accepted int       // calls in the window
	share    float64   // calls a window that may be sent; 0: no limit is known
	burst    float64   // as many of them when it opens
	tokens   float64   // calls that may be sent now
	filled   time.Time // when tokens was right
	even     bool      // the share is sent evenly over the window: ECS's limit is for less than a minute
	waited   bool      // a call has waited for its token in the window
	grown    int       // windows in a row after which the share has grown
	unused   int       // windows in a row in which none has
	peak     float64   // the most calls that a window accepted of late

	closed    bool // nothing may be sent but one probe at notBefore
	since     time.Time
	probes    int // that were refused
	notBefore time.Time
	stray     bool      // that the window is used up is not sure yet
	strayed   time.Time // when a refusal was taken for a stray one last
}

// stamp identifies a call when its answer comes.
type stamp struct {
	epoch int
	at    time.Time // when it was sent
	probe bool
}

// room says whether one more call may be sent beside those in flight. If not,
// at is when to ask again; zero for: when a call is answered.
func (w *windows) room(now time.Time) (ok bool, at time.Time) {
	w.roll(now)
	switch {
	case w.closed && now.Before(w.notBefore):
		return false, w.notBefore
	case w.closed:
		return w.inFlight == 0, time.Time{}
	case w.share > 0 && w.tokens < 1:
		w.waited = true
		return false, w.nextToken(now)
	}
	return w.inFlight < w.width(), time.Time{}
}

// width is how many calls may be in flight.
func (w *windows) width() int {
	width := w.concurrency
	if w.share == 0 {
		width = min(width, max(startConcurrency, int(max(float64(w.accepted), w.peak))/acceptedPerFlight))
	}
	if w.fitting > 0 {
		width = min(width, w.fitting)
	}
	return width
}

// nextToken is when a call may be sent that has to wait for its token.
func (w *windows) nextToken(now time.Time) time.Time {
	at := now.Add(time.Duration((1-w.tokens)/w.perWindow()*float64(window)) + time.Millisecond)
	if next := w.opens.Add(window); next.Before(at) {
		return next
	}
	return at
}

// perWindow is how many tokens come over a window.
func (w *windows) perWindow() float64 { return w.share - w.burst }

// delays says whether calls have to wait for a time.
func (w *windows) delays(now time.Time) bool {
	w.roll(now)
	return w.closed || w.share > 0 && w.tokens < 1
}

// earliest is the soonest that a call may be sent before which so many others
// wait, while calls are delayed.
func (w *windows) earliest(ahead int) time.Time {
	first := w.notBefore
	if !w.closed {
		first = w.opens.Add(window)
		if float64(ahead) < w.perWindow() {
			return w.filled
		}
	}
	if w.share == 0 {
		return first
	}
	return first.Add(time.Duration(float64(ahead)/w.share) * window)
}

// roll goes on to the present window, and counts the tokens of the time since.
func (w *windows) roll(now time.Time) {
	if w.opens.IsZero() {
		w.begin(now)
	}
	if passed := int(now.Sub(w.opens) / window); passed > 0 && !w.closed {
		w.grow(passed)
		w.begin(w.opens.Add(time.Duration(passed) * window))
	}
	w.tokens += w.perWindow() * now.Sub(w.filled).Seconds() / window.Seconds()
	w.filled = now
}

// grow lets the share grow after a window that has refused no call.
func (w *windows) grow(passed int) {
	w.peak = max(w.peak, float64(w.accepted))
	switch {
	case w.share == 0:
	case w.waited:
		w.share = max(w.share+more*math.Sqrt(w.share)*float64(int(1)<<min(w.grown, 10)), min(regrowth*w.share, w.peak))
		w.grown, w.unused = w.grown+1, 0
	default:
		if w.unused += passed; w.unused >= unusedKept {
			w.share, w.unused, w.even = 0, 0, false
		}
	}
}

// begin begins a window. How much more than the last one accepted this one does is not found out by a crowd.
func (w *windows) begin(at time.Time) {
	w.burst = atOnce * min(w.share, float64(w.accepted))
	if w.even {
		w.burst = 0
	}
	w.opens, w.filled, w.accepted, w.waited, w.tokens = at, at, 0, false, w.burst
}

// send notes that a call is sent.
func (w *windows) send(now time.Time) stamp {
	if !w.closed {
		w.tokens--
	}
	w.inFlight++
	return stamp{epoch: w.epoch, at: now, probe: w.closed}
}

// has says whether a call was sent in the present window.
func (w *windows) has(s stamp) bool { return !s.at.Before(w.opens) }

// end learns from what became of a call. Once a window is found to be used up, calls that are still in flight must not delay the probe
// for the next.
func (w *windows) end(s stamp, v verdict, now time.Time) {
	inFlight, closed := w.inFlight, w.closed
	if s.epoch == w.epoch {
		w.inFlight--
	}
	switch v {
	case accepted:
		w.accept(s)
	case refused:
		w.refuse(s, now)
	case crowded:
		w.refuseCrowd(s, now, inFlight)
	case notSent:
		if !s.probe && w.has(s) {
			w.tokens++
		}
	}
	if w.closed && !closed {
		w.epoch++
		w.inFlight = 0
	}
}

// accept learns from a call that ECS took.
func (w *windows) accept(s stamp) {
	w.allowMore()
	switch {
	case s.probe && w.closed:
		w.open(s.at)
	case w.has(s):
		w.accepted++
	}
}

// open goes on after an accepted probe: as before if the refusal was a stray one, in a new window if calls were refused for long.
func (w *windows) open(at time.Time) {
	expected := w.seen && w.probes == 0
	w.closed, w.probes = false, 0
	switch {
	case w.stray:
		w.stray = false
	case expected:
		w.begin(w.opens.Add(at.Sub(w.opens).Truncate(window)))
	case w.seen, at.Sub(w.since) >= windowed:
		w.seen, w.even = true, false
		w.begin(at)
	default: // there is a limit for less than a minute
		if !w.even {
			w.even = true
			w.share = max(w.share, w.taken())
		}
		w.begin(at)
	}
	w.accepted++
	w.tokens--
}

// refuse learns from a call that ECS did not take. now is when that is known.
func (w *windows) refuse(s stamp, now time.Time) {
	switch {
	case w.closed && !s.probe, !w.closed && !w.has(s):
		return // one of a crowd that was refused together
	case w.closed && w.stray: // it is none
		w.stray = false
		w.shrink()
	case w.closed:
		w.probes++
	case w.isStray(now):
		w.pause(s, now)
		return
	default:
		w.closed, w.since = true, s.at
		w.shrink()
	}
	w.notBefore = w.nextProbe(now)
}

// pause holds calls back for a moment, after which one probes. Accepted, it shows
// that no window is used up.
func (w *windows) pause(s stamp, now time.Time) {
	w.closed, w.since, w.stray, w.strayed = true, s.at, true, now
	w.notBefore = now.Add(strayPause + rand.N(strayPause/2))
}

// isStray says whether a refusal may have nothing to do with a window that is used
// up: the client was not near its share, as far as it has one, and ECS has refused
// nothing for a while.
func (w *windows) isStray(now time.Time) bool {
	return (w.share == 0 || float64(w.accepted) < w.share*3/4) && now.Sub(w.strayed) >= strayApart
}

// shrink learns the share from a window that is used up.
func (w *windows) shrink() {
	w.unused, w.grown = 0, 0
	if w.seen {
		w.peak *= 7. / 8
	}
	taken := w.taken()
	w.peak = max(w.peak, taken)
	if w.share > 0 {
		taken = kept * min(w.share, taken)
	}
	w.share = max(taken, leastShare)
}

// taken is how many calls a window takes of this client, by those that it has accepted until it refused one.
func (w *windows) taken() float64 {
	if !w.even {
		return float64(w.accepted)
	}
	return float64(w.accepted) * float64(window) / float64(max(w.since.Sub(w.opens), time.Second))
}

// nextProbe is when to try whether the next window is open.
func (w *windows) nextProbe(now time.Time) time.Time {
	if w.seen && w.probes == 0 {
		ahead := now.Sub(w.opens).Truncate(window) + window
		return w.opens.Add(ahead + rand.N(firstBackoff))
	}
	backoff := min(lastBackoff, firstBackoff<<min(w.probes, 10))
	if minute := now.Truncate(window).Add(window).Sub(now); minute < backoff { // where windows begin most likely
		backoff = minute
	}
	return now.Add(backoff + rand.N(firstBackoff/4))
}

// refuseCrowd learns from a call that ECS did not take for the calls beside it,
// of which so many were in flight: a quarter fewer may be there now.
func (w *windows) refuseCrowd(s stamp, now time.Time, inFlight int) {
	if w.closed != s.probe || !w.has(s) && !s.probe {
		return // one of a crowd that was refused together
	}
	w.fitting, w.sinceThen = max(1, inFlight*3/4), 0
	w.pause(s, now)
}

// allowMore lets more calls be in flight once many were accepted.
func (w *windows) allowMore() {
	if w.fitting == 0 {
		return
	}
	if w.sinceThen++; w.sinceThen < max(acceptedPerMore, w.fitting) {
		return
	}
	if w.fitting, w.sinceThen = w.fitting+max(1, w.fitting/acceptedPerMore), 0; w.fitting >= w.concurrency {
		w.fitting = 0
	}
}
