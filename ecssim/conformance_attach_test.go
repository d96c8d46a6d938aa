package ecssim_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// tied lists the instances that a disk's Attachments name.
func tied(d row) []string {
	var list []string
	for _, a := range d.rows("Attachments", "Attachment") {
		list = append(list, a.text("InstanceId"))
	}
	return list
}

// attachFacts are of the pages of AttachDisk and DetachDisk, of deleting and
// resizing what is attached.
var attachFacts = []fact{
	{"AttachDisk", "the reply says accepted, and In_use comes later", needsInstance, func(t *testing.T, c *cloud) {
		id := c.ready()
		c.ok(c.ask("AttachDisk", "DiskId", id, "InstanceId", c.instance))
		if d := c.show(id); !slices.Contains([]string{"Available", "Attaching", "In_use"}, d.text("Status")) {
			t.Errorf("status %q", d.text("Status"))
		}
		d := c.await(id, "In_use")
		if d.text("InstanceId") != c.instance || !slices.Equal(tied(d), []string{c.instance}) || d.text("AttachedTime") == "" || d.text("Device") == "" {
			t.Errorf("disk %v", d)
		}
	}},
	{"AttachDisk", "the disk may look Available for a moment after the reply", needsSim, func(t *testing.T, c *cloud) {
		latency, err := ecssim.Profile("real")
		if err != nil {
			t.Fatal(err)
		}
		latency.AttachShown, latency.API["DescribeDisks"] = time.Second, 0
		latency.Spread = 0 // it is to be shown for just a second
		if err := c.sim.SetLatency(latency); err != nil {
			t.Fatal(err)
		}
		id := c.ready()
		c.ok(c.ask("AttachDisk", "DiskId", id, "InstanceId", c.instance))
		if d := c.show(id); d.text("Status") != "Available" {
			t.Errorf("at once: status %q, want Available", d.text("Status"))
		}
		time.Sleep(time.Second)
		if d := c.show(id); d.text("Status") != "Attaching" {
			t.Errorf("a second later: status %q, want Attaching", d.text("Status"))
		}
	}},
	{"AttachDisk", "an instance that does not exist is InvalidInstanceId.NotFound", needsDisks, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("AttachDisk", "DiskId", c.ready(), "InstanceId", "i-bp1aaaaaaaaaaaaaaaaa"), 404, "InvalidInstanceId.NotFound")
	}},
	{"AttachDisk", "a disk that does not exist is InvalidDiskId.NotFound", needsSim, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("AttachDisk", "DiskId", noDisk, "InstanceId", c.instance), 404, "InvalidDiskId.NotFound")
	}},
	{"AttachDisk", "a disk of another zone is ResourcesNotInSameZone", needsSim, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("AttachDisk", "DiskId", c.ready("ZoneId", zoneI), "InstanceId", c.instance), 403, "ResourcesNotInSameZone")
	}},
	{"AttachDisk", "one instance takes one at a time, a second is InvalidOperation.Conflict", needsSim, func(_ *testing.T, c *cloud) {
		one, two := c.ready(), c.ready()
		c.ok(c.ask("AttachDisk", "DiskId", one, "InstanceId", c.instance))
		c.refused(c.ask("AttachDisk", "DiskId", two, "InstanceId", c.instance), 403, "InvalidOperation.Conflict")
		c.await(one, "In_use")
		c.ok(c.ask("AttachDisk", "DiskId", two, "InstanceId", c.instance))
	}},
	{"AttachDisk", "where 32 are taken at a time, the 33rd is OperationConflict.DisksAttachingParallellyExceed", needsSim, func(t *testing.T, c *cloud) {
		if err := c.sim.SetQueues(ecssim.Parallel); err != nil {
			t.Fatal(err)
		}
		if err := c.sim.AddInstance(ecssim.Instance{ID: "i-dense", Zone: zoneH, Type: "ecs.sim.dense"}); err != nil {
			t.Fatal(err)
		}
		latency, err := ecssim.Profile("real")
		if err != nil {
			t.Fatal(err)
		}
		latency.Attach, latency.Spread = time.Hour, 0 // a disk that is Available is not Initializing any more
		if err := c.sim.SetLatency(latency); err != nil {
			t.Fatal(err)
		}
		for range 32 {
			c.ok(c.ask("AttachDisk", "DiskId", c.ready(), "InstanceId", "i-dense"))
		}
		c.refused(c.ask("AttachDisk", "DiskId", c.ready(), "InstanceId", "i-dense"), 400, "OperationConflict.DisksAttachingParallellyExceed")
	}},
	{"AttachDisk", "beyond the instance's DiskQuantity, system disk included, it is InstanceDiskLimitExceeded", needsSim, func(_ *testing.T, c *cloud) {
		for range 16 {
			c.attached()
		}
		c.refused(c.ask("AttachDisk", "DiskId", c.ready(), "InstanceId", c.instance), 403, "InstanceDiskLimitExceeded")
	}},
	{"AttachDisk", "a type that does not take the category is InvalidInstanceType.NotSupportDiskCategory", needsSim, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("AttachDisk", "DiskId", c.ready("DiskCategory", "cloud_essd_entry"), "InstanceId", c.instance), 403, "InvalidInstanceType.NotSupportDiskCategory")
	}},
	{"DetachDisk", "the disk is Detaching, names its instance still, and is Available in the end", needsInstance, func(t *testing.T, c *cloud) {
		id := c.attached()
		c.ok(c.ask("DetachDisk", "DiskId", id, "InstanceId", c.instance))
		if d := c.show(id); d.text("Status") == "Detaching" && !slices.Equal(tied(d), []string{c.instance}) {
			t.Errorf("disk %v", d)
		}
		if d := c.await(id, "Available"); len(tied(d)) != 0 || d.text("InstanceId") != "" || d.text("Device") != "" {
			t.Errorf("disk %v", d)
		}
	}},
	{"DetachDisk", "from another instance it is DependencyViolation", needsSim, func(t *testing.T, c *cloud) {
		if err := c.sim.AddInstance(ecssim.Instance{ID: "i-other", Zone: zoneH, Type: "ecs.g7.large"}); err != nil {
			t.Fatal(err)
		}
		c.refused(c.ask("DetachDisk", "DiskId", c.attached(), "InstanceId", "i-other"), 403, "DependencyViolation")
	}},
	{"DetachDisk", "where five are taken at a time, the sixth is DisksDetachingOnEcsExceeded", needsSim, func(t *testing.T, c *cloud) {
		if err := c.sim.SetQueues(ecssim.Parallel); err != nil {
			t.Fatal(err)
		}
		var all []string
		for range 6 {
			all = append(all, c.attached())
		}
		latency, err := ecssim.Profile("zero")
		if err != nil {
			t.Fatal(err)
		}
		latency.Detach = time.Minute
		if err := c.sim.SetLatency(latency); err != nil {
			t.Fatal(err)
		}
		for _, id := range all[:5] {
			c.ok(c.ask("DetachDisk", "DiskId", id, "InstanceId", c.instance))
		}
		c.refused(c.ask("DetachDisk", "DiskId", all[5], "InstanceId", c.instance), 400, "DisksDetachingOnEcsExceeded")
	}},
	{"DetachDisk", "a disk that does not exist is InvalidDiskId.NotFound", needsSim, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("DetachDisk", "DiskId", noDisk, "InstanceId", c.instance), 404, "InvalidDiskId.NotFound")
	}},
	{"DeleteDisk", "an attached disk is refused with IncorrectDiskStatus or DiskStillAttached", needsInstance, func(t *testing.T, c *cloud) {
		id := c.attached()
		if a := c.ask("DeleteDisk", "DiskId", id); a.status != 403 || a.code() != "IncorrectDiskStatus" && a.code() != "DiskStillAttached" {
			t.Errorf("got %d %s", a.status, a.text)
		}
	}},
	{"ResizeDisk", "online grows an attached disk of a running instance", needsInstance, func(t *testing.T, c *cloud) {
		id := c.attached()
		c.ok(c.ask("ResizeDisk", "DiskId", id, "NewSize", "21", "Type", "online"))
		if d := c.show(id); d["Size"] != float64(21) || d.text("Status") != "In_use" {
			t.Errorf("disk %v", d)
		}
	}},
	{"ResizeDisk", "online on a stopped instance is InvalidInstanceStatus.NotRunning", needsSim, func(t *testing.T, c *cloud) {
		id, stopped := c.attached(), "Stopped"
		if err := c.sim.SetInstance(c.instance, ecssim.InstanceChange{Status: &stopped}); err != nil {
			t.Fatal(err)
		}
		c.refused(c.ask("ResizeDisk", "DiskId", id, "NewSize", "21", "Type", "online"), 403, "InvalidInstanceStatus.NotRunning")
	}},
}

