package attachment

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestMarksBeforeTheFirstAttachmentOnly(t *testing.T) {
	const isNew, own, others = string(disk.HistoryNew), "in-use-OWN", "in-use-OTHERS"
	for name, row := range map[string]struct {
		tag    string
		own    string
		change func(*disk.Disk)
		want   marking
	}{
		"new":                               {isNew, "", nil, mark},
		"new, and read late":                {isNew, own, nil, leave},
		"new, and attached by somebody":     {isNew, "", func(d *disk.Disk) { d.State = disk.Attached }, unmark},
		"new, and being attached":           {isNew, "", func(d *disk.Disk) { d.State = disk.Attaching }, unmark},
		"being attached, and read late":     {isNew, own, func(d *disk.Disk) { d.State = disk.Attaching }, leave},
		"new, for several instances":        {isNew, "", func(d *disk.Disk) { d.MultiAttach = true }, mark},
		"marked by this process":            {own, own, nil, leave},
		"marked by another, not attached":   {others, "", nil, mark},
		"marked by another, being attached": {others, "", func(d *disk.Disk) { d.State = disk.Attaching }, mark},
		"attached before":                   {others, "", func(d *disk.Disk) { d.Released = "2026-01-01T00:00:00Z" }, leave},
		"marked, for several instances":     {others, "", func(d *disk.Disk) { d.MultiAttach = true }, leave},
		"marked, regional":                  {others, "", func(d *disk.Disk) { d.Category = "cloud_regional_disk_auto" }, leave},
		"without the tag":                   {"", "", nil, leave},
		"of a later version":                {"moved", "", nil, leave},
	} {
		d := seen(disk.Available, "nobody", false)
		d.Tags = disk.Tags{disk.HistoryTag: row.tag}
		if row.change != nil {
			row.change(&d)
		}
		if got := marks(d, row.own); got != row.want {
			t.Errorf("%s: %d, want %d", name, got, row.want)
		}
	}
}

func TestMarkIsOfTheNextAttachmentOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(0)
		is := func(instance disk.InstanceID, want string, wantHidden bool) {
			t.Helper()
			if got, hidden := table.marked("d-1", instance); got != want || hidden != wantHidden {
				t.Errorf("the mark for %s is %q, hidden %v; want %q, %v", instance, got, hidden, want, wantHidden)
			}
		}
		end := table.begin("d-1", "i-here", attached)
		is("i-here", "", false)
		table.mark("d-1", "i-here", "in-use-A")
		is("i-here", "in-use-A", true)
		is("i-else", "in-use-A", true) // it can't be taken for one of an attachment there that is over: there was none
		time.Sleep(lag)
		is("i-here", "in-use-A", false)
		table.unmark("d-1", "i-here")
		is("i-here", "", false)
		is("i-else", "in-use-A", false)
		table.unmark("d-1", "")
		is("i-else", "", false)
		time.Sleep(time.Second)
		table.mark("d-1", "i-else", "in-use-B")
		is("i-here", "in-use-B", true)
		end()

		time.Sleep(lag) // another replica may have had the calls since
		defer table.begin("d-1", "i-here", attached)()
		is("i-here", "", false)
	})
}
