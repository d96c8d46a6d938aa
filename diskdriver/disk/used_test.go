package disk

import "testing"

func TestNeverUsed(t *testing.T) {
	isNew := Tags{HistoryTag: string(HistoryNew)}
	inUse := Tags{HistoryTag: InUseMark("1")}
	for name, test := range map[string]struct {
		disk Disk
		want bool
	}{
		"new":                                    {Disk{NeverAttached: true, Tags: isNew}, true},
		"new, and ECS shows an attachment":       {Disk{Tags: isNew}, false},
		"marked as in use, and not attached":     {Disk{NeverAttached: true, Tags: inUse}, false},
		"from a snapshot, never attached":        {Disk{NeverAttached: true}, true},
		"from a snapshot, attached before":       {Disk{}, false},
		"for several instances, new":             {Disk{NeverAttached: true, MultiAttach: true, Tags: isNew}, true},
		"for several instances, from a snapshot": {Disk{NeverAttached: true, MultiAttach: true}, false},
		"regional, new":                          {Disk{NeverAttached: true, Category: "cloud_regional_disk_auto", Tags: isNew}, true},
		"regional, from a snapshot":              {Disk{NeverAttached: true, Category: "cloud_regional_disk_auto"}, false},
	} {
		if got := test.disk.NeverUsed(); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
