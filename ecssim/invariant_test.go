package ecssim

import (
	"strings"
	"testing"
	"time"
)

func TestCheckFindsWhatIsBroken(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := func() *disk {
		return &disk{id: "d-1", zone: "cn-hangzhou-h", category: "cloud_ssd", size: 20, token: "t", created: now}
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
		{"a count that does not add up", func(s *Server) { s.disks.deleted++ }, "1 disks made and 1 deleted leave 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := New(Config{Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-h"}})
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
			if p == "" || numbered(p) != p {
				t.Errorf("action %s: parameter %q is not a name", name, a.optional[i])
			}
		}
	}
}
