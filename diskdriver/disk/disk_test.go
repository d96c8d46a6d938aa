package disk

import "testing"

func TestFirstAttachmentHasToBeProven(t *testing.T) {
	first := Disk{ID: "d-1", Category: "cloud_essd", State: Attached, Attachments: []Attachment{{"i-1", "2026-01-01T00:00:00Z"}}, Tags: Tags{HistoryTag: InUseMark("A")}}
	for name, row := range map[string]struct {
		change func(*Disk)
		turned bool
		want   bool
	}{
		"the first": {func(*Disk) {}, false, true},
		"the first, and this publish turned the tag":     {func(*Disk) {}, true, true},
		"the tag without a nonce":                        {func(d *Disk) { d.Tags = Tags{HistoryTag: string(HistoryInUse)} }, false, true},
		"new still: somebody else attached it":           {func(d *Disk) { d.Tags = Tags{HistoryTag: string(HistoryNew)} }, false, false},
		"new still, though this publish turned it":       {func(d *Disk) { d.Tags = Tags{HistoryTag: string(HistoryNew)} }, true, false},
		"without the tag, as disks of 0.1":               {func(d *Disk) { d.Tags = Tags{VolumeNameTag: "v"} }, true, false},
		"a state of a later version":                     {func(d *Disk) { d.Tags = Tags{HistoryTag: "moved"} }, true, false},
		"released before":                                {func(d *Disk) { d.Released = "2026-01-01T00:00:00Z" }, true, false},
		"on another instance":                            {func(d *Disk) { d.Attachments[0].Instance = "i-2" }, true, false},
		"on another instance, too":                       {func(d *Disk) { d.Attachments = append(d.Attachments, Attachment{"i-2", "x"}) }, true, false},
		"on none":                                        {func(d *Disk) { d.Attachments = nil }, true, false},
		"since a time that ECS doesn't say":              {func(d *Disk) { d.Attachments[0].Since = "" }, true, false},
		"made from a snapshot, with the tags of another": {func(d *Disk) { d.SnapshotID = "s-1" }, true, false},
		"for several instances":                          {func(d *Disk) { d.MultiAttach = true }, true, false},
		"regional":                                       {func(d *Disk) { d.Category = "cloud_regional_disk_auto" }, false, false},
		"regional, and this publish turned the tag":      {func(d *Disk) { d.Category = "cloud_regional_disk_auto" }, true, true},
	} {
		d := first
		d.Attachments = append([]Attachment(nil), first.Attachments...)
		row.change(&d)
		if got := d.FirstAttachment("i-1", row.turned); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}
