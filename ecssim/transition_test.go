package ecssim_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func TestStuckTransitionsStayUntilUnstuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, timed)
		id, other := create(t, c, nil), create(t, c, nil)
		addFault(t, s, ecssim.Fault{Action: "AttachDisk", Do: ecssim.FaultStuck, Count: 1})
		addFault(t, s, ecssim.Fault{Action: "DetachDisk", Do: ecssim.FaultStuck, Count: 1})
		ok(t, attach(c, "i-1", id))
		time.Sleep(time.Hour)
		wantStatus(t, c, id, "Attaching", "")
		wantCode(t, attach(c, "i-1", other), 403, "InvalidOperation.Conflict") // the queue is held up, too
		if n := s.State().Stuck; n != 1 {
			t.Errorf("%d stuck, want 1", n)
		}
		if n := s.Unstick(other); n != 0 {
			t.Errorf("%d unstuck of a disk that is not stuck", n)
		}
		if n := s.Unstick(id); n != 1 {
			t.Errorf("%d unstuck, want 1", n)
		}
		wantStatus(t, c, id, "In_use", "i-1")
		ok(t, detach(c, "i-1", id))
		time.Sleep(time.Hour)
		wantStatus(t, c, id, "Detaching", "i-1")
		if n := s.Unstick(""); n != 1 {
			t.Errorf("%d unstuck, want 1", n)
		}
		wantStatus(t, c, id, "Available", "")
		ok(t, s.Check())
	})
}

func TestAttachThatFailsLeavesTheDiskAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, timed)
		id := create(t, c, nil)
		addFault(t, s, ecssim.Fault{Action: "AttachDisk", Do: ecssim.FaultFails, Count: 1})
		addFault(t, s, ecssim.Fault{Action: "DetachDisk", Do: ecssim.FaultFails, Count: 1})
		ok(t, attach(c, "i-1", id))
		wantStatus(t, c, id, "Attaching", "")
		time.Sleep(3 * time.Second)
		wantStatus(t, c, id, "Available", "")
		ok(t, attach(c, "i-1", id))
		time.Sleep(3 * time.Second)
		ok(t, detach(c, "i-1", id))
		wantStatus(t, c, id, "Detaching", "i-1")
		time.Sleep(5 * time.Second)
		wantStatus(t, c, id, "In_use", "i-1") // the detach failed
		ok(t, detach(c, "i-1", id))
		ok(t, s.Check())
	})
}

func TestCreateThatFailsLeavesNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.Available = time.Second })
		addFault(t, s, ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultFails, Count: 1})
		addFault(t, s, ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultStuck, Count: 1})
		bad, slow := create(t, c, nil), create(t, c, nil)
		time.Sleep(time.Hour)
		wantStatus(t, c, slow, "Creating", "")
		if got := shownIDs(describe(t, c, nil)); len(got) != 1 {
			t.Errorf("disks %v, want %s and not %s", got, slow, bad)
		}
		s.Unstick(slow)
		wantStatus(t, c, slow, "Available", "")
		ok(t, s.Check())
	})
}

func TestInstanceStopsOrVanishesByAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, timed)
		c := newClient(t, s)
		id := create(t, c, nil)
		addFault(t, s, ecssim.Fault{Action: "AttachDisk", Do: ecssim.FaultStops, Count: 1})
		addFault(t, s, ecssim.Fault{Action: "AttachDisk", Do: ecssim.FaultVanishes, Count: 1})
		ok(t, attach(c, "i-1", id))
		if got := s.State().Instances[0].Status; got != "Stopped" {
			t.Errorf("the instance is %s, want Stopped", got)
		}
		time.Sleep(3 * time.Second)
		wantStatus(t, c, id, "In_use", "i-1") // that it stops keeps no disk from it
		ok(t, detach(c, "i-1", id))
		time.Sleep(5 * time.Second)
		ok(t, attach(c, "i-3", id))
		wantStatus(t, c, id, "Available", "")
		time.Sleep(3 * time.Second)
		wantStatus(t, c, id, "Available", "")
		wantCode(t, attach(c, "i-3", id), 404, "InvalidInstanceId.NotFound")
		wantCode(t, detach(c, "i-3", id), 404, "InvalidInstanceId.NotFound")
		ok(t, s.Check())
	})
}

func TestReleasedInstanceLetsItsDisksGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) { timed(c); c.Queues = ecssim.Parallel })
		held, going, leaving, coming := create(t, c, nil), create(t, c, nil), create(t, c, nil), create(t, c, nil)
		ok(t, attach(c, "i-1", held))
		ok(t, attach(c, "i-1", going, withInstance))
		ok(t, attach(c, "i-1", leaving))
		time.Sleep(3 * time.Second)
		ok(t, detach(c, "i-1", leaving))
		ok(t, attach(c, "i-1", coming))
		ok(t, s.RemoveInstance("i-1"))
		for _, id := range []string{held, leaving, coming} {
			wantStatus(t, c, id, "Available", "")
		}
		if n := len(describe(t, c, nil).Disks.Disk); n != 3 {
			t.Errorf("%d disks, want 3: one went with the instance", n)
		}
		r := ecs.CreateDescribeInstancesRequest()
		reply, err := c.DescribeInstances(r)
		ok(t, err)
		if len(reply.Instances.Instance) != 1 {
			t.Errorf("%d instances, want 1", len(reply.Instances.Instance))
		}
		time.Sleep(time.Minute) // what was under way comes to nothing
		for _, id := range []string{held, leaving, coming} {
			wantStatus(t, c, id, "Available", "")
		}
		ok(t, s.Check())
	})
}