// snapshotFacts are of the pages on snapshots.
var snapshotFacts = []fact{
	{"CreateSnapshot", "a disk that was never attached is refused but for cloud_essd and cloud_auto", needsSim, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("CreateSnapshot", "DiskId", c.ready("DiskCategory", "cloud_efficiency")), 403, "IncorrectDiskStatus.NeverAttached")
	}},
	{"CreateSnapshot", "a name that begins with auto is InvalidSnapshotName.Malformed", needsSim, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("CreateSnapshot", "DiskId", c.attached(), "SnapshotName", "auto1"), 400, "InvalidSnapshotName.Malformed")
	}},
	{"CreateSnapshot", "a snapshot of an ESSD is Available before it is accomplished, with its source's size as a string", needsSim, func(t *testing.T, c *cloud) {
		disk := c.attached()
		id, _ := c.ok(c.ask("CreateSnapshot", "DiskId", disk)).body["SnapshotId"].(string)
		show := func() row {
			return c.ok(c.ask("DescribeSnapshots", "SnapshotIds", idList(id))).rows("Snapshots", "Snapshot")[0]
		}
		if n := show(); n.text("Status") != "progressing" || n.text("SourceDiskSize") != "20" || n.text("SourceDiskId") != disk || n.text("CreationTime") != "" {
			t.Errorf("at once: %v", n)
		}
		time.Sleep(15 * time.Second)
		if n := show(); n["Available"] != true || n.text("Status") != "progressing" || n.text("CreationTime") == "" {
			t.Errorf("soon: %v", n)
		}
		time.Sleep(10 * time.Minute)
		if n := show(); n.text("Status") != "accomplished" || n.text("Progress") != "100%" {
			t.Errorf("in the end: %v", n)
		}
		made := c.ready("SnapshotId", id, "Size", "40")
		if d := c.show(made); d.text("SourceSnapshotId") != id || d["Size"] != float64(40) {
			t.Errorf("a disk of it: %v", d)
		}
	}},
	{"DescribeSnapshots", "101 IDs are InvalidSnapshotIds.Malformed", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("DescribeSnapshots", "SnapshotIds", idList(repeated(101, "s-bp1aaaaaaaaaaaaaaaaa")...)), 403, "InvalidSnapshotIds.Malformed")
	}},
	{"CreateSnapshotGroup", "17 disks are refused", needsSim, func(t *testing.T, c *cloud) {
		var pairs []string
		for i := range 17 {
			pairs = append(pairs, "DiskId."+strconv.Itoa(i+1), noDisk)
		}
		if a := c.ask("CreateSnapshotGroup", pairs...); a.status < 400 {
			t.Errorf("got %d %s", a.status, a.text)
		}
	}},
}

