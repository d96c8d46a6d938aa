package ecssim_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

type attachChange = func(*ecs.AttachDiskRequest)

// attach starts to attach a disk.
func attach(c *ecs.Client, instance, disk string, changes ...attachChange) error {
	r := ecs.CreateAttachDiskRequest()
	r.InstanceId, r.DiskId = instance, disk
	for _, change := range changes {
		change(r)
	}
	_, err := c.AttachDisk(r)
	return err
}

// detach starts to detach a disk.
func detach(c *ecs.Client, instance, disk string, changes ...func(*ecs.DetachDiskRequest)) error {
	r := ecs.CreateDetachDiskRequest()
	r.InstanceId, r.DiskId = instance, disk
	for _, change := range changes {
		change(r)
	}
	_, err := c.DetachDisk(r)
	return err
}

// resize makes a disk larger.
func resize(c *ecs.Client, disk string, size int, changes ...func(*ecs.ResizeDiskRequest)) error {
	r := ecs.CreateResizeDiskRequest()
	r.DiskId, r.NewSize = disk, requests.NewInteger(size)
	for _, change := range changes {
		change(r)
	}
	_, err := c.ResizeDisk(r)
	return err
}

func online(r *ecs.ResizeDiskRequest) { r.Type = "online" }

// look reads one disk.
func look(t *testing.T, c *ecs.Client, disk string) ecs.Disk {
	t.Helper()
	disks := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.DiskIds = idList(disk) }).Disks.Disk
	if len(disks) != 1 {
		t.Fatalf("a read of %s shows %d disks", disk, len(disks))
	}
	return disks[0]
}

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantStatus checks what a read shows of a disk, "" for instance being none.
func wantStatus(t *testing.T, c *ecs.Client, disk, status, instance string) {
	t.Helper()
	d := look(t, c, disk)
	listed := ""
	for _, a := range d.Attachments.Attachment {
		listed += a.InstanceId
	}
	if d.Status != status || d.InstanceId != instance || listed != instance || (d.Device != "") != (instance != "") ||
		(d.AttachedTime != "") != (instance != "") || d.MountInstanceNum != len(d.Attachments.Attachment) {
		t.Errorf("the read shows %s on %q at %q since %q, attachments %q; want %s on %q", d.Status, d.InstanceId, d.Device, d.AttachedTime, listed, status, instance)
	}
}

// timed gives attach and detach the times that the tests below are about.
func timed(c *ecssim.Config) {
	c.Latency = ecssim.Latency{
		API: map[string]time.Duration{"AttachDisk": time.Second, "DetachDisk": time.Second}, Attach: 3 * time.Second, Detach: 5 * time.Second,
	}
}

func TestAttachAndDetachTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, timed)
		id := create(t, c, nil)
		start := time.Now()
		ok(t, attach(c, "i-1", id))
		if took := time.Since(start); took != time.Second {
			t.Errorf("AttachDisk answers after %v, want 1s", took)
		}
		wantStatus(t, c, id, "Attaching", "")
		time.Sleep(3*time.Second - time.Nanosecond)
		wantStatus(t, c, id, "Attaching", "")
		time.Sleep(time.Nanosecond)
		wantStatus(t, c, id, "In_use", "i-1")
		if d := look(t, c, id); d.Device != "/dev/xvdb" || d.AttachedTime != "2000-01-01T00:00:00Z" || d.DetachedTime != "" {
			t.Errorf("attached as %s at %s, detached at %q", d.Device, d.AttachedTime, d.DetachedTime)
		}
		wantCode(t, remove(c, id), 403, "IncorrectDiskStatus")
		ok(t, detach(c, "i-1", id))
		wantStatus(t, c, id, "Detaching", "i-1") // A3
		time.Sleep(5*time.Second - time.Nanosecond)
		wantStatus(t, c, id, "Detaching", "i-1")
		time.Sleep(time.Nanosecond)
		wantStatus(t, c, id, "Available", "")
		if d := look(t, c, id); d.DetachedTime != "2000-01-01T00:00:10Z" {
			t.Errorf("detached at %q, want 10 s after the start", d.DetachedTime)
		}
		ok(t, remove(c, id))
		ok(t, s.Check())
	})
}

// shared, regional, ephemeral and so on are disks of a kind.
func shared(r *ecs.CreateDiskRequest)   { r.MultiAttach = "Enabled" }
func regional(r *ecs.CreateDiskRequest) { r.ZoneId, r.DiskCategory = "", "cloud_regional_disk_auto" }
func ephemeral(r *ecs.CreateDiskRequest) {
	r.DiskCategory, r.Size = "elastic_ephemeral_disk_standard", "64"
}
func withInstance(r *ecs.AttachDiskRequest) {
	r.DeleteWithInstance = requests.NewBoolean(true)
}
func byForce(r *ecs.AttachDiskRequest) { r.Force = requests.NewBoolean(true) }

