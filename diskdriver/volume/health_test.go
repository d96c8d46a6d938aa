package volume

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestWhatIsWrongWithADisk(t *testing.T) {
	zones := disk.Offers{"z-full": {"cloud_essd": {Least: 1, Most: 2}}, "z-empty": {}}
	for _, test := range []struct {
		what  string
		disk  disk.Disk
		lasts time.Duration
		zones disk.Offers
		want  string
	}{
		{"in use", disk.Disk{State: disk.Attached, Zone: "z-full"}, time.Hour, zones, ""},
		{"nowhere in use", disk.Disk{State: disk.Available, Zone: "z-full"}, 24 * time.Hour, zones, ""},
		{"not paid", disk.Disk{State: disk.Attached, Locks: []string{"financial"}}, 0, nil, "INACCESSIBLE LockedForPayment"},
		{"its host is not paid", disk.Disk{State: disk.Attached, Locks: []string{"dedicatedhostfinancial"}}, 0, nil, "INACCESSIBLE LockedForHostPayment"},
		{"its instance is to go", disk.Disk{State: disk.Attached, Locks: []string{"recycling"}}, 0, nil, "INACCESSIBLE LockedForRelease"},
		{"not secure", disk.Disk{State: disk.Attached, Locks: []string{"security"}}, 0, nil, "INACCESSIBLE LockedForSecurity"},
		{"not secure, but on no instance", disk.Disk{State: disk.Available, Locks: []string{"security"}}, 0, nil, ""},
		{"reasons that nobody knows come once", disk.Disk{State: disk.Available, Locks: []string{"mood", "weather", "mood"}}, 0, nil, "INACCESSIBLE LockedByECS"},
		{"two locks", disk.Disk{State: disk.Attached, Locks: []string{"security", "financial", "financial"}}, 0, nil, "INACCESSIBLE LockedForPayment, INACCESSIBLE LockedForSecurity"},
		{"being made", disk.Disk{State: disk.Creating}, 9 * time.Minute, nil, ""},
		{"being made for ever", disk.Disk{State: disk.Creating}, 10 * time.Minute, nil, "INACCESSIBLE CreatingTooLong"},
		{"being attached", disk.Disk{State: disk.Attaching}, 4 * time.Minute, nil, ""},
		{"being attached for ever", disk.Disk{State: disk.Attaching}, 5 * time.Minute, nil, "INACCESSIBLE AttachingTooLong"},
		{"being detached", disk.Disk{State: disk.Detaching}, 4 * time.Minute, nil, ""},
		{"being detached for ever", disk.Disk{State: disk.Detaching}, 5 * time.Minute, nil, "INACCESSIBLE DetachingTooLong"},
		{"being changed", disk.Disk{State: disk.Modifying}, 2 * time.Hour, nil, ""},
		{"being changed for ever", disk.Disk{State: disk.Modifying}, 3 * time.Hour, nil, "DEGRADED ModifyingTooLong"},
		{"being overwritten", disk.Disk{State: disk.ReIniting}, 0, nil, "INACCESSIBLE Reinitializing"},
		{"in a zone without anything", disk.Disk{State: disk.Attached, Zone: "z-empty"}, 0, zones, "DEGRADED ZoneWithoutStock"},
		{"in a zone that is no more", disk.Disk{State: disk.Attached, Zone: "z-gone"}, 0, zones, "DEGRADED ZoneNotListed"},
		{"of a region", disk.Disk{State: disk.Attached}, 0, zones, ""},
		{"ECS tells nothing of zones", disk.Disk{State: disk.Attached, Zone: "z-gone"}, 0, disk.Offers{}, ""},
		{"all at once", disk.Disk{State: disk.Detaching, Zone: "z-gone", Locks: []string{"financial"}}, time.Hour, zones, "INACCESSIBLE LockedForPayment, INACCESSIBLE DetachingTooLong, DEGRADED ZoneNotListed"},
	} {
		var got []string
		for _, a := range conditions(test.disk, test.lasts, test.zones) {
			got = append(got, fmt.Sprintf("%s %s", a.status, a.reason))
			if a.message == "" {
				t.Errorf("%s: %s says nothing to people", test.what, a.reason)
			}
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("a disk %s: got %q, want %q", test.what, text, test.want)
		}
	}
}

func TestTheManualHasEveryCondition(t *testing.T) {
	page, err := os.ReadFile("../../docs/volumes.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := []condition{{inaccessible, "LockedByECS", ""}, {degraded, "ZoneWithoutStock", ""}, {degraded, "ZoneNotListed", ""}}
	rows = slices.AppendSeq(rows, maps.Values(locks))
	for _, slow := range passing {
		rows = append(rows, condition{slow.status, slow.reason, ""})
	}
	for _, a := range rows {
		if row := fmt.Sprintf("| `%s` | `%s` |", a.status, a.reason); strings.Count(string(page), row) != 1 {
			t.Errorf("docs/volumes.md has not one row %s", row)
		}
	}
	if all := strings.Count(string(page), "\n| `INACCESSIBLE`") + strings.Count(string(page), "\n| `DEGRADED`"); all != len(rows) {
		t.Errorf("docs/volumes.md has %d rows for %d reasons", all, len(rows))
	}
}

func TestHowLongADiskHasBeenInAStateThatShouldEnd(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	shown := func(id disk.ID, state disk.State) disk.Disk { return disk.Disk{ID: id, State: state} }
	w := &states{seen: map[disk.ID]stateSince{}}
	at := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
	lasts := func(want int, d disk.Disk, minutes int) {
		t.Helper()
		if got := w.lasting(d, at(minutes)); got != time.Duration(want)*time.Minute {
			t.Errorf("after %d minutes %s has been %s for %v, want %d minutes", minutes, d.ID, d.State, got, want)
		}
	}
	w.sawAll([]disk.Disk{shown("d-1", disk.Detaching), shown("d-2", disk.Attached), shown("d-3", disk.Attaching)}, at(0))
	lasts(0, shown("d-1", disk.Detaching), 0)
	w.saw(shown("d-1", disk.Detaching), at(2))
	w.sawAll([]disk.Disk{shown("d-1", disk.Detaching), shown("d-2", disk.Detaching)}, at(3))
	lasts(3, shown("d-1", disk.Detaching), 3)
	lasts(0, shown("d-2", disk.Detaching), 3)
	lasts(0, shown("d-3", disk.Attaching), 3)
	w.saw(shown("d-1", disk.Available), at(4))
	w.saw(shown("d-1", disk.Detaching), at(5))
	lasts(1, shown("d-1", disk.Detaching), 6)
	w.sawAll(nil, at(7))
	if len(w.seen) != 0 {
		t.Errorf("disks that are gone are remembered: %v", w.seen)
	}
}