// shopFacts are of the pages that say what there is to have.
var shopFacts = []fact{
	{"DescribeAvailableResource", "what a zone sells is there, with its least and greatest size", needsNothing, func(t *testing.T, c *cloud) {
		zones := c.ok(c.ask("DescribeAvailableResource", "DestinationResource", "DataDisk", "ResourceType", "disk")).rows("AvailableZones", "AvailableZone")
		if len(zones) == 0 {
			t.Fatal("no zone")
		}
		resource := zones[0].rows("AvailableResources", "AvailableResource")
		if len(resource) == 0 || resource[0].text("Type") != "DataDisk" {
			t.Fatalf("zone %v", zones[0])
		}
		for _, r := range resource[0].rows("SupportedResources", "SupportedResource") {
			if low, _ := r["Min"].(float64); r.text("Value") == "" || r.text("Status") == "" || r.text("Unit") != "GiB" || low < 1 {
				t.Errorf("resource %v", r)
			}
		}
	}},
	{"DescribeAvailableResource", "what is sold out says so, by the table that CreateDisk goes by", needsSim, func(t *testing.T, c *cloud) {
		if err := c.sim.SetStock(c.zone, "cloud_essd", 0); err != nil {
			t.Fatal(err)
		}
		zones := c.ok(c.ask("DescribeAvailableResource", "DestinationResource", "DataDisk", "ResourceType", "disk", "ZoneId", c.zone)).rows("AvailableZones", "AvailableZone")
		for _, r := range zones[0].rows("AvailableResources", "AvailableResource")[0].rows("SupportedResources", "SupportedResource") {
			if want := map[bool]string{true: "SoldOut", false: "Available"}[r.text("Value") == "cloud_essd"]; r.text("Status") != want {
				t.Errorf("%s is %s, want %s", r.text("Value"), r.text("Status"), want)
			}
		}
	}},
	{"DescribeZones", "a zone has the categories of its disks, some of them under names in lower case", needsNothing, func(t *testing.T, c *cloud) {
		zones := c.ok(c.ask("DescribeZones")).rows("Zones", "Zone")
		if len(zones) == 0 {
			t.Fatal("no zone")
		}
		if wrap, _ := zones[0]["AvailableDiskCategories"].(map[string]any); wrap["DiskCategories"] == nil {
			t.Errorf("zone %v", zones[0])
		}
		if info := zones[0].rows("AvailableResources", "ResourcesInfo"); len(info) == 0 || info[0]["DataDiskCategories"] == nil {
			t.Errorf("zone %v", zones[0])
		} else if wrap, _ := info[0]["DataDiskCategories"].(map[string]any); wrap["supportedDataDiskCategory"] == nil {
			t.Errorf("resources %v", info[0])
		}
	}},
	{"DescribeRegions", "the region is there with its endpoint", needsNothing, func(t *testing.T, c *cloud) {
		list := c.ok(c.ask("DescribeRegions")).rows("Regions", "Region")
		i := slices.IndexFunc(list, func(r row) bool { return r.text("RegionId") == c.region })
		if i < 0 || list[i].text("RegionEndpoint") == "" {
			t.Errorf("regions %v", list)
		}
	}},
	{"DescribeInstanceTypes", "a type has its number of disks and whether it needs NVMe", needsNothing, func(t *testing.T, c *cloud) {
		list := c.ok(c.ask("DescribeInstanceTypes", "InstanceTypes.1", "ecs.g7.large")).rows("InstanceTypes", "InstanceType")
		if len(list) != 1 {
			t.Fatalf("types %v", list)
		}
		if n, _ := list[0]["DiskQuantity"].(float64); n < 2 || list[0].text("NvmeSupport") == "" || list[0].text("InstanceTypeFamily") != "ecs.g7" {
			t.Errorf("type %v", list[0])
		}
	}},
	{"DescribeInstances", "101 IDs are refused", needsNothing, func(t *testing.T, c *cloud) {
		if a := c.ask("DescribeInstances", "InstanceIds", idList(repeated(101, "i-bp1aaaaaaaaaaaaaaaaa")...)); a.status < 400 {
			t.Errorf("got %d %s", a.status, a.text)
		}
	}},
}
