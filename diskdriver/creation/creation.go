// Package creation is the only place that answers, for a CSI name: may a disk
// of the name exist, since when, what proves that none does, and which client
// token is next. A Record says so of a name, with time as an argument; a Maker
// carries out the steps, with functions of its caller that call ECS.
//
// The promise that it keeps for CreateVolume: a final code (any but Aborted,
// Unavailable, DeadlineExceeded, Canceled and Unknown) means that no disk of the
// name exists, nor will come to exist from any call that ECS has received or
// that was signed up to Travel ago. It holds for every caller, after restarts
// and when another replica takes over. AlreadyExists is the exception: it names
// the disk that exists and is not the one asked for.
//
// A name that this process doesn't know may have a disk from a call of another
// process, so it is looked for first. If none shows, a create under the same
// client token makes the disk or leads to the one that was made; a refusal ends
// nothing until a read proves that there is no disk. A process that knows nothing
// begins with the first token, whatever a disk of a later one may have taken the
// place of: if ECS forgets the first before it shows that disk, there are two, and
// the next read reports them. A caller that can prove by itself that there is none
// says so (Table.Called), and spares the read.
package creation

import (
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// Visible is how long a disk may stay out of ECS's reads after ECS has
	// received the call that makes it. ECS documents no time; this is far more
	// than clients have seen.
	Visible = 60 * time.Second

	// Travel is how long a signed request may be on its way to ECS.
	Travel = disk.RequestLifetime

	// tokenTrust is for how long ECS surely makes one disk for a client token,
	// counted from the first call with it. ECS documents no time at all.
	tokenTrust = 5 * time.Minute

	// forgetAfter is how long a Record is kept that nobody asks for. A name that
	// comes again later is one that isn't known, which is safe.
	forgetAfter = time.Hour
)

// Record is what this process knows of one CSI name.
type Record struct {
	generation disk.Generation // of the client token
	used       bool            // ECS knows the token, and no disk of the name is in sight
	unseen     string          // the ID that ECS gave for the used token; empty: none
	guessed    bool            // a token was given up on a guess since a call has returned
	refused    bool            // ECS has refused a create under the token, and no disk could exist then
	arrived    time.Time       // by when all calls have reached ECS that may have made a disk; zero: there is none
	absent     time.Time       // when the last read left that has shown no disk, or the caller proved it; zero: there is none
	made       string          // the ID that the last successful call has returned; empty: there was none, or its disk was deleted
	sole       bool            // but for the disk of the present token there is none, nor will there be
	deleted    disk.ID         // one that was deleted, which reads may show for a while
	goes       disk.ID         // one that a delete without an answer may yet remove
	goesBy     time.Time       // by when it has
	caller     any             // whose calls it is of
	asked      time.Time       // since when they are
	touched    time.Time
}

// unknown is the Record of a name that others may have made a disk for, up to now.
func unknown(now time.Time) Record {
	return Record{generation: 1, arrived: now.Add(Travel), asked: now}
}

// step is what to do next about a name.
type step int

const (
	// look is to look for a disk of the name, and to report what it shows.
	look step = iota
	// create is to send a create under the Record's token, and to report the answer.
	create
	// wait is to answer that a disk may come into sight still.
	wait
)

// sight is what a call has seen of a name since a create of its own used the token.
type sight int

const (
	// unread is that it has not looked.
	unread sight = iota
	// noneShown is that a read has shown no disk.
	noneShown
	// hidden is that the account may not see disks.
	hidden
)

// next returns the next step of a call that has seen so much.
func (r *Record) next(now time.Time, seen sight) step {
	switch {
	case seen != unread && r.used, seen == hidden && !r.tokenTells(now):
		return wait
	case seen == unread && (r.used || r.MayExist()), !r.tokenTells(now):
		return look
	}
	return create
}

// token returns the client token for the next create.
func (r *Record) token(name string) disk.Token { return disk.NewToken(name, r.generation) }

// MayExist says whether there may be a disk of the name, or may come to be from
// a call that was made before.
func (r *Record) MayExist() bool { return !r.arrived.IsZero() }

// Provable returns when a read will prove that there is no disk, if it shows
// none. It means nothing if there may be none anyway.
func (r *Record) Provable() time.Time { return r.arrived.Add(Visible) }

// proves says whether a read by name that leaves at the time, and shows no disk,
// changes the answer of MayExist.
func (r *Record) proves(left time.Time) bool { return r.MayExist() && !left.Before(r.Provable()) }

// tokenTells says whether a create under the token leads to every disk that may
// have been made: what the last read could not show is so young that ECS
// remembers its token until the create arrives.
func (r *Record) tokenTells(now time.Time) bool {
	return now.Sub(r.absent) < tokenTrust-Visible-Travel
}

