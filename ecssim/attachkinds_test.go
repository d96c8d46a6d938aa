package ecssim_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func TestSharedDiskShowsAllItsInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, timed)
		c := newClient(t, s)
		id := create(t, c, shared)
		ok(t, attach(c, "i-nvme1", id))
		time.Sleep(3 * time.Second)
		ok(t, attach(c, "i-nvme2", id))
		d := look(t, c, id)
		if d.Status != "In_use" || len(d.Attachments.Attachment) != 1 || d.Attachments.Attachment[0].InstanceId != "i-nvme1" {
			t.Errorf("while the second attaches: %s, %+v", d.Status, d.Attachments.Attachment)
		}
		time.Sleep(3 * time.Second)
		d = look(t, c, id)
		if d.Status != "In_use" || len(d.Attachments.Attachment) != 2 || d.InstanceId != "" || d.Device != "" || d.MountInstanceNum != 2 {
			t.Errorf("on both: %s on %q, %+v", d.Status, d.InstanceId, d.Attachments.Attachment)
		}
		found := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.InstanceId = "i-nvme2" })
		if got := shownIDs(found); !slices.Equal(got, []string{id}) {
			t.Errorf("the disks of i-nvme2 are %v, want %s", got, id)
		}
		wantCode(t, detach(c, "i-nvme1", id, func(r *ecs.DetachDiskRequest) { r.DeleteWithInstance = "true" }), 403, "DeleteWithInstance.Conflict")
		ok(t, detach(c, "i-nvme1", id))
		if d := look(t, c, id); d.Status != "In_use" {
			t.Errorf("while one of two detaches it is %s, want In_use", d.Status)
		}
		time.Sleep(5 * time.Second)
		ok(t, detach(c, "i-nvme2", id))
		time.Sleep(5 * time.Second)
		wantStatus(t, c, id, "Available", "")
		ok(t, s.Check())
	})
}

func TestSharedDiskHasSixteenInstancesAtMost(t *testing.T) {
	s, c := newServerAndClient(t, func(c *ecssim.Config) {
		for n := range 17 {
			c.Instances = append(c.Instances, ecssim.Instance{ID: fmt.Sprintf("i-n%d", n), Zone: zoneH, Type: "ecs.g7se.large"})
		}
	})
	id := create(t, c, shared)
	for n := range 16 {
		ok(t, attach(c, fmt.Sprintf("i-n%d", n), id))
	}
	wantCode(t, attach(c, "i-n16", id), 403, "DiskAttachedNumberExceeded")
	ok(t, s.Check())
}

func TestForceMovesARegionalDiskToAnotherZone(t *testing.T) {
	for _, detaching := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, c := newServerAndClient(t, func(c *ecssim.Config) { timed(c); c.Instances[1].Type = "ecs.g6.large" })
			id := create(t, c, regional)
			ok(t, attach(c, "i-1", id))
			time.Sleep(3 * time.Second)
			if detaching {
				ok(t, detach(c, "i-1", id))
			}
			ok(t, attach(c, "i-2", id, byForce))
			wantStatus(t, c, id, "Attaching", "")
			time.Sleep(3 * time.Second)
			wantStatus(t, c, id, "In_use", "i-2")
			time.Sleep(5 * time.Second)
			wantStatus(t, c, id, "In_use", "i-2") // the detach from before is no more
			ok(t, s.Check())
		})
	}
}

func TestEphemeralDiskBelongsToItsFirstInstance(t *testing.T) {
	s := fleet(t, nil)
	c := newClient(t, s)
	id := create(t, c, ephemeral)
	ok(t, attach(c, "i-eed", id, withInstance))
	if d := look(t, c, id); !d.DeleteWithInstance {
		t.Error("DeleteWithInstance is false, want true")
	}
	wantCode(t, detach(c, "i-eed", id), 403, "InvalidParameter.DeleteWithInstance")
	ok(t, detach(c, "i-eed", id, func(r *ecs.DetachDiskRequest) { r.DeleteWithInstance = "true" }))
	if d := look(t, c, id); d.DeleteWithInstance {
		t.Error("DeleteWithInstance is true after the detach, want false")
	}
	wantCode(t, attach(c, "i-eed2", id, withInstance), 403, "InvalidOperation.OtherInstanceUnsupported")
	ok(t, attach(c, "i-eed", id, withInstance))
}

func TestSystemDisksCountAndStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, nil)
		c := newClient(t, s)
		list := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.InstanceId, r.DiskType = "i-1", "system" }).Disks.Disk
		if len(list) != 1 || list[0].Type != "system" || list[0].Device != "/dev/xvda" || list[0].Portable || !list[0].DeleteWithInstance || list[0].Status != "In_use" {
			t.Fatalf("system disks %+v", list)
		}
		boot := list[0].DiskId
		if old := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.InstanceId, r.DiskType = "i-old", "system" }).Disks.Disk; len(old) != 1 || old[0].Category != "cloud" {
			t.Errorf("an old type's system disk: %+v", old)
		}
		wantCode(t, detach(c, "i-1", boot), 403, "DiskTypeViolation")
		wantCode(t, remove(c, boot), 403, "IncorrectDiskStatus")
		ids := createMany(t, c, 17, nil)
		for _, id := range ids[:16] {
			ok(t, attach(c, "i-1", id))
		}
		wantCode(t, attach(c, "i-1", ids[16]), 403, "InstanceDiskLimitExceeded")
		if n := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.InstanceId, r.DiskType, r.PageSize = "i-1", "data", "100" }).TotalCount; n != 16 {
			t.Errorf("%d data disks, want 16", n)
		}
		if d, err := s.Devices("i-1"); err != nil || len(d) != 16 {
			t.Errorf("%d devices, %v; want the 16 data disks", len(d), err)
		}
		ok(t, second(snap(c, boot)))
		if n := snapshots(t, c, func(r *ecs.DescribeSnapshotsRequest) { r.SourceDiskType = "system" }).TotalCount; n != 1 {
			t.Errorf("%d snapshots of system disks, want 1", n)
		}
		ok(t, s.AddInstance(ecssim.Instance{ID: "i-new", Zone: zoneH, Type: "ecs.g6.large"}))
		ok(t, s.RemoveInstance("i-1"))
		system := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.DiskType, r.PageSize = "system", "100" })
		if want := len(s.State().Instances); system.TotalCount != want {
			t.Errorf("%d system disks after one instance came and one went, want %d", system.TotalCount, want)
		}
		ok(t, s.Check())
	})
}
