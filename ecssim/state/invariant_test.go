package state

import (
	"strings"
	"testing"
	"time"
)

func TestCheckFindsWhatIsBroken(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := func() *Disk {
		d := &Disk{ID: "d-1", Zone: "cn-hangzhou-h", Category: "cloud_ssd", Size: 20, Token: "t", Created: now}
		d.changes = []change{{"", DiskCreating, now, "test"}, {DiskCreating, DiskAvailable, now, "test"}}
		return d
	}
	for _, tt := range []struct {
		name   string
		change func(*Region)
		want   string
	}{
		{"nothing", func(*Region) {}, ""},
		{"two disks under one token", func(r *Region) { d := good(); d.ID = "d-2"; r.disks.add(d) }, `disks d-1 and d-2 were made under one client token "t"`},
		{"a zonal disk in no zone", func(r *Region) { r.disks.byID["d-1"].Zone = "" }, `in zone ""`},
		{"a disk in an unknown zone", func(r *Region) { r.disks.byID["d-1"].Zone = "x" }, `in zone "x"`},
		{"a size that no category has", func(r *Region) { r.disks.byID["d-1"].Size = 19 }, "has 19 GiB"},
		{"a disk that shrank", func(r *Region) { r.disks.byID["d-1"].Largest = 40 }, "disk d-1 has 20 GiB, and had 40"},
		{"a disk smaller than its snapshot", func(r *Region) { r.disks.byID["d-1"].Source = &Snapshot{ID: "s-1", Size: 40} }, "the snapshot s-1 that it was made from 40"},
		{"a disk on two instances", func(r *Region) { tieUp(r, "d-1", "i-1"); tieUp(r, "d-1", "i-2") }, "disk d-1 is attached to 2 instances"},
		{"a disk on one instance twice", func(r *Region) { tieUp(r, "d-1", "i-1"); tieUp(r, "d-1", "i-1") }, "to the instance i-1 twice"},
		{"two disks at one place", func(r *Region) {
			tieUp(r, "d-1", "i-1").Device = "/dev/xvdc"
			tieUp(r, "d-1", "i-1").Device = "/dev/xvdc"
		}, "two disks at /dev/xvdc"},
		{"a disk in another zone than its instance", func(r *Region) { tieUp(r, "d-1", "i-1").Instance.Zone = "x" }, "is attached to the instance i-1 in x"},
		{"a disk deleted while attached", func(r *Region) { tieUp(r, "d-1", "i-1"); r.disks.remove(r.disks.byID["d-1"]) }, "d-1 was deleted while it was attached to the instance i-1"},
		{"a disk on an instance that is gone", func(r *Region) { tieUp(r, "d-1", "i-1"); delete(r.fleet.instances, "i-1") }, "the instance i-1, which is gone"},
		{"a bond that the instance does not know", func(r *Region) { tieUp(r, "d-1", "i-1").Instance.Attachments = nil }, "the instance i-1, which does not know"},
		{"a bond that the disk does not know", func(r *Region) { tieUp(r, "d-1", "i-1").Disk.Attachments = nil }, "the disk d-1, which does not know"},
		{"more disks than there is room for", func(r *Region) { tieUp(r, "d-1", "i-1").Instance.Kind.DiskQuantity = 1 }, "instance i-1 has 2 disks and room for 1"},
		{"a state that nothing led to", func(r *Region) { tieUp(r, "d-1", "i-1").Phase = DiskDetaching }, `"Detaching", and nothing has led there from "Attaching"`},
		{"a change without a cause", func(r *Region) { r.disks.byID["d-1"].changes[1].cause = "" }, `from "Creating" to "Available" by ""`},
		{"a change that can't be", func(r *Region) {
			d := r.disks.byID["d-1"]
			d.changes = append(d.changes[:1], change{DiskCreating, DiskAttaching, now, "test"})
			tieUp(r, "d-1", "i-1")
		}, `from "Creating" to "Attaching"`},
		{"a count that does not add up", func(r *Region) { r.disks.deleted++ }, "1 disks made and 1 deleted leave 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := New(Config{Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-h"}, TokenLife: 24 * time.Hour, Instances: []InstanceSpec{
				{ID: "i-1", Zone: "cn-hangzhou-h", Type: "ecs.g6.large"}, {ID: "i-2", Zone: "cn-hangzhou-h", Type: "ecs.g6.large"},
			}}, now, func(string) {})
			r.disks.add(good())
			tt.change(r)
			err := r.Check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// tieUp attaches a disk to an instance without any check.
func tieUp(r *Region, diskID, instanceID string) *Attachment {
	d, i := r.disks.byID[diskID], r.fleet.instances[instanceID]
	a := &Attachment{Disk: d, Instance: i, Device: i.FreeDevice(), Phase: DiskAttaching, Cause: "test"}
	r.AddAttachment(a)
	return a
}

func TestQueueRunsInOrderOfTimeThenOfArrival(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var q queue
	var got string
	for i, after := range []time.Duration{2, 1, 2, 0, 1} {
		name := string(rune('a' + i))
		q.add(now.Add(after), func() { got += name })
	}
	q.run(now.Add(1))
	if got != "dbe" {
		t.Errorf("ran %q at 1, want dbe", got)
	}
	q.run(now.Add(5))
	if got != "dbeac" {
		t.Errorf("ran %q in the end, want dbeac", got)
	}
}