// fleet returns a server with an instance of each kind.
func fleet(t *testing.T, change func(*ecssim.Config)) *ecssim.Server {
	t.Helper()
	return newServer(t, func(c *ecssim.Config) {
		c.InstanceTypes = []ecssim.InstanceType{
			{ID: "ecs.essd.only", DiskQuantity: 17, NVMe: "unsupported", Categories: []string{"cloud_essd"}, NoPL0: true},
			{ID: "ecs.tiny.large", DiskQuantity: 2, NVMe: "unsupported"},
			{ID: "ecs.older.large", DiskQuantity: 17, NVMe: "unsupported", NotIOOptimized: true, Categories: []string{"cloud", "cloud_efficiency"}},
		}
		for id, kind := range map[string]string{"i-nvme1": "ecs.g7se.large", "i-nvme2": "ecs.g7se.large", "i-essd": "ecs.essd.only", "i-old": "ecs.s1.small", "i-tiny": "ecs.tiny.large", "i-older": "ecs.older.large", "i-eed": "ecs.gn8is.4xlarge", "i-eed2": "ecs.gn8is.4xlarge", "i-3": "ecs.g6.large"} {
			c.Instances = append(c.Instances, ecssim.Instance{ID: id, Zone: zoneH, Type: kind})
		}
		c.Instances = append(c.Instances, ecssim.Instance{ID: "i-off", Zone: zoneH, Type: "ecs.g6.large", Status: "Stopped"},
			ecssim.Instance{ID: "i-boot", Zone: zoneH, Type: "ecs.g6.large", Status: "Starting"})
		if change != nil {
			change(c)
		}
	})
}

func TestAttachRefuses(t *testing.T) {
	for _, tt := range []struct {
		name     string
		disk     func(*ecs.CreateDiskRequest)
		before   string // the instance that it is on already
		instance string
		change   attachChange
		status   int
		code     string
	}{
		{"an unknown instance", nil, "", "i-9", nil, 404, "InvalidInstanceId.NotFound"},
		{"an unknown disk", nil, "", "i-1", func(r *ecs.AttachDiskRequest) { r.DiskId = "d-9" }, 404, "InvalidDiskId.NotFound"},
		{"no instance", nil, "", "", nil, 400, "MissingParameter"},
		{"no disk", nil, "", "i-1", func(r *ecs.AttachDiskRequest) { r.DiskId = "" }, 400, "MissingParameter"},
		{"another region", nil, "", "i-1", func(r *ecs.AttachDiskRequest) { r.RegionId = "cn-beijing" }, 400, "InvalidRegionId.MalFormed"},
		{"a word for a truth value", nil, "", "i-1", func(r *ecs.AttachDiskRequest) { r.DeleteWithInstance = "yes" }, 400, "InvalidParameter"},
		{"a system disk", nil, "", "i-1", func(r *ecs.AttachDiskRequest) { r.Bootable = "true" }, 400, "InvalidDisk.DiskNotBootable"},
		{"a device of another form", nil, "", "i-1", func(r *ecs.AttachDiskRequest) { r.Device = "/dev/sda" }, 400, "InvalidDevice.Malformed"},
		{"a disk that is on the instance", nil, "i-1", "i-1", nil, 403, "IncorrectDiskStatus"},
		{"a disk that is on another instance", nil, "i-3", "i-1", nil, 403, "IncorrectDiskStatus"},
		{"an instance in another zone", nil, "", "i-2", nil, 403, "ResourcesNotInSameZone"},
		{"an instance that starts", nil, "", "i-boot", nil, 400, "IncorrectInstanceStatus"},
		{"a category that the type does not take", func(r *ecs.CreateDiskRequest) { r.DiskCategory = "cloud_ssd" }, "", "i-essd", nil, 403, "InvalidInstanceType.NotSupportDiskCategory"},
		{"a category of ecs.u1 and ecs.e", func(r *ecs.CreateDiskRequest) { r.DiskCategory = "cloud_essd_entry" }, "", "i-1", nil, 403, "InvalidInstanceType.NotSupportDiskCategory"},
		{"PL0 where it can't be", func(r *ecs.CreateDiskRequest) { r.PerformanceLevel = "PL0" }, "", "i-essd", nil, 403, "InvalidInstanceType.NotSupportPL0"},
		{"an SSD on a type that is not I/O optimized", nil, "", "i-old", nil, 403, "InvalidInstanceType.NotSupportDiskCategory"},
		{"encryption on a type that is not I/O optimized", func(r *ecs.CreateDiskRequest) { r.DiskCategory, r.Encrypted = "cloud_efficiency", "true" }, "", "i-older", nil, 400, "InvalidOperation.InstanceTypeNotSupport"},
		{"a shared disk without NVMe", shared, "", "i-1", nil, 403, "InvalidInstanceType.NotSupportMultiAttachDisk"},
		{"a shared disk that goes with the instance", shared, "", "i-nvme1", withInstance, 403, "DeleteWithInstance.Conflict"},
		{"a shared disk by force", shared, "", "i-nvme1", byForce, 400, "InvalidParameterForce.MultiAttachDiskNotSupported"},
		{"a shared disk on the same instance", shared, "i-nvme1", "i-nvme1", nil, 403, "IncorrectDiskStatus"},
		{"a zonal disk by force", nil, "i-3", "i-1", byForce, 400, "InvalidParameterForce.DiskCategoryNotSupported"},
		{"a regional disk by force within the zone", regional, "i-3", "i-1", byForce, 403, "InvalidInstance.ZoneConflict"},
		{"a regional disk without force", regional, "i-3", "i-2", nil, 403, "IncorrectDiskStatus"},
		{"an ephemeral disk that outlives its instance", ephemeral, "", "i-eed", nil, 403, "InvalidParameter.DeleteWithInstance"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := fleet(t, nil)
			c := newClient(t, s)
			id := create(t, c, tt.disk)
			if tt.before != "" {
				ok(t, attach(c, tt.before, id))
			}
			before := s.State().Instances
			wantCode(t, attach(c, tt.instance, id, func(r *ecs.AttachDiskRequest) {
				if tt.change != nil {
					tt.change(r)
				}
			}), tt.status, tt.code)
			if after := s.State().Instances; fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("a refused attach changed %v to %v", before, after)
			}
			ok(t, s.Check())
		})
	}
}

