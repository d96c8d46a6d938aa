package attachment

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// look is a disk as a read shows it, with the time at which an instance let it go last.
func look(state disk.State, multiAttach bool, released string, holders ...disk.InstanceID) disk.Disk {
	d := disk.Disk{ID: "d-1", State: state, MultiAttach: multiAttach, Released: released}
	for _, instance := range holders {
		d.Attachments = append(d.Attachments, disk.Attachment{Instance: instance})
	}
	return d
}

// reply is one of a call that is so many seconds old.
func reply(answer disk.Answer, age int) disk.Reply {
	r := disk.Reply{Answer: answer, Age: time.Duration(age) * time.Second}
	switch answer {
	case disk.Accepted:
	case disk.NoAnswer:
		r.Err = &disk.Error{Kind: disk.UnknownOutcome, Err: errors.New("no answer")}
	default:
		r.Err = &disk.Error{Kind: disk.Blocked, Err: errors.New("refused")}
	}
	return r
}

// judged is a verdict in words.
func judged(done bool, err error) string {
	if err != nil {
		return disk.KindOf(err).String()
	}
	return map[bool]string{true: "done", false: "wait"}[done]
}

const here, there = disk.InstanceID("i-here"), disk.InstanceID("i-there")

func TestLooksAfterAnAttach(t *testing.T) {
	free := look(disk.Available, false, "T1")
	for _, test := range []struct {
		name   string
		before disk.Disk
		reply  disk.Reply
		look   disk.Disk
		want   string
	}{
		{"attached", free, reply(disk.Accepted, 1), look(disk.Attached, false, "T1", here), "done"},
		{"as it was at an earlier attachment", free, reply(disk.Accepted, 1), look(disk.Attached, false, "T0", here), "wait"},
		{"the same, too late to lag", free, reply(disk.Accepted, 10), look(disk.Attached, false, "T0", here), "done"},
		{"attached, and never looked at before", disk.Disk{}, reply(disk.Accepted, 1), look(disk.Attached, false, "", here), "wait"},
		{"attached, of a shared disk", look(disk.Attached, true, "", there), reply(disk.Accepted, 1), look(disk.Attached, true, "", there, here), "done"},
		{"attaching", free, reply(disk.Accepted, 1), look(disk.Attaching, false, "T1"), "wait"},
		{"attaching, whatever ECS replied", free, reply(disk.WrongState, 1), look(disk.Attaching, false, "T1"), "wait"},
		{"nothing yet", free, reply(disk.Accepted, 9), look(disk.Available, false, "T1"), "wait"},
		{"nothing for too long", free, reply(disk.Accepted, 10), look(disk.Available, false, "T1"), "pending"},
		{"nothing yet of a call without an answer", free, reply(disk.NoAnswer, 9), look(disk.Available, false, "T1"), "wait"},
		{"nothing of a call without an answer", free, reply(disk.NoAnswer, 10), look(disk.Available, false, "T1"), "unknown outcome"},
		{"refused", free, reply(disk.WrongState, 1), look(disk.Available, false, "T1"), "pending"},
		{"refused, for another has it", free, reply(disk.WrongState, 1), look(disk.Attached, false, "T1", there), "in use"},
		{"another had it a moment ago", free, reply(disk.Accepted, 1), look(disk.Attached, false, "T1", there), "wait"},
		{"being detached", free, reply(disk.Accepted, 1), look(disk.Detaching, false, "T1", here), "pending"},
		{"being detached from others", free, reply(disk.Accepted, 1), look(disk.Detaching, true, "T1", there), "wait"},
	} {
		if got := judged(NewRecord(here, test.before).Attached(test.look, test.reply)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestLooksAfterADetach(t *testing.T) {
	on, shared := look(disk.Attached, false, "T1", here), look(disk.Attached, true, "T1", there, here)
	for _, test := range []struct {
		name   string
		before disk.Disk
		reply  disk.Reply
		look   disk.Disk
		want   string
	}{
		{"detached", on, reply(disk.Accepted, 1), look(disk.Available, false, "T2"), "done"},
		{"as it was before it was attached", on, reply(disk.Accepted, 1), look(disk.Available, false, "T1"), "wait"},
		{"the same, too late to lag", on, reply(disk.Accepted, 10), look(disk.Available, false, "T1"), "done"},
		{"detaching", on, reply(disk.Accepted, 60), look(disk.Detaching, false, "T1", here), "wait"},
		{"detaching, the instance not shown", on, reply(disk.Accepted, 60), look(disk.Detaching, false, "T1"), "wait"},
		{"nothing yet", on, reply(disk.Accepted, 9), on, "wait"},
		{"nothing for too long", on, reply(disk.Accepted, 10), on, "pending"},
		{"nothing of a call without an answer", on, reply(disk.NoAnswer, 10), on, "unknown outcome"},
		{"detached, without an answer", on, reply(disk.NoAnswer, 1), look(disk.Available, false, "T2"), "done"},
		{"not shown, without an answer", look(disk.Available, false, ""), reply(disk.NoAnswer, 1), look(disk.Available, false, ""), "wait"},
		{"as it was before, without an answer", shared, reply(disk.NoAnswer, 1), look(disk.Attached, true, "T1", there), "wait"},
		{"not attached", look(disk.Available, false, ""), reply(disk.NotAttached, 1), look(disk.Available, false, ""), "done"},
		{"no instance", look(disk.Available, false, ""), reply(disk.NoInstance, 1), look(disk.Available, false, ""), "done"},
		{"being attached", look(disk.Available, false, ""), reply(disk.WrongState, 1), look(disk.Attaching, false, ""), "pending"},
		{"of a shared disk, detached", shared, reply(disk.Accepted, 1), look(disk.Attached, true, "T2", there), "done"},
		{"of a shared disk, being attached unseen", look(disk.Attached, true, "T1", there), reply(disk.WrongState, 1), look(disk.Attached, true, "T1", there), "pending"},
		{"of a shared disk, no answer and not shown", look(disk.Attached, true, "T1", there), reply(disk.NoAnswer, 1), look(disk.Attached, true, "T1", there), "wait"},
		{"of a shared disk, no answer, long ago", look(disk.Attached, true, "T1", there), reply(disk.NoAnswer, 10), look(disk.Attached, true, "T1", there), "unknown outcome"},
		{"of a shared disk, being detached by an earlier call", shared, reply(disk.AlreadyDetaching, 60), shared, "wait"},
		{"as it was before, being detached by an earlier call", on, reply(disk.AlreadyDetaching, 1), look(disk.Available, false, "T1"), "wait"},
		{"of a shared disk, as it was before, detached by an earlier call", shared, reply(disk.AlreadyDetaching, 1), look(disk.Attached, true, "T1", there), "wait"},
		{"of a shared disk, that it wasn't attached", look(disk.Attached, true, "T1", there), reply(disk.NotAttached, 1), look(disk.Attached, true, "T1", there), "done"},
	} {
		if got := judged(NewRecord(here, test.before).Detached(test.look, test.reply)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestWorkThatECSGivesUpIsPending(t *testing.T) {
	r := NewRecord(here, look(disk.Available, false, ""))
	if got := judged(r.Attached(look(disk.Attaching, false, ""), reply(disk.Accepted, 1))); got != "wait" {
		t.Errorf("attaching: %s", got)
	}
	if got := judged(r.Attached(look(disk.Available, false, ""), reply(disk.Accepted, 2))); got != "pending" {
		t.Errorf("not attaching any more: %s, want pending", got)
	}
	r = NewRecord(here, look(disk.Attached, false, "", here))
	if got := judged(r.Detached(look(disk.Detaching, false, "", here), reply(disk.Accepted, 1))); got != "wait" {
		t.Errorf("detaching: %s", got)
	}
	if got := judged(r.Detached(look(disk.Attached, false, "", here), reply(disk.Accepted, 2))); got != "pending" {
		t.Errorf("not detaching any more: %s, want pending", got)
	}
}

// TestWhatMayBeHidden has what this process knows of a disk in columns: since when it is active, and what it has made of the attachment
// and how long ago; and what it does next, of a disk for one instance and of one for several, which another one has.
func TestWhatMayBeHidden(t *testing.T) {
	now := time.Unix(1e9, 0)
	free, on := look(disk.Available, false, ""), look(disk.Attached, false, "", here)
	sharedFree, sharedOn := look(disk.Attached, true, "", there), look(disk.Attached, true, "", there, here)
	for _, test := range []struct {
		active, age time.Duration
		phase       phase
		publishes   string // of free, on, sharedFree, sharedOn
		unpublishes string
	}{
		{0, 0, unknown, "attach await attach await", "detach detach detach detach"},
		{9 * time.Second, 0, unknown, "attach await attach await", "detach detach detach detach"},
		{10 * time.Second, 0, unknown, "attach done attach await", "done detach detach detach"},
		{2 * time.Minute, 0, unknown, "attach done attach done", "done detach detach detach"},
		{0, time.Minute, attached, "attach await attach await", "detach detach detach detach"}, // before it was activated
		{0, 5 * time.Second, attached, "await await await await", "detach detach detach detach"},
		{5 * time.Second, 5 * time.Second, attached, "await done await done", "await detach await detach"},
		{time.Minute, 5 * time.Second, attached, "await done await done", "await detach await detach"},
		{time.Minute, 30 * time.Second, attached, "attach done attach done", "done detach done detach"},
		{time.Minute, 5 * time.Second, attaching, "attach done attach done", "await detach detach detach"},
		{time.Minute, 5 * time.Second, detached, "attach await attach await", "done detach done detach"},
		{time.Minute, 30 * time.Second, detached, "attach done attach await", "done detach done detach"},
		{3 * time.Minute, 30 * time.Second, detached, "attach done attach done", "done detach done detach"},
		{time.Minute, 30 * time.Second, detaching, "attach done attach await", "done detach detach detach"},
	} {
		r := &Record{instance: here}
		r.become(test.phase, now.Add(-test.age))
		v := view{records: map[disk.InstanceID]*Record{here: r}, activated: now.Add(-test.active), now: now}
		var publishes, unpublishes string
		for _, d := range []disk.Disk{free, on, sharedFree, sharedOn} {
			next, err := Publication{Disk: d.ID, Instance: here, Shared: d.MultiAttach}.next(d, v.hides(here))
			if err != nil {
				t.Fatal(err)
			}
			publishes += " " + next.String()
			next, _ = v.unpublish(d, here)
			unpublishes += " " + next.String()
		}
		what := fmt.Sprintf("active for %v, %d for %v", test.active, test.phase, test.age)
		if publishes != " "+test.publishes {
			t.Errorf("%s: a publish does%s, want %s", what, publishes, test.publishes)
		}
		if unpublishes != " "+test.unpublishes {
			t.Errorf("%s: an unpublish does%s, want %s", what, unpublishes, test.unpublishes)
		}
	}
}

// TestARefusedDetachIsEnough: until reads don't lag any more, and of a disk that others have when ECS has got all that was sent before.
func TestARefusedDetachIsEnough(t *testing.T) {
	activated := time.Unix(1e9, 0)
	for _, test := range []struct {
		d                       disk.Disk
		refused, now, activated int // seconds
		want                    step
	}{
		{look(disk.Available, false, ""), 1, 2, 0, await},
		{look(disk.Available, false, ""), 1, 10, 0, done},
		{look(disk.Available, false, ""), 1, 10, 2, detach},
		{look(disk.Attached, true, "", there), 1, 2, 0, await},
		{look(disk.Attached, true, "", there), 1, 10, 0, detach},
		{look(disk.Attached, true, "", there), 10, 10, 0, done},
		{look(disk.Attached, true, "", there), 1, 10, 2, detach},
	} {
		at := func(seconds int) time.Time { return activated.Add(time.Duration(seconds) * time.Second) }
		r := &Record{instance: here, refused: at(test.refused)}
		v := view{records: map[disk.InstanceID]*Record{here: r}, activated: at(test.activated), now: at(test.now)}
		if next, _ := v.unpublish(test.d, here); next != test.want {
			t.Errorf("%s, refused after %d s, %d s after the activation at %d: %s, want %s", test.d.State, test.refused, test.now, test.activated, next, test.want)
		}
	}
}

func TestRefusalsThatProveADiskUnheld(t *testing.T) {
	begin := time.Unix(1e9, 0)
	r := &Record{instance: here, first: begin}
	alone, shared := look(disk.Available, false, ""), look(disk.Attached, true, "", there)
	for _, test := range []struct {
		name  string
		d     disk.Disk
		reply disk.Answer
		after time.Duration
		want  bool
	}{
		{"not attached", alone, disk.NotAttached, 0, true},
		{"in another state", alone, disk.WrongState, 0, true},
		{"being detached", alone, disk.AlreadyDetaching, 0, false},
		{"of a shared disk, not attached", shared, disk.NotAttached, 0, true},
		{"of a shared disk, which may be being attached", shared, disk.WrongState, time.Minute, false},
		{"of a shared disk, for longer than that takes", shared, disk.WrongState, slowestDetach, true},
	} {
		if got := r.provesUnheld(test.d, reply(test.reply, 1), begin.Add(test.after)); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestARareCallerIsAnsweredInTheEnd: each of its calls activates the process anew.
func TestARareCallerIsAnsweredInTheEnd(t *testing.T) {
	now := time.Unix(1e9, 0)
	d := look(disk.Attached, true, "", there, here)
	r := &Record{instance: here}
	next := func() step {
		r.ask(attached, now)
		r.look(d, now)
		v := view{records: map[disk.InstanceID]*Record{here: r}, activated: now, now: now}
		s, err := Publication{Instance: here, Shared: true}.next(d, v.hides(here))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 3 {
		if s := next(); s != await {
			t.Errorf("%s, want await", s)
		}
		now = now.Add(50 * time.Second)
	}
	if s := next(); s != done {
		t.Errorf("after %v: %s, want done", slowestDetach, s)
	}
	d.Released = "T2"
	if s := next(); s != await {
		t.Errorf("after a detach by nobody knows whom: %s, want await", s)
	}
	now = now.Add(slowestDetach)
	if s := next(); s != done {
		t.Errorf("%v later: %s, want done", slowestDetach, s)
	}
	now = now.Add(longestRetry + time.Second)
	if s := next(); s != await {
		t.Errorf("after a pause of %v: %s, want await", longestRetry, s)
	}
}

func TestRecordsAreForgotten(t *testing.T) {
	table := NewTable(0)
	now := time.Now()
	table.change("d-1", here, func(r *Record, _ time.Time) { r.become(detaching, now) })
	table.sweep(now.Add(kept))
	if len(table.disks) != 1 {
		t.Errorf("%d disks after %v, want the one that is being detached", len(table.disks), kept)
	}
	table.sweep(now.Add(kept + lag + time.Second))
	if len(table.disks) != 0 {
		t.Errorf("%d disks are remembered, and nobody asks for them", len(table.disks))
	}
}