func TestInstancesComeAndChange(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	ok(t, s.AddInstance(ecssim.Instance{ID: "i-3", Zone: zoneH, Type: "ecs.r7.large"}))
	ok(t, attach(c, "i-3", create(t, c, nil)))
	ok(t, s.SetInstance("i-3", ecssim.InstanceChange{Status: ptr("Stopping")}))
	r := ecs.CreateDescribeInstancesRequest()
	r.Status = "Stopping"
	reply, err := c.DescribeInstances(r)
	ok(t, err)
	if list := reply.Instances.Instance; len(list) != 1 || list[0].InstanceId != "i-3" || list[0].InstanceType != "ecs.r7.large" {
		t.Errorf("stopping: %+v", list)
	}
	for what, err := range map[string]error{
		"twice":          s.AddInstance(ecssim.Instance{ID: "i-3", Zone: zoneH, Type: "ecs.r7.large"}),
		"no such type":   s.AddInstance(ecssim.Instance{ID: "i-4", Zone: zoneH, Type: "ecs.new.large"}),
		"no such disks":  s.AddInstanceType(ecssim.InstanceType{ID: "ecs.new.large", NVMe: "required"}),
		"no zone":        s.AddInstance(ecssim.Instance{ID: "i-4", Zone: "x", Type: "ecs.r7.large"}),
		"a bad status":   s.SetInstance("i-3", ecssim.InstanceChange{Status: ptr("Asleep")}),
		"unknown":        s.SetInstance("i-9", ecssim.InstanceChange{}),
		"unknown to end": s.RemoveInstance("i-9"),
	} {
		var wrong *ecssim.ConfigError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: error %v, want a *ConfigError", what, err)
		}
	}
}

func TestDeclaredTypeIsTaken(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	ok(t, s.AddInstanceType(ecssim.InstanceType{ID: "ecs.g9i.large", DiskQuantity: 3, NVMe: "required"}))
	ok(t, s.AddInstance(ecssim.Instance{ID: "i-3", Zone: zoneH, Type: "ecs.g9i.large"}))
	for range 2 {
		ok(t, attach(c, "i-3", create(t, c, nil)))
	}
	wantCode(t, attach(c, "i-3", create(t, c, nil)), 403, "InstanceDiskLimitExceeded")
	wantCode(t, attach(c, "i-3", create(t, c, kind("cloud_ssd", "", 20))), 403, "InvalidInstanceType.NotSupportDiskCategory")
	r := ecs.CreateDescribeInstancesRequest()
	r.InstanceTypeFamily = "ecs.g9i"
	reply, err := c.DescribeInstances(r)
	ok(t, err)
	if list := reply.Instances.Instance; len(list) != 1 || list[0].InstanceTypeFamily != "ecs.g9i" {
		t.Errorf("instances of the family: %+v", list)
	}
}

func TestInstanceTypesArePaged(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	var got []string
	for r := ecs.CreateDescribeInstanceTypesRequest(); ; {
		r.MaxResults = requests.NewInteger(60)
		reply, err := c.DescribeInstanceTypes(r)
		ok(t, err)
		for _, kind := range reply.InstanceTypes.InstanceType {
			got = append(got, kind.InstanceTypeId)
		}
		if reply.NextToken == "" {
			break
		}
		r = ecs.CreateDescribeInstanceTypesRequest()
		r.NextToken = reply.NextToken
	}
	var want []string
	for _, kind := range ecssim.InstanceTypes() {
		want = append(want, kind.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d types in all pages: %v, want the %d of the table", len(got), got, len(want))
	}
}

func TestDoubtsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		doubts ecssim.Doubts
		field  string
	}{
		{ecssim.Doubts{InUseCode: "Busy"}, "Doubts.InUseCode"},
		{ecssim.Doubts{DetachedCode: "Gone"}, "Doubts.DetachedCode"},
		{ecssim.Doubts{ConflictStatus: 400}, "Doubts.ConflictStatus"},
		{ecssim.Doubts{SnapshotUnattached: []string{"cloud_fast"}}, "Doubts.SnapshotUnattached"},
		{ecssim.Doubts{RefuseCreating: []string{"AttachDisk"}}, "Doubts.RefuseCreating"},
		{ecssim.Doubts{TagsAs: "Name"}, "Doubts.TagsAs"},
	} {
		var wrong *ecssim.ConfigError
		_, err := ecssim.New(ecssim.Config{Region: region, Zones: []string{zoneH}, Doubts: tt.doubts})
		if !errors.As(err, &wrong) || wrong.Field != tt.field {
			t.Errorf("error %v, want one that names %s", err, tt.field)
		}
	}
}