func TestInUseHasTheCodeThatIsConfigured(t *testing.T) {
	for code, status := range map[string]int{"IncorrectDiskStatus": 403, "InvalidDisk.InUse": 404} {
		c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Doubts.InUseCode = code }))
		id := create(t, c, nil)
		ok(t, attach(c, "i-1", id))
		wantCode(t, attach(c, "i-1", id), status, code)
	}
}

func TestStoppedInstanceTakesDisksAndSeesNone(t *testing.T) {
	s := fleet(t, nil)
	c := newClient(t, s)
	id := create(t, c, nil)
	ok(t, attach(c, "i-off", id))
	wantStatus(t, c, id, "In_use", "i-off")
	if d, err := s.Devices("i-off"); err != nil || len(d) != 0 {
		t.Errorf("a guest that does not run sees %v, error %v", d, err)
	}
	ok(t, s.SetInstance("i-off", ecssim.InstanceChange{Status: ptr("Running")}))
	if d, err := s.Devices("i-off"); err != nil || len(d) != 1 {
		t.Errorf("the guest sees %v once it runs, error %v", d, err)
	}
	ok(t, detach(c, "i-off", id))
}

func ptr[T any](v T) *T { return &v }

func TestLockedInstanceRefuses(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	id, other := create(t, c, nil), create(t, c, nil)
	ok(t, attach(c, "i-1", id))
	ok(t, s.SetInstance("i-1", ecssim.InstanceChange{Locked: ptr(true)}))
	wantCode(t, detach(c, "i-1", id), 403, "InstanceLockedForSecurity")
	wantCode(t, attach(c, "i-1", other), 403, "InstanceLockedForSecurity")
	r := ecs.CreateDescribeInstancesRequest()
	r.InstanceIds = idList("i-1")
	reply, err := c.DescribeInstances(r)
	ok(t, err)
	if locks := reply.Instances.Instance[0].OperationLocks.LockReason; len(locks) != 1 || locks[0].LockReason != "security" {
		t.Errorf("locks %+v, want security", locks)
	}
}

func TestFullInstanceRefusesAnotherDisk(t *testing.T) {
	s := fleet(t, nil)
	c := newClient(t, s)
	ids := createMany(t, c, 17, nil)
	for _, id := range ids[:16] { // the system disk is the 17th
		ok(t, attach(c, "i-1", id))
	}
	wantCode(t, attach(c, "i-1", ids[16]), 403, "InstanceDiskLimitExceeded")
	ok(t, detach(c, "i-1", ids[3]))
	ok(t, attach(c, "i-1", ids[16]))
	if d := look(t, c, ids[16]); d.Device != "/dev/xvde" {
		t.Errorf("attached as %s, want the place that was freed, /dev/xvde", d.Device)
	}
	ok(t, s.Check())
}