// looked reports a read by name that left at the time, and whether it has shown
// a disk. Without one, a read that left when all disks would show proves that
// there is none; the disk of a token that is used was deleted then, and the next
// token is to be taken.
func (r *Record) looked(left time.Time, found bool) {
	if found {
		r.doubt(left, r.sole)
		return
	}
	r.absent = left
	if !r.proves(left) {
		return
	}
	if r.used {
		r.Gone()
	}
	r.arrived = time.Time{}
}

// Answer is what ECS's answer to a create says.
type Answer int

const (
	// Unclear is an outcome that is not known: a disk may have been made, or may
	// be made yet.
	Unclear Answer = iota
	// Made is a disk that exists.
	Made
	// Refused is a create that has made nothing and will make nothing.
	Refused
	// Used is a create that has made nothing, because its token was used before
	// with other parameters.
	Used
	// Unseen is a create whose answer is the ID of a disk that no read shows: it
	// was made just now, or it is gone and its token is used.
	Unseen
)

// AnswerOf says what the error of a create means for what it may have made.
// NotFound is that of what ECS says it has made: of what a create is made from it
// means a refusal.
func AnswerOf(err error) Answer {
	if err == nil {
		return Made
	}
	switch disk.KindOf(err) {
	case disk.Mismatch:
		return Used
	case disk.NotFound:
		return Unseen
	case disk.UnknownOutcome, disk.Pending:
		return Unclear
	}
	return Refused // ECS has answered, or was not reached
}

// answered reports the answer to a create.
func (r *Record) answered(now time.Time, a Answer) {
	switch a {
	case Unclear:
		r.doubt(now.Add(Travel), false)
	case Made: // the caller may not hear of it, and reads may not show it yet
		r.doubt(now, !r.MayExist())
	case Refused:
		r.refused = r.refused || !r.MayExist()
	case Used, Unseen:
		if a == Used && r.refused { // the refusal has used it, for there was nothing else
			r.Gone()
			return
		}
		r.used = true
		r.doubt(now, false)
	}
}

// Unseen reports the ID that ECS gave for a token, of what no read shows.
func (r *Record) Unseen(id string) { r.unseen = id }

// UsedFor returns the ID that ECS gave for the used token, of what no read shows; empty: none.
func (r *Record) UsedFor() string { return r.unseen }

// Guess says whether the token may be given up on a guess: not twice in a row.
func (r *Record) Guess() bool {
	first := !r.guessed
	r.guessed = true
	return first
}

// Gone reports that the disk under the token was deleted, or has failed and was
// deleted: the token is used up, and the next one is next. That there was no other is for reads to prove.
func (r *Record) Gone() {
	r.generation++
	r.used, r.unseen, r.refused = false, "", false
}

// Removed reports that the disk of the token was deleted, to be made elsewhere; reads may show it for a while.
func (r *Record) Removed(id disk.ID) {
	r.Gone()
	r.deleted = id
}

// Returned reports the ID that a call has answered with.
func (r *Record) Returned(id string) { r.made, r.guessed = id, false }

// Unheard says whether nobody can know the ID of what was made at a time: only the
// present caller has asked since, and got no ID for an answer. ECS tells times in
// whole seconds, in which no caller takes another's place.
func (r *Record) Unheard(made time.Time) bool {
	return r.made == "" && !made.Before(r.asked.Truncate(time.Second))
}

// Deleted reports that a disk was deleted as its caller wished. If it is the one that a call has returned, its token is used
// up; and if nothing else can have been made, there is no disk of the name, without a read that proves it.
func (r *Record) Deleted(now time.Time, id disk.ID) {
	if string(id) != r.made {
		return
	}
	sole := r.sole
	r.made, r.deleted, r.sole = "", id, false
	r.Gone()
	if sole {
		r.arrived, r.absent = time.Time{}, now
	}
}

// IsDeleted says whether a disk that a read shows is one that was deleted before.
func (r *Record) IsDeleted(id disk.ID) bool { return id != "" && id == r.deleted }

// MayGo notes that a delete of a disk has no answer.
func (r *Record) MayGo(now time.Time, id disk.ID) {
	r.goes, r.goesBy = id, now.Add(disk.RequestLifetime)
}

// GoesBy is until when a delete may yet remove a disk; zero if none was sent.
func (r *Record) GoesBy(id disk.ID) time.Time {
	if id != r.goes {
		return time.Time{}
	}
	return r.goesBy
}

// doubt notes that a disk may have been made by a call that reaches ECS until then, and whether it is the only one that there can be.
func (r *Record) doubt(arrived time.Time, sole bool) {
	r.refused, r.sole = false, sole
	if arrived.After(r.arrived) {
		r.arrived = arrived
	}
}
