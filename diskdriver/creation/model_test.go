package creation

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

var (
	long = flag.Bool("long", false, "walk the model 2 000 000 times")
	seed = flag.Uint64("seed", 1, "of the model's walks")
)

const (
	shortWalks  = 4_000
	longWalks   = 2_000_000
	mutantWalks = 100_000 // at most, until a rule that is off is noticed
)

// TestRecordModel asks two processes for one name, while a modelled ECS loses and
// delays requests, shows disks late or none, forgets tokens, refuses and sells out,
// and while processes are killed and callers take over at any call. It holds the
// package's promise against that ECS: no final code that it contradicts, then or
// later; no second disk, or if tokens do not last one that is reported; and an end
// once the faults are over, or an answer that names the permission that lacks.
func TestRecordModel(t *testing.T) {
	walks := uint64(shortWalks)
	if *long {
		walks = longWalks
	}
	ends := make(map[outcome]int)
	for n := range walks {
		w := newWalk(*seed, n, "")
		if err := w.follow(); err != nil {
			t.Fatalf("walk %d of -seed %d: %v\n%s", n, *seed, err, traceOf(*seed, n, ""))
		}
		ends[w.end]++
	}
	t.Logf("%d walks: %v", walks, ends)
	for _, end := range []outcome{made, final, mismatch, permission} {
		if ends[end] == 0 {
			t.Errorf("no walk has ended so: %s", end)
		}
	}
}

// TestRecordModelNoticesEachRule walks with one rule off at a time. The seed is one
// that finds a breach early.
func TestRecordModelNoticesEachRule(t *testing.T) {
	for _, off := range rules {
		t.Run(off, func(t *testing.T) {
			for n := range uint64(mutantWalks) {
				if err := newWalk(2, n, off).follow(); err != nil {
					t.Logf("after %d walks: %v", n+1, err)
					return
				}
			}
			t.Errorf("nothing notices it in %d walks; a walk:\n%s", mutantWalks, traceOf(2, 0, off))
		})
	}
}

// rules are those of the package that a walk can do without.
var rules = []string{
	lookFirst, proveFinal, otherCaller, wouldShow, noAnswer, travelling, wasMade, usedToken, nextToken, tokenAge, soleDisk,
}

const (
	lookFirst   = "a name of others is looked for"
	proveFinal  = "a final code is proven"
	otherCaller = "another caller may have asked elsewhere"
	wouldShow   = "a read proves nothing until a disk would show"
	noAnswer    = "a create without an answer may have made a disk"
	travelling  = "a request may travel"
	wasMade     = "a disk that was made exists"
	usedToken   = "what was made under a used token is waited for"
	nextToken   = "the token of a disk that is gone is not used again"
	tokenAge    = "ECS may have forgotten the token"
	soleDisk    = "there may be another disk than the one that is deleted"
)

func traceOf(seed, n uint64, off string) string {
	w := newWalk(seed, n, off)
	w.traced = true
	_ = w.follow()
	return strings.Join(w.trace, "\n")
}

// walk is the life of one name.
type walk struct {
	*rand.Rand
	now    time.Time
	off    string  // the rule that is off
	end    outcome // the last answer
	traced bool
	trace  []string
	broken error

	tables   [2]*Table // of the two processes
	active   int       // which the caller asks
	caller   int
	proves   bool // it says when no disk can exist
	first    bool // none can, as far as it knows
	zones    string
	pace     []int // seconds between calls, at most
	troubles bool

	// ECS
	life      time.Duration // of a token
	lag       time.Duration // until a disk shows, at most
	binds     bool          // a refusal uses the token
	stock     map[rune]bool
	refuses   bool // for want of a permission, a quota or sense
	hides     bool // the account may not see disks
	disks     []modelDisk
	tokens    map[disk.Token]tokenUse
	travels   []request
	finalAt   time.Time
	returned  int  // the disk that the last successful call has answered with
	forgetful bool // it has made a second disk for want of memory
}

type modelDisk struct {
	token disk.Token
	zone  rune
	made  time.Time
	again bool // ECS had forgotten the token
	gone  bool
}

type tokenUse struct {
	zone  rune
	disk  int // -1: a refusal
	until time.Time
}