func TestDeviceNamesGoOnAfterZ(t *testing.T) {
	_, c := newServerAndClient(t, nil)
	ids := createMany(t, c, 28, func(r *ecs.CreateDiskRequest) { r.ZoneId = zoneI })
	for _, id := range ids {
		ok(t, attach(c, "i-2", id))
	}
	for n, want := range map[int]string{0: "/dev/xvdb", 24: "/dev/xvdz", 25: "/dev/xvdaa", 27: "/dev/xvdac"} {
		if got := look(t, c, ids[n]).Device; got != want {
			t.Errorf("disk %d is %s, want %s", n, got, want)
		}
	}
}

func TestDeviceThatIsAskedFor(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	id, other := create(t, c, nil), create(t, c, nil)
	at := func(r *ecs.AttachDiskRequest) { r.Device = "/dev/xvdf" }
	ok(t, attach(c, "i-1", id, at))
	if d := look(t, c, id).Device; d != "/dev/xvdf" {
		t.Errorf("attached as %s, want /dev/xvdf", d)
	}
	wantCode(t, attach(c, "i-1", other, at), 403, "InvalidDevice.InUse")
}

func TestDetachRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, func(c *ecssim.Config) { timed(c); c.Latency.API, c.Queues = nil, ecssim.Parallel })
		c := newClient(t, s)
		used, free, coming := create(t, c, nil), create(t, c, nil), create(t, c, nil)
		ok(t, attach(c, "i-1", used))
		time.Sleep(3 * time.Second)
		ok(t, attach(c, "i-1", coming))
		for _, tt := range []struct {
			name, instance, disk string
			status               int
			code                 string
		}{
			{"an unknown instance", "i-9", used, 404, "InvalidInstanceId.NotFound"},
			{"an unknown disk", "i-1", "d-9", 404, "InvalidDiskId.NotFound"},
			{"no disk", "i-1", "", 400, "MissingParameter"},
			{"a disk on another instance", "i-3", used, 403, "DependencyViolation"},
			{"a disk on none", "i-1", free, 404, "InvalidDisk.AlreadyDetached"},
			{"a disk that is being attached", "i-1", coming, 403, "IncorrectDiskStatus"},
			{"an instance that starts", "i-boot", used, 403, "IncorrectInstanceStatus"},
		} {
			t.Log(tt.name)
			wantCode(t, detach(c, tt.instance, tt.disk), tt.status, tt.code)
		}
		ok(t, detach(c, "i-1", used))
		wantCode(t, detach(c, "i-1", used), 403, "InvalidOperation.DiskDetachingFromThisEcs")
		ok(t, s.Check())
	})
}

func TestDetachedDiskHasTheCodeThatIsConfigured(t *testing.T) {
	for code, status := range map[string]int{"InvalidDisk.AlreadyDetached": 404, "DependencyViolation": 403, "IncorrectDiskStatus": 403} {
		c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Doubts.DetachedCode = code }))
		wantCode(t, detach(c, "i-1", create(t, c, nil)), status, code)
	}
}

func TestStateNamesWhatIsAttachedAndWhy(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	id := create(t, c, nil)
	ok(t, attach(c, "i-1", id))
	call := s.Calls()[1]
	st := s.State()
	a := st.Disks[0].Attachments
	if len(a) != 1 || a[0].Instance != "i-1" || a[0].Device != "/dev/xvdb" || a[0].Phase != "In_use" || a[0].Cause != "AttachDisk "+call.RequestID {
		t.Errorf("attachments %+v, want one to i-1 by request %s", a, call.RequestID)
	}
	if call.Disk != id || call.Params["InstanceId"] != "i-1" {
		t.Errorf("the ledger has %+v", call)
	}
	i := st.Instances[0]
	if i.ID != "i-1" || !slices.Equal(i.Disks, []string{id}) || i.Attaching != 0 || i.Status != "Running" || i.DiskLimit != 17 {
		t.Errorf("instance %+v", i)
	}
	var text struct{ Instances []map[string]any }
	raw, err := json.Marshal(st)
	ok(t, err)
	ok(t, json.Unmarshal(raw, &text))
	if got := text.Instances[0]["id"]; got != "i-1" {
		t.Errorf("in JSON the instance's id is %v", got)
	}
}
