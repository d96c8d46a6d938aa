package volume

import (
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestOnlyWhatNobodyHasWrittenToIsMisplaced(t *testing.T) {
	left := func() disk.Disk {
		return disk.Disk{
			ID: "d-1", Zone: "cn-hangzhou-a", Category: "cloud_ssd", Size: 20, State: disk.Available, NeverAttached: true,
			Tags: disk.Tags{disk.ClusterTag: cluster, disk.CreatedByTag: disk.Creator, disk.VolumeNameTag: "disk-1"},
		}
	}
	shared := func(d *disk.Disk) { d.Category, d.MultiAttach = "cloud_auto", true }
	for name, test := range map[string]struct {
		change    func(*disk.Disk)
		misplaced bool
	}{
		"left in another zone":                  {func(*disk.Disk) {}, true},
		"still in the making":                   {func(d *disk.Disk) { d.State = disk.Creating }, true},
		"of another allowed type":               {func(d *disk.Disk) { d.Category = "cloud_auto" }, true},
		"in an allowed zone":                    {func(d *disk.Disk) { d.Zone = "cn-hangzhou-b" }, false},
		"was attached":                          {func(d *disk.Disk) { d.NeverAttached = false }, false},
		"is attached":                           {func(d *disk.Disk) { d.Attachments = []disk.Attachment{{Instance: "i-1"}} }, false},
		"is being attached":                     {func(d *disk.Disk) { d.State = disk.Attaching }, false},
		"of another type":                       {func(d *disk.Disk) { d.Category = "cloud_essd" }, false},
		"of another size":                       {func(d *disk.Disk) { d.Size = 10 }, false},
		"of a snapshot":                         {func(d *disk.Disk) { d.SnapshotID = "s-1" }, false},
		"of another cluster":                    {func(d *disk.Disk) { d.Tags[disk.ClusterTag] = "c2" }, false},
		"made by another program":               {func(d *disk.Disk) { d.Tags[disk.CreatedByTag] = "somebody" }, false},
		"for another volume":                    {func(d *disk.Disk) { d.Tags[disk.VolumeNameTag] = "disk-2" }, false},
		"for several nodes by itself":           {func(d *disk.Disk) { d.MultiAttach = true }, false},
		"for several nodes, of another process": {shared, false},
		"for several nodes, of this process":    {func(d *disk.Disk) { shared(d); d.Created = time.Now() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{}
			c := scriptedController(s)
			c.creations.Called(t.Context(), "disk-1")
			req := inZones("b")
			if strings.HasPrefix(name, "for several nodes, ") {
				req.Parameters = map[string]string{"type": "cloud_auto", "multiAttach": "true"}
			}
			o, err := c.parse(t.Context(), req)
			if err == nil {
				err = c.place(&o, req.GetAccessibilityRequirements())
			}
			if err != nil {
				t.Fatal(err)
			}
			d := left()
			test.change(&d)
			if got := c.isMisplaced(o, d); got != test.misplaced {
				t.Errorf("is misplaced: %v, want %v", got, test.misplaced)
			}
		})
	}
}
