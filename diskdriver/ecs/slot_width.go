package ecs

import "time"

// What an instance takes at most: the limits of parallel operations. Nobody
// has been seen to have more.
const (
	widestAttach = 32
	widestDetach = 5
)

// How long an instance is left alone that took no more than it was thought to.
const (
	firstProbe = time.Minute
	lastProbe  = time.Hour
)

// width is what is known of one limit of an instance.
type width struct {
	width   int           // as many at a time as ECS is known, or hoped, to take
	widest  int           // more than that are never tried
	pause   time.Duration // between one try of more and the next
	probeAt time.Time     // when one more may be tried; zero for at once
	probing bool          // one more was tried, and has not been refused
}

// limiting says whether the limit has shown itself.
func (w *width) limiting() bool { return w.width < w.widest }

// fits says whether one more may join those that are there, and whether it
// does so to find out.
func (w *width) fits(there int, now time.Time) (ok, probe bool) {
	if there < w.width {
		return true, false
	}
	return there == w.width && w.limiting() && !now.Before(w.probeAt), true
}

// narrow learns from a refusal: ECS takes no more than it is running. A crowd
// that is refused together is refused once.
func (w *width) narrow(running int, now time.Time) {
	w.width = max(1, min(w.width, running))
	if w.probing || w.pause == 0 {
		w.pause = min(max(2*w.pause, firstProbe), lastProbe)
		w.probeAt = now.Add(w.pause)
	}
	w.probing = false
}

// widen learns from what ECS accepts. After a probe it goes on at twice the
// width, so that a lifted limit is found in a few steps.
func (w *width) widen(running int) {
	if running <= w.width {
		return
	}
	w.width = running
	if w.probing {
		w.width = 2 * running
		w.pause, w.probeAt, w.probing = 0, time.Time{}, false
	}
	w.width = min(w.width, w.widest)
}

// probe notes that one more than the width is sent. Until its answer is likely
// to be there, nobody else goes beyond.
func (w *width) probe(now time.Time) {
	w.probing, w.probeAt = true, now.Add(time.Second)
}

// widths are the limits of one instance, by limitedBy.
type widths struct{ limit [3]width }

func widest() widths {
	w := widths{}
	for by, n := range []int{widestAttach, widestDetach, widestAttach + widestDetach} {
		w.limit[by] = width{width: n, widest: n}
	}
	return w
}

// took learns from a call that ECS has accepted beside those that run.
func (w *widths) took(j job, running [2]int) {
	for _, by := range []limitedBy{limitedBy(j), byAll} {
		w.limit[by].widen(count(by, running))
	}
}

// count is how many of both jobs a limit counts.
func count(by limitedBy, jobs [2]int) int {
	if by == byAll {
		return jobs[attaching] + jobs[detaching]
	}
	return jobs[by]
}

// crew is how many of each job hold a slot, or will when it is their turn.
type crew [2]int

func (l *lane) crew() crew {
	return crew{l.sent[attaching] + l.running[attaching], l.sent[detaching] + l.running[detaching]}
}

// join adds one if the widths have room for it. Those who can't yet hold back
// everybody behind them whom the same limit counts.
func (c *crew) join(j job, w *widths, now time.Time) (ok, probe bool) {
	own, ownProbe := w.limit[j].fits(c[j], now)
	all, allProbe := w.limit[byAll].fits(c[attaching]+c[detaching], now)
	if !own || !all {
		return false, false
	}
	c[j]++
	return true, ownProbe || allProbe
}

// widths returns what is known of a lane's instance.
func (s *slots) widths(l *lane) *widths {
	if l.own != nil {
		return l.own
	}
	return &s.usual
}

// learn applies what one instance has shown to it, and to those that have
// shown nothing yet: the instances of one account are mostly alike.
func (s *slots) learn(l *lane, lesson func(*widths)) {
	if l.own != nil {
		lesson(l.own)
		return
	}
	lesson(&s.usual)
}

// narrow learns from a refusal. The instance has limits of its own from then
// on; others start from the same.
func (s *slots) narrow(l *lane, by limitedBy, now time.Time) {
	if l.own == nil {
		own := s.usual
		l.own = &own
	}
	running := count(by, l.running)
	l.own.limit[by].narrow(running, now)
	if shared := &s.usual.limit[by]; shared.width >= l.own.limit[by].width {
		*shared = l.own.limit[by]
	}
}

// probe notes that a lane sends one more than it is known to take.
func (s *slots) probe(l *lane, j job, now time.Time) {
	w := s.widths(l)
	held := [2]int(l.crew())
	for _, by := range []limitedBy{limitedBy(j), byAll} {
		if limit := &w.limit[by]; limit.limiting() && count(by, held) >= limit.width {
			limit.probe(now)
		}
	}
}