type request struct {
	token           disk.Token
	zone            rune
	signed, arrives time.Time
}

// outcome is the answer to a caller.
type outcome string

const (
	made       outcome = "success"
	final      outcome = "a final code"
	mismatch   outcome = "AlreadyExists"
	doubtful   outcome = "Aborted"
	permission outcome = "Aborted, for want of the permission to list"
	unheard    outcome = "nobody hears"
)

func newWalk(seed, n uint64, off string) *walk {
	w := &walk{Rand: rand.New(rand.NewPCG(seed, n)), now: moment(0), off: off, zones: "a", first: true,
		stock: map[rune]bool{'a': true, 'b': true}, tokens: make(map[disk.Token]tokenUse)}
	const forever = 1000 * time.Hour
	w.life = pick(w, 0, 5*time.Minute, 6*time.Minute, 10*time.Minute, forever)
	w.lag = pick(w, 0, 5*time.Second, 30*time.Second, Visible, Visible)
	w.pace = pick(w, []int{3, 30, 100, 250}, []int{3}, []int{30}, []int{80})
	w.proves, w.binds = w.IntN(2) == 0, w.IntN(3) == 0
	w.tables = [2]*Table{NewTable(), NewTable()}
	return w
}

func pick[T any](w *walk, from ...T) T { return from[w.IntN(len(from))] }

