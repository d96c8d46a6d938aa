package ecssim_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// The tests of this file are about what clients of ECS have met beside what is
// documented, one test for each, by the numbers A1 to A9. All but A2 and A3
// are spans of time in Latency; those two are in Doubts.

func TestA1AttachingDiskIsShownAvailableForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) { timed(c); c.Latency.AttachShown = 300 * time.Millisecond })
		id := create(t, c, nil)
		ok(t, attach(c, "i-1", id))
		time.Sleep(300*time.Millisecond - time.Nanosecond)
		wantStatus(t, c, id, "Available", "")
		wantCode(t, attach(c, "i-1", id), 403, "IncorrectDiskStatus") // ECS itself knows
		if got := s.Disks()[0].Status; got != "Attaching" {
			t.Errorf("the disk itself is %s, want Attaching", got)
		}
		wantStatus(t, c, id, "Attaching", "")
	})
}

func TestA2AttachWhileDetachingFromTheSameInstance(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprintf("refused %v", refuse), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newServerAndClient(t, func(c *ecssim.Config) { timed(c); c.Doubts.RefuseAttachWhileDetaching = refuse })
				id := create(t, c, nil)
				ok(t, attach(c, "i-1", id))
				time.Sleep(3 * time.Second)
				ok(t, detach(c, "i-1", id))
				if err := attach(c, "i-1", id); refuse {
					wantCode(t, err, 403, "IncorrectDiskStatus")
				} else if err != nil {
					t.Fatal(err)
				}
				wantStatus(t, c, id, "Detaching", "i-1")
				time.Sleep(5 * time.Second)
				wantStatus(t, c, id, "Available", "") // the detach went on
				ok(t, s.Check())
			})
		})
	}
}

func TestA3InstanceIsListedWhileDetachingUnlessHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newServer(t, func(c *ecssim.Config) { timed(c); c.Doubts.HideDetaching, c.Doubts.ListAttaching = true, true }))
		id := create(t, c, nil)
		ok(t, attach(c, "i-1", id))
		if d := look(t, c, id); d.Status != "Attaching" || d.InstanceId != "" || len(d.Attachments.Attachment) != 1 {
			t.Errorf("while it attaches: %s on %q, attachments %v", d.Status, d.InstanceId, d.Attachments.Attachment)
		}
		time.Sleep(3 * time.Second)
		ok(t, detach(c, "i-1", id))
		wantStatus(t, c, id, "Detaching", "")
	})
}

func TestA4GuestSeesTheDeviceAfterInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) { timed(c); c.Latency.DeviceVisible = 10 * time.Second })
		id := create(t, c, nil)
		devices := func() []ecssim.Device {
			t.Helper()
			d, err := s.Devices("i-1")
			ok(t, err)
			return d
		}
		ok(t, attach(c, "i-1", id))
		time.Sleep(3*time.Second + 10*time.Second - time.Nanosecond)
		wantStatus(t, c, id, "In_use", "i-1")
		if d := devices(); len(d) != 0 {
			t.Errorf("the guest sees %v too early", d)
		}
		time.Sleep(time.Nanosecond)
		want := []ecssim.Device{{Serial: id[2:], Disk: id, Size: 20}}
		if d := devices(); !slices.Equal(d, want) {
			t.Errorf("the guest sees %v, want %v", d, want)
		}
		ok(t, detach(c, "i-1", id))
		time.Sleep(5 * time.Second)
		if d := devices(); len(d) != 0 {
			t.Errorf("the guest sees %v after the detach", d)
		}
		var wrong *ecssim.ConfigError
		if _, err := s.Devices("i-9"); !errors.As(err, &wrong) || wrong.Value != "i-9" {
			t.Errorf("an unknown instance: error %v", err)
		}
	})
}

func TestA5NewInstanceIsRunningAndRefusesAnAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.InstanceReady = 20 * time.Second })
		ok(t, s.AddInstance(ecssim.Instance{ID: "i-new", Zone: zoneH, Type: "ecs.g6.large"}))
		id := create(t, c, nil)
		wantCode(t, attach(c, "i-new", id), 400, "IncorrectInstanceStatus")
		time.Sleep(20 * time.Second)
		ok(t, attach(c, "i-new", id))
		ok(t, attach(c, "i-1", create(t, c, nil))) // it has been there for long
	})
}

func TestA6NewDiskRefusesAnAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Latency.Initializing = time.Second }))
		id := create(t, c, nil)
		wantCode(t, attach(c, "i-1", id), 403, "IncorrectDiskStatus.Initializing")
		time.Sleep(time.Second)
		ok(t, attach(c, "i-1", id))
	})
}

func TestA7BurstingIsRefusedForAWhileAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Latency.Modify, c.Latency.BurstReady = time.Minute, 5*time.Second }))
		id := create(t, c, ofKind("cloud_essd", "", "40"))
		burst := func() error {
			return attributes(c, []string{id}, func(r *ecs.ModifyDiskAttributeRequest) { r.BurstingEnabled = "true" })
		}
		ok(t, second(modify(c, id, toCategory("cloud_auto"))))
		wantCode(t, burst(), 403, "BurstingEnabledForModifyingDiskUnsupported")
		time.Sleep(time.Minute)
		if got := tasks(t, c, nil)[0].TaskStatus; got != "Finished" {
			t.Fatalf("the task is %s", got)
		}
		wantCode(t, burst(), 403, "BurstingEnabledForModifyingDiskUnsupported")
		time.Sleep(5 * time.Second)
		ok(t, burst())
	})
}

func TestA8TagSearchLagsBehindReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.TagsVisible = 2 * time.Second })
		id := create(t, c, func(r *ecs.CreateDiskRequest) { r.Tag = &[]ecs.CreateDiskTag{{Key: "app", Value: "db"}} })
		found := func(value string) int {
			return describe(t, c, func(r *ecs.DescribeDisksRequest) {
				r.Tag = &[]ecs.DescribeDisksTag{{Key: "app", Value: value}}
			}).TotalCount
		}
		if found("db") != 0 || describe(t, c, nil).TotalCount != 1 {
			t.Error("a new disk must be found by a plain read and not yet by its tag")
		}
		time.Sleep(2 * time.Second)
		if found("db") != 1 {
			t.Error("after the lag the tag must find the disk")
		}
		tagDisk(t, c, id, "app", "web")
		if found("db") != 1 || found("web") != 0 {
			t.Error("a changed tag must be found by its old value first")
		}
		time.Sleep(2 * time.Second)
		if found("db") != 0 || found("web") != 1 {
			t.Error("after the lag a changed tag must be found by its new value")
		}
	})
}

func TestA9ReadsLagBehindACreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.Visible = 2 * time.Second })
		id := create(t, c, nil)
		count := func() int {
			return len(describe(t, c, func(r *ecs.DescribeDisksRequest) { r.DiskIds = idList(id) }).Disks.Disk)
		}
		time.Sleep(2*time.Second - time.Nanosecond)
		if n := count(); n != 0 {
			t.Errorf("%d disks before the lag is over, want none", n)
		}
		if len(s.Disks()) != 1 {
			t.Error("the disk itself must be there at once")
		}
		time.Sleep(time.Nanosecond)
		if n := count(); n != 1 {
			t.Errorf("%d disks after the lag, want 1", n)
		}
	})
}
