package attachment

import (
	"maps"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestMarksKeepWhatTheTagSays(t *testing.T) {
	full := disk.Tags{}
	for len(full) < disk.MostTags {
		full[strings.Repeat("x", len(full)+1)] = ""
	}
	const isNew = string(disk.HistoryNew)
	for name, row := range map[string]struct {
		tag    string
		change func(*disk.Disk)
		want   string // what the mark begins with
		turned bool
	}{
		"new":                           {isNew, nil, "in-use-", true},
		"new, and not made yet":         {isNew, func(d *disk.Disk) { d.State = disk.Creating }, "in-use-", true},
		"new, and attached by somebody": {isNew, func(d *disk.Disk) { d.State = disk.Attached }, "used-", false},
		"new, and being attached":       {isNew, func(d *disk.Disk) { d.State = disk.Attaching }, "used-", false},
		"new, and changing":             {isNew, func(d *disk.Disk) { d.State = disk.Modifying }, "in-use-", true},
		"new, on somebody's, changing": {isNew, func(d *disk.Disk) {
			d.State, d.Attachments = disk.Modifying, []disk.Attachment{{Instance: "i-x"}}
		}, "used-", false},
		"new, for several instances": {isNew, func(d *disk.Disk) { d.MultiAttach = true }, "in-use-", true},
		"marked":                     {"in-use-X", nil, "in-use-", false},
		"of version 0.2.0":           {"in-use", nil, "in-use-", false},
		"used":                       {"used-X", nil, "used-", false},
		"without the tag":            {"", nil, "used-", false},
		"without the tag, and full":  {"", func(d *disk.Disk) { d.Tags = full }, "", false},
		"without the tag, and room for a node that reads": {"", func(d *disk.Disk) {
			d.Tags = maps.Clone(full)
			delete(d.Tags, "x")
		}, "", false},
		"marked, and full": {"in-use-X", func(d *disk.Disk) {
			d.Tags = maps.Clone(full)
			delete(d.Tags, "x")
			d.Tags[disk.HistoryTag] = "in-use-X"
		}, "in-use-", false},
		"of a later version": {"moved", nil, "", false},
	} {
		d := seen(disk.Available, "nobody", false)
		d.Tags = disk.Tags{}
		if row.tag != "" {
			d.Tags[disk.HistoryTag] = row.tag
		}
		if row.change != nil {
			row.change(&d)
		}
		got, turned := nextMark(d)
		if !strings.HasPrefix(got, row.want) || (got == "") != (row.want == "") || got != "" && got == row.tag || turned != row.turned {
			t.Errorf("%s: %q, turned %v; want %q", name, got, turned, row.want)
		}
	}
}
