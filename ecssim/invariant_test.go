package ecssim

import (
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim/wire"
)

func TestCheckFindsWhatIsBroken(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := func() *disk {
		d := &disk{id: "d-1", zone: "cn-hangzhou-h", category: "cloud_ssd", size: 20, token: "t", created: now}
		d.changes = []change{{"", diskCreating, now, "test"}, {diskCreating, diskAvailable, now, "test"}}
		return d
	}
	for _, tt := range []struct {
		name   string
		change func(*Server)
		want   string
	}{
		{"nothing", func(*Server) {}, ""},
		{"two disks under one token", func(s *Server) { d := good(); d.id = "d-2"; s.disks.add(d) }, `disks d-1 and d-2 were made under one client token "t"`},
		{"a zonal disk in no zone", func(s *Server) { s.disks.byID["d-1"].zone = "" }, `in zone ""`},
		{"a disk in an unknown zone", func(s *Server) { s.disks.byID["d-1"].zone = "x" }, `in zone "x"`},
		{"a size that no category has", func(s *Server) { s.disks.byID["d-1"].size = 19 }, "has 19 GiB"},
		{"a disk that shrank", func(s *Server) { s.disks.byID["d-1"].largest = 40 }, "disk d-1 has 20 GiB, and had 40"},
		{"a disk smaller than its snapshot", func(s *Server) { s.disks.byID["d-1"].source = &snapshot{id: "s-1", size: 40} }, "the snapshot s-1 that it was made from 40"},
		{"a disk on two instances", func(s *Server) { tieUp(s, "d-1", "i-1"); tieUp(s, "d-1", "i-2") }, "disk d-1 is attached to 2 instances"},
		{"a disk on one instance twice", func(s *Server) { tieUp(s, "d-1", "i-1"); tieUp(s, "d-1", "i-1") }, "to the instance i-1 twice"},
		{"two disks at one place", func(s *Server) {
			tieUp(s, "d-1", "i-1").device = "/dev/xvdc"
			tieUp(s, "d-1", "i-1").device = "/dev/xvdc"
		}, "two disks at /dev/xvdc"},
		{"a disk in another zone than its instance", func(s *Server) { tieUp(s, "d-1", "i-1").instance.Zone = "x" }, "is attached to the instance i-1 in x"},
		{"a disk deleted while attached", func(s *Server) { tieUp(s, "d-1", "i-1"); s.disks.remove(s.disks.byID["d-1"]) }, "d-1 was deleted while it was attached to the instance i-1"},
		{"a disk on an instance that is gone", func(s *Server) { tieUp(s, "d-1", "i-1"); delete(s.fleet.instances, "i-1") }, "the instance i-1, which is gone"},
		{"a bond that the instance does not know", func(s *Server) { tieUp(s, "d-1", "i-1").instance.attachments = nil }, "the instance i-1, which does not know"},
		{"a bond that the disk does not know", func(s *Server) { tieUp(s, "d-1", "i-1").disk.attachments = nil }, "the disk d-1, which does not know"},
		{"more disks than there is room for", func(s *Server) { tieUp(s, "d-1", "i-1").instance.kind.DiskQuantity = 1 }, "instance i-1 has 2 disks and room for 1"},
		{"a state that nothing led to", func(s *Server) { tieUp(s, "d-1", "i-1").phase = diskDetaching }, `"Detaching", and nothing has led there from "Attaching"`},
		{"a change without a cause", func(s *Server) { s.disks.byID["d-1"].changes[1].cause = "" }, `from "Creating" to "Available" by ""`},
		{"a change that can't be", func(s *Server) {
			d := s.disks.byID["d-1"]
			d.changes = append(d.changes[:1], change{diskCreating, diskAttaching, now, "test"})
			tieUp(s, "d-1", "i-1")
		}, `from "Creating" to "Attaching"`},
		{"a count that does not add up", func(s *Server) { s.disks.deleted++ }, "1 disks made and 1 deleted leave 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := New(Config{Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-h"}, Instances: []Instance{
				{ID: "i-1", Zone: "cn-hangzhou-h", Type: "ecs.g6.large"}, {ID: "i-2", Zone: "cn-hangzhou-h", Type: "ecs.g6.large"},
			}})
			if err != nil {
				t.Fatal(err)
			}
			s.disks.add(good())
			tt.change(s)
			err = s.Check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// tieUp attaches a disk to an instance without any check.
func tieUp(s *Server, diskID, instanceID string) *attachment {
	d, i := s.disks.byID[diskID], s.fleet.instances[instanceID]
	a := &attachment{disk: d, instance: i, device: i.freeDevice(), phase: diskAttaching, cause: "test"}
	s.addAttachment(a)
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

func TestActionsAreWellFormed(t *testing.T) {
	for name, a := range actions {
		if a.do == nil || a.name != name || a.version == "" {
			t.Errorf("action %s is incomplete", name)
		}
		for i, p := range a.optional {
			if p == "" || wire.Numbered(p) != p {
				t.Errorf("action %s: parameter %q is not a name", name, a.optional[i])
			}
		}
	}
}