func (w *walk) tell(format string, args ...any) {
	if w.traced {
		w.trace = append(w.trace, fmt.Sprintf("%7.1fs  ", w.now.Sub(moment(0)).Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *walk) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
		w.tell("%v", w.broken)
	}
}

// follow lives the life, and returns what must not be.
func (w *walk) follow() error {
	w.tell("tokens live for %s, disks show within %s, refusals use tokens: %v, the caller proves first calls: %v", w.life, w.lag, w.binds, w.proves)
	w.troubles = true
	for range 4 + w.IntN(12) {
		w.happen()
		if w.ask() || w.broken != nil {
			return w.afterwards()
		}
	}
	w.troubles = false
	w.hides = w.IntN(8) == 0
	w.refuses = w.refuses && w.IntN(2) == 0
	w.tell("the faults are over; disks are hidden: %v, refusals: %v", w.hides, w.refuses)
	for range 40 {
		w.pass(10 * time.Second)
		if w.ask() || w.broken != nil {
			return w.afterwards()
		}
	}
	if w.end != permission {
		return errors.Join(w.broken, errors.New("it comes to no end"))
	}
	return w.broken
}

// happen lets something happen between two calls.
func (w *walk) happen() {
	w.pass(w.within(time.Duration(pick(w, w.pace...)) * time.Second))
	switch w.IntN(12) {
	case 0, 1, 2:
		zone := pick(w, 'a', 'b')
		w.stock[zone] = !w.stock[zone]
		w.tell("zone %c has disks: %v", zone, w.stock[zone])
	case 3:
		w.hides = !w.hides
		w.tell("disks are hidden: %v", w.hides)
	case 4:
		w.refuses = !w.refuses
		w.tell("ECS refuses every create: %v", w.refuses)
	case 5, 6:
		w.handOver()
	case 9:
		w.restart()
	case 7:
		w.moveOn()
	case 8:
		if i := slices.IndexFunc(w.disks, func(d modelDisk) bool { return !d.gone }); i >= 0 && w.IntN(3) == 0 {
			w.tell("somebody deletes disk %d", i)
			w.disks[i].gone = true
		}
	}
}

func (w *walk) handOver() {
	w.caller, w.active, w.first = w.caller+1, 1-w.active, false
	w.tell("another caller leads, beside process %d", w.active)
}

// restart starts the active process anew. Its callers connect anew.
func (w *walk) restart() {
	w.tell("process %d starts anew", w.active)
	w.tables[w.active] = NewTable()
	w.caller++
}

// moveOn asks for other zones from now on, as when another node is selected.
func (w *walk) moveOn() {
	w.zones = pick(w, "a", "b", "ab", "ba")
	w.tell("the zones are %s from now on", w.zones)
}

func (w *walk) upTo(seconds int) time.Duration {
	return time.Duration(w.Int64N(int64(seconds)*int64(time.Second) + 1))
}

// within is a part of a span, and often all of it.
func (w *walk) within(span time.Duration) time.Duration {
	return pick(w, span, time.Duration(w.Int64N(int64(span)+1)))
}

// pass lets time pass, and what travels arrive.
func (w *walk) pass(span time.Duration) {
	until := w.now.Add(span)
	for len(w.travels) > 0 && !w.travels[0].arrives.After(until) {
		r := w.travels[0]
		w.travels = w.travels[1:]
		w.now = r.arrives
		_, answer := w.arrive(r)
		w.tell("a create signed at %.1fs arrives: %s", r.signed.Sub(moment(0)).Seconds(), answers[answer])
	}
	w.now = until
}

var answers = map[Answer]string{Unclear: "unclear", Made: "made", Refused: "refused", Used: "its token is used", Unseen: "its disk is gone"}

// arrive is a create that reaches ECS.
func (w *walk) arrive(r request) (int, Answer) {
	use, known := w.tokens[r.token]
	switch {
	case known && w.now.Before(use.until) && use.zone != r.zone:
		return -1, Used
	case known && w.now.Before(use.until) && use.disk < 0:
		return -1, Refused
	case known && w.now.Before(use.until) && w.disks[use.disk].gone:
		return use.disk, Unseen
	case known && w.now.Before(use.until):
		return use.disk, Made
	case w.refuses && w.binds:
		w.tokens[r.token] = tokenUse{zone: r.zone, disk: -1, until: w.now.Add(w.life)}
		return -1, Refused
	case w.refuses, !w.stock[r.zone]:
		return -1, Refused
	}
	w.disks = append(w.disks, modelDisk{token: r.token, zone: r.zone, made: w.now, again: known})
	made := len(w.disks) - 1
	w.tokens[r.token] = tokenUse{zone: r.zone, disk: made, until: w.now.Add(w.life)}
	w.tell("disk %d is made in zone %c under token %s", made, r.zone, r.token)
	if !r.signed.After(w.finalAt) {
		w.fail("disk %d came to exist after a final code", made)
	}
	if w.living() > 1 {
		if w.life >= 5*time.Minute && !w.forgetful && !w.isForgotten() { // of two disks, the one that isn't answered with stays
			w.fail("there are %d disks", w.living())
		}
		w.forgetful = true
	}
	return made, Made
}

// isForgotten says whether one of two disks that live was made under a token that
// ECS had known and forgotten, and the other under a later one. A process that knows
// nothing begins with the first token, so it has to see the disk of a later one, or
// ECS to remember the first.
func (w *walk) isForgotten() bool {
	var first, last disk.Generation
	for _, d := range w.disks {
		if g := w.generation(d.token); !d.gone {
			last = max(last, g)
			if d.again && (first == 0 || g < first) {
				first = g
			}
		}
	}
	return first > 0 && first < last
}

func (w *walk) generation(token disk.Token) (g disk.Generation) {
	for g = 1; disk.NewToken(name, g) != token; g++ {
	}
	return g
}

func (w *walk) living() (n int) {
	for _, d := range w.disks {
		if !d.gone {
			n++
		}
	}
	return n
}

// shown is what a read by name shows: what there was a while ago, and it may be
// longer ago than for the read before.
func (w *walk) shown() (ids []int) {
	asOf := w.now.Add(-w.within(w.lag))
	for id, d := range w.disks {
		if !d.gone && !asOf.Before(d.made) {
			ids = append(ids, id)
		}
	}
	return ids
}

// cut is what becomes of one call of ECS.
type cut int

const (
	whole cut = iota
	lostReply
	lostRequest
	late
	notSent
)

func (w *walk) fate() cut {
	if !w.troubles || w.IntN(4) > 0 {
		return whole
	}
	return pick(w, lostReply, lostRequest, late, late, notSent)
}

// dies kills the process during a call.
func (w *walk) dies() bool {
	if !w.troubles || w.IntN(25) > 0 {
		return false
	}
	w.restart()
	if w.IntN(2) == 0 {
		w.handOver()
	}
	return true
}

// read is a read by name on its way to ECS and back.
func (w *walk) read() (ids []int, failed bool) {
	fate := w.fate()
	w.pass(w.upTo(2))
	ids = w.shown()
	w.pass(w.upTo(2))
	return ids, fate != whole
}

// send is a create on its way to ECS and back, with the read that shows the disk.
func (w *walk) send(token disk.Token, zone rune) (id int, answer Answer, sent bool) {
	r := request{token: token, zone: zone, signed: w.now}
	switch w.fate() {
	case notSent:
		return -1, Refused, false
	case lostRequest:
		w.pass(w.upTo(5))
		return -1, Unclear, true
	case late:
		r.arrives = w.now.Add(w.within(Travel))
		w.travels = append(w.travels, r)
		slices.SortFunc(w.travels, func(a, b request) int { return a.arrives.Compare(b.arrives) })
		w.pass(w.upTo(5))
		return -1, Unclear, true
	case lostReply:
		w.pass(w.upTo(2))
		_, answer := w.arrive(r)
		w.tell("it arrives (%s), and its reply is lost", answers[answer])
		w.pass(w.upTo(2))
		return -1, Unclear, true
	}
	w.pass(w.upTo(2))
	id, answer = w.arrive(r)
	w.pass(w.upTo(2))
	switch {
	case answer == Made && w.hides:
		return -1, Unclear, true
	case answer == Made && !slices.Contains(w.shown(), id):
		return -1, Unseen, true
	}
	return id, answer, true
}

// ask asks once, holds the answer against ECS, and says whether that is the end.
func (w *walk) ask() bool {
	sole := w.first // what this call makes is all that there can be
	first := sole && w.proves
	w.first = false
	got := w.call(first)
	w.tell("process %d is asked, first call %v: %s", w.active, first, got)
	w.end = got
	switch got {
	case made:
		if w.troubles && w.IntN(3) == 0 {
			w.discard(sole)
			return false
		}
		return !w.troubles || w.IntN(3) > 0
	case mismatch:
		if w.living() < 2 {
			w.fail("there are no two disks")
		}
		return true
	case final:
		if w.living() > 0 {
			w.fail("a final code, and there is a disk")
		}
		w.finalAt, w.first = w.now, true
		if w.troubles && w.IntN(2) == 0 {
			w.moveOn()
			return false
		}
		w.pass(10 * time.Minute) // nobody asks any more
		return true
	case doubtful:
		if !w.troubles && w.hides {
			w.fail("the answer does not name the permission")
		}
	}
	return false
}

// discard has the process delete the disk that it has just answered with, and asks for another one, perhaps elsewhere.
func (w *walk) discard(sole bool) {
	fate := w.fate()
	w.pass(w.upTo(2))
	if fate == whole || fate == lostReply {
		w.tell("disk %d is deleted as the caller wishes", w.returned)
		w.disks[w.returned].gone = true
	}
	if w.dies() || fate != whole {
		return
	}
	table := w.tables[w.active]
	table.Deleted(name, w.now, idOf(w.returned))
	if w.off == soleDisk {
		table.Update(name, w.now, func(r *Record) { r.arrived = time.Time{} })
	}
	w.forget(table)
	w.first = sole
	if w.IntN(2) == 0 {
		w.moveOn()
	}
}

func idOf(made int) disk.ID { return disk.ID(fmt.Sprint("d-", made)) }

// afterwards holds the end against ECS: one disk, or two that are reported.
func (w *walk) afterwards() error {
	w.troubles, w.hides = false, false
	w.pass(2 * (Visible + Travel))
	if w.broken != nil || w.living() < 2 {
		return w.broken
	}
	if got := w.call(false); got != mismatch {
		w.fail("there are %d disks, and the answer is %s", w.living(), got)
	}
	w.end = mismatch
	return w.broken
}

// call is a CreateVolume: package executor's steps, and package volume's proof of
// a final code.
func (w *walk) call(first bool) outcome {
	table := w.tables[w.active]
	caller := w.caller
	if w.off == otherCaller {
		caller = 0
	}
	table.begin(name, caller, first || w.off == lookFirst, w.now)
	got, again := w.obtain(table)
	if again {
		got, again = w.obtain(table)
	}
	switch {
	case again:
		return doubtful
	case got == final && w.off != proveFinal:
		return w.conclude(table)
	}
	return got
}

// obtain finds a disk or makes one. again says that it has deleted one that was
// elsewhere.
func (w *walk) obtain(table *Table) (got outcome, again bool) {
	seen, zones := unread, w.zones
	for range 100 {
		record := table.Of(name, w.now)
		switch record.next(w.now, seen) {
		case look:
			got, id := w.look(table)
			switch got {
			case made:
				return w.found(table, id)
			case final:
				seen = noneShown
			case permission:
				seen = hidden
			default:
				return got, false
			}
		case create:
			id, answer, sent := w.send(record.token(name), rune(zones[0]))
			if w.dies() {
				return unheard, false
			}
			w.answered(table, answer)
			switch answer {
			case Made:
				return w.found(table, id)
			case Unclear:
				return w.unsure(), false
			case Refused:
				if zones = zones[1:]; !sent {
					return doubtful, false
				} else if w.refuses || zones == "" {
					return final, false
				}
			default:
				seen = unread
			}
		case wait:
			if seen == hidden {
				return permission, false
			}
			return doubtful, false
		}
	}
	w.fail("a call goes on for ever")
	return doubtful, false
}

// unsure is the answer after a create without one.
func (w *walk) unsure() outcome {
	if w.hides {
		return permission
	}
	return doubtful
}

// look reads by name: made says that a disk shows, final that none does.
func (w *walk) look(table *Table) (outcome, int) {
	left := w.now
	ids, failed := w.read()
	record := table.Of(name, w.now)
	ids = slices.DeleteFunc(ids, func(id int) bool { return record.IsDeleted(idOf(id)) })
	switch {
	case w.dies():
		return unheard, -1
	case failed:
		return doubtful, -1
	case w.hides:
		return permission, -1
	case len(ids) > 1:
		return mismatch, -1
	}
	found := len(ids) > 0
	table.Update(name, w.now, func(r *Record) {
		if w.off == wouldShow && !found && left.Before(r.Provable()) {
			left = r.Provable()
		}
		if w.off == usedToken {
			r.used = false
		}
		r.looked(left, found)
	})
	w.forget(table)
	if !found {
		return final, -1
	}
	return made, ids[0]
}

// answered reports the answer to a create.
func (w *walk) answered(table *Table, answer Answer) {
	at := w.now
	switch {
	case w.off == noAnswer && answer == Unclear:
		answer = Refused
	case w.off == travelling && answer == Unclear:
		at = at.Add(-Travel)
	case w.off == wasMade && answer == Made:
		return
	}
	w.tell("a create is %s", answers[answer])
	table.Update(name, w.now, func(r *Record) { r.answered(at, answer) })
	w.forget(table)
}

// forget lets the Record know less than it should.
func (w *walk) forget(table *Table) {
	table.Update(name, w.now, func(r *Record) {
		switch w.off {
		case nextToken:
			r.generation = 1
		case tokenAge:
			r.absent = w.now
		}
	})
}

// found is the answer when there is a disk. One that is elsewhere goes.
func (w *walk) found(table *Table, id int) (got outcome, again bool) {
	if strings.ContainsRune(w.zones, w.disks[id].zone) {
		table.Update(name, w.now, func(r *Record) { r.Returned(string(idOf(id))) })
		w.returned = id
		return made, false
	}
	fate := w.fate()
	w.pass(w.upTo(2))
	if fate == whole || fate == lostReply {
		w.tell("disk %d is elsewhere, and is deleted", id)
		w.disks[id].gone = true
	}
	switch {
	case w.dies():
		return unheard, false
	case fate != whole:
		return doubtful, false
	}
	table.Update(name, w.now, (*Record).Gone)
	w.forget(table)
	return doubtful, true
}

// conclude proves a final code.
func (w *walk) conclude(table *Table) outcome {
	record := table.Of(name, w.now)
	if !record.MayExist() {
		return final
	}
	got, _ := w.look(table)
	record = table.Of(name, w.now)
	if got == made || got == final && record.MayExist() {
		return doubtful
	}
	return got
}
