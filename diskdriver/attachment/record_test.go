package attachment

import (
	"errors"
	"testing"
	"testing/synctest"
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

// TestWhatProvesADiskOff has what this process knows in the first columns, and the reply to a detach with the read after it in the next.
func TestWhatProvesADiskOff(t *testing.T) {
	const t1, t2, near = "2026-01-01T10:00:01Z", "2026-01-01T10:00:09Z", "2026-01-01T10:00:02Z"
	now := time.Unix(1e9, 0)
	ours := Record{phase: attached, ordered: true, before: t1}
	for _, test := range []struct {
		name  string
		r     Record
		reply disk.Reply
		look  disk.Disk
		want  string
		again time.Duration // from now, in seconds
	}{
		{"a later time", ours, reply(disk.Accepted, 5), look(disk.Available, false, t2), "proved", 0},
		{"the same time", ours, reply(disk.Accepted, 5), look(disk.Available, false, t1), "ask", 0},
		{"too close a time", ours, reply(disk.Accepted, 5), look(disk.Available, false, near), "ask", 0},
		{"a later time of a shared disk", ours, reply(disk.Accepted, 5), look(disk.Available, true, t2), "ask", 0},
		{"a later time of what others attached", Record{}, reply(disk.Accepted, 5), look(disk.Available, false, t2), "ask", 0},
		{"not attached", Record{}, reply(disk.NotAttached, 0), look("", false, ""), "proved", 0},
		{"elsewhere", Record{}, reply(disk.Elsewhere, 0), look(disk.Attached, false, "", there), "proved", 0},
		{"not attached, and a call is open", Record{arrivesBy: now.Add(20 * time.Second)}, reply(disk.NotAttached, 0), look("", false, ""), "ask", 20},
		{"not attached, and an attach doesn't show", Record{showsBy: now.Add(9 * time.Second)}, reply(disk.NotAttached, 0), look("", false, ""), "ask", 9},
		{"no instance, whatever is open", Record{arrivesBy: now.Add(20 * time.Second)}, reply(disk.NoInstance, 0), look("", false, ""), "proved", 0},
		{"no answer", ours, reply(disk.NoAnswer, 0), look(disk.Available, false, t2), "ask", 0},
		{"in a wrong state, for the first time", Record{}, reply(disk.WrongState, 0), look(disk.Available, false, ""), "ask", 20},
		{"in a wrong state, still", Record{refused: now.Add(-20 * time.Second)}, reply(disk.WrongState, 0), look(disk.Available, false, ""), "doubtful", 0},
		{"in a wrong state, and ECS has detached it", Record{accepted: true}, reply(disk.WrongState, 0), look(disk.Available, false, ""), "proved", 20},
		{"in a wrong state, and others have it", Record{refused: now.Add(-time.Minute)}, reply(disk.WrongState, 0), look(disk.Attached, true, "", there), "ask", 0},
	} {
		proved, doubtful := test.r.off(test.look, test.reply, now)
		got := map[bool]string{true: "doubtful", false: "ask"}[doubtful]
		if proved {
			got = "proved"
		}
		if got != test.want || !test.r.askAgain.IsZero() && test.r.askAgain.Sub(now) != test.again*time.Second {
			t.Errorf("%s: %s, again %v; want %s", test.name, got, test.r.askAgain.Sub(now), test.want)
		}
	}
}

func TestRecordsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(0)
		for id, p := range map[disk.ID]phase{"d-1": attached, "d-2": detached, "d-3": attaching} {
			table.begin(t.Context(), id, here, attached)
			table.change(id, here, func(r *Record, _ time.Time) { r.become(p) })
		}
		time.Sleep(kept + time.Minute)
		table.begin(t.Context(), "d-4", here, attached)
		if _, has := table.disks["d-1"]; !has || len(table.disks) != 2 {
			t.Errorf("%d disks are remembered, want the one that is attached, and the last", len(table.disks))
		}
		table.begin(WithCaller(t.Context(), new(byte)), "d-5", here, attached)
		if len(table.disks) != 1 {
			t.Errorf("%d disks are remembered of an earlier caller", len(table.disks)-1)
		}
	})
}

// Of a call that a proxy has made twice ECS answers the second, which it may refuse for any reason that the first one has led to.
func TestARefusedAttachLeavesNothingProvedToBeOff(t *testing.T) {
	for _, answer := range []disk.Answer{disk.Refused, disk.WrongState, disk.Elsewhere, disk.NotAttached, disk.NoInstance, disk.Unsent} {
		for before, want := range map[phase]phase{unknown: attaching, detached: attaching, attached: attached, detaching: detaching} {
			if answer == disk.Unsent {
				want = before
			}
			r := Record{phase: before}
			if r.sent(attaching, disk.Reply{Answer: answer}, time.Now()); r.phase != want {
				t.Errorf("%v, and an attach answered %v: %v, want %v", before, answer, r.phase, want)
			}
		}
	}
}
