package ecs

import (
	"errors"
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

const here, there = disk.InstanceID("i-here"), disk.InstanceID("i-there")

// judged is a verdict in words.
func judged(done bool, err error) string {
	if err != nil {
		return disk.KindOf(err).String()
	}
	return map[bool]string{true: "done", false: "wait"}[done]
}

func TestLooksAfterAnAttach(t *testing.T) {
	for _, test := range []struct {
		name  string
		reply disk.Reply
		look  disk.Disk
		want  string
	}{
		{"attached", reply(disk.Accepted, 1), look(disk.Attached, false, "T1", here), "done"},
		{"attached, of a shared disk", reply(disk.Accepted, 1), look(disk.Attached, true, "", there, here), "done"},
		{"attaching", reply(disk.Accepted, 1), look(disk.Attaching, false, "T1"), "wait"},
		{"attaching, whatever ECS replied", reply(disk.WrongState, 1), look(disk.Attaching, false, "T1"), "wait"},
		{"nothing yet", reply(disk.Accepted, 19), look(disk.Available, false, "T1"), "wait"},
		{"nothing for too long", reply(disk.Accepted, 20), look(disk.Available, false, "T1"), "pending"},
		{"nothing of a call without an answer", reply(disk.NoAnswer, 1), look(disk.Available, false, "T1"), "unknown outcome"},
		{"refused", reply(disk.WrongState, 1), look(disk.Available, false, "T1"), "pending"},
		{"refused, for another has it", reply(disk.WrongState, 1), look(disk.Attached, false, "T1", there), "in use"},
		{"another had it a moment ago", reply(disk.Accepted, 1), look(disk.Attached, false, "T1", there), "wait"},
		{"being detached", reply(disk.Accepted, 1), look(disk.Detaching, false, "T1", here), "pending"},
		{"being detached from others", reply(disk.Accepted, 1), look(disk.Detaching, true, "T1", there), "wait"},
	} {
		if got := judged((&progress{instance: here}).attached(test.look, test.reply)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestLooksAfterADetach(t *testing.T) {
	on, shared := look(disk.Attached, false, "T1", here), look(disk.Attached, true, "T1", there, here)
	for _, test := range []struct {
		name  string
		reply disk.Reply
		look  disk.Disk
		want  string
	}{
		{"detached", reply(disk.Accepted, 1), look(disk.Available, false, "T2"), "done"},
		{"detaching", reply(disk.Accepted, 60), look(disk.Detaching, false, "T1", here), "wait"},
		{"detaching, the instance not shown", reply(disk.Accepted, 60), look(disk.Detaching, false, "T1"), "wait"},
		{"nothing yet", reply(disk.Accepted, 19), on, "wait"},
		{"nothing for too long", reply(disk.Accepted, 20), on, "pending"},
		{"nothing of a call without an answer", reply(disk.NoAnswer, 1), on, "unknown outcome"},
		{"being attached", reply(disk.WrongState, 1), look(disk.Attaching, false, ""), "wait"},
		{"attached by now", reply(disk.WrongState, 1), on, "done"},
		{"elsewhere, and shown by an earlier look", reply(disk.Elsewhere, 1), on, "wait"},
		{"elsewhere", reply(disk.Elsewhere, 1), look(disk.Attached, false, "", there), "done"},
		{"of a shared disk, detached", reply(disk.Accepted, 1), look(disk.Attached, true, "T2", there), "done"},
		{"of a shared disk, being detached by an earlier call", reply(disk.AlreadyDetaching, 19), shared, "wait"},
		{"being detached by an earlier call for long", reply(disk.AlreadyDetaching, 60), look(disk.Detaching, false, "T1", here), "wait"},
		{"not any more", reply(disk.AlreadyDetaching, 60), on, "done"},
		{"elsewhere, and shown for too long", reply(disk.Elsewhere, 20), on, "done"},
	} {
		if got := judged((&progress{instance: here}).detached(test.look, test.reply)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestWorkThatECSGivesUpIsPending(t *testing.T) {
	attach := (&progress{instance: here}).attached
	if got := judged(attach(look(disk.Attaching, false, ""), reply(disk.Accepted, 1))); got != "wait" {
		t.Errorf("attaching: %s", got)
	}
	if got := judged(attach(look(disk.Available, false, ""), reply(disk.Accepted, 2))); got != "pending" {
		t.Errorf("not attaching any more: %s, want pending", got)
	}
	detach := (&progress{instance: here}).detached
	if got := judged(detach(look(disk.Detaching, false, "", here), reply(disk.Accepted, 1))); got != "wait" {
		t.Errorf("detaching: %s", got)
	}
	if got := judged(detach(look(disk.Attached, false, "", here), reply(disk.Accepted, 2))); got != "pending" {
		t.Errorf("not detaching any more: %s, want pending", got)
	}
}
