package ecssim_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const noDisk = "d-bp1aaaaaaaaaaaaaaaaa"

// refusal is a request for a disk and what comes of it.
type refusal struct {
	says   string
	pairs  []string
	status int
	code   string
}

// createRefusals are of CreateDisk's table of errors. The pairs are added to
// an ordinary request for a cloud_essd of 20 GiB; an empty value takes a
// parameter away.
var createRefusals = []refusal{
	{"neither Size nor SnapshotId is MissingParameter", []string{"Size", ""}, 400, "MissingParameter"},
	{"no ZoneId is MissingParameter", []string{"ZoneId", ""}, 400, "MissingParameter"},
	{"a zone that does not exist is InvalidZoneId.NotFound", []string{"ZoneId", "cn-hangzhou-zz"}, 404, "InvalidZoneId.NotFound"},
	{"a category that does not exist is InvalidDiskCategory.ValueNotSupported", []string{"DiskCategory", "cloud_none"}, 400, "InvalidDiskCategory.ValueNotSupported"},
	{"a size that is no number is InvalidSize.ValueNotSupported", []string{"Size", "20Gi"}, 400, "InvalidSize.ValueNotSupported"},
	{"a size below the category's is InvalidDiskSize.NotSupported", []string{"DiskCategory", "cloud_efficiency", "Size", "19"}, 400, "InvalidDiskSize.NotSupported"},
	{"a level that does not exist is InvalidPerformanceLevel.Malformed", []string{"PerformanceLevel", "PL4"}, 400, "InvalidPerformanceLevel.Malformed"},
	{"PL2 below 461 GiB is OperationDenied.PerformanceLevelNotMatch", []string{"PerformanceLevel", "PL2", "Size", "460"}, 403, "OperationDenied.PerformanceLevelNotMatch"},
	{"PL3 below 1261 GiB is OperationDenied.PerformanceLevelNotMatch", []string{"PerformanceLevel", "PL3", "Size", "1260"}, 403, "OperationDenied.PerformanceLevelNotMatch"},
	{"a KMS key without encryption is InvalidEncrypted.NotMatchKmsKeyId", []string{"KMSKeyId", "key-1"}, 400, "InvalidEncrypted.NotMatchKmsKeyId"},
	{"a name that begins with a digit is InvalidDiskName.Malformed", []string{"DiskName", "1disk"}, 400, "InvalidDiskName.Malformed"},
	{"a description of 257 characters is InvalidDescription.Malformed", []string{"Description", strings.Repeat("x", 257)}, 400, "InvalidDescription.Malformed"},
	{"a tag twice is Duplicate.TagKey", []string{"Tag.1.Key", "a", "Tag.2.Key", "a"}, 400, "Duplicate.TagKey"},
	{"a tag key that begins with acs: is InvalidTagKey.Malformed", []string{"Tag.1.Key", "acs:a"}, 400, "InvalidTagKey.Malformed"},
	{"a tag key of 129 characters is InvalidTagKey.Malformed", []string{"Tag.1.Key", strings.Repeat("k", 129)}, 400, "InvalidTagKey.Malformed"},
	{"a tag value with http:// is InvalidTagValue.Malformed", []string{"Tag.1.Key", "a", "Tag.1.Value", "http://a"}, 400, "InvalidTagValue.Malformed"},
	{"21 tags are QuotaExceed.Tags", manyTags(21), 403, "QuotaExceed.Tags"},
	{"provisioned IOPS of an ESSD are ProvisionedIopsForDiskCategoryUnsupported", []string{"ProvisionedIops", "100"}, 400, "ProvisionedIopsForDiskCategoryUnsupported"},
	{"provisioned IOPS below 4 GiB are InvalidProvisionedIops.LimitExceed", []string{"DiskCategory", "cloud_auto", "Size", "3", "ProvisionedIops", "100"}, 400, "InvalidProvisionedIops.LimitExceed"},
	{"bursting up to 3 GiB is InvalidBurstingEnabled.DiskSizeTooSmall", []string{"DiskCategory", "cloud_auto", "Size", "3", "BurstingEnabled", "true"}, 400, "InvalidBurstingEnabled.DiskSizeTooSmall"},
	{"bursting of an ESSD is BurstingEnabledForDiskCategoryUnsupported", []string{"BurstingEnabled", "true"}, 400, "BurstingEnabledForDiskCategoryUnsupported"},
	{"a zone for a regional category is InvalidZoneId.DiskCategoryUnsupported", []string{"DiskCategory", "cloud_regional_disk_auto"}, 400, "InvalidZoneId.DiskCategoryUnsupported"},
	{"multi-attach of a category that can't is InvalidParameter.DiskCategoryAndMultiAttachNotMatch", []string{"DiskCategory", "cloud_efficiency", "MultiAttach", "Enabled"}, 403, "InvalidParameter.DiskCategoryAndMultiAttachNotMatch"},
	{"a snapshot that does not exist is InvalidSnapshotId.NotFound", []string{"SnapshotId", "s-bp1aaaaaaaaaaaaaaaaa"}, 404, "InvalidSnapshotId.NotFound"},
	{"a client token of 65 characters is refused", []string{"ClientToken", strings.Repeat("t", 65)}, 400, "InvalidParameter"},
}

// createRefused makes facts of the refusals. What is wrong with a request
// costs nothing on the real ECS either, which refuses it.
func createRefused() []fact {
	var list []fact
	for _, r := range createRefusals {
		list = append(list, fact{"CreateDisk", r.says, needsDisks, func(_ *testing.T, c *cloud) {
			c.refused(c.ask("CreateDisk", append([]string{"ZoneId", c.zone, "DiskCategory", "cloud_essd", "Size", "20"}, r.pairs...)...), r.status, r.code)
		}})
	}
	return list
}

// diskFacts are of the pages of CreateDisk, DescribeDisks, DeleteDisk,
// ResizeDisk, ModifyDiskSpec, ModifyDiskAttribute and DescribeTasks.
var diskFacts = append(createRefused(), []fact{
	{"CreateDisk", "it answers with the disk's ID before the disk is Available: d- and 20 letters and digits", needsDisks, func(t *testing.T, c *cloud) {
		id := c.create()
		if !regexp.MustCompile(`^d-[a-z0-9]{20}$`).MatchString(id) {
			t.Errorf("ID %q", id)
		}
		if d := c.show(id); d != nil && d.text("Status") != "Creating" && d.text("Status") != "Available" {
			t.Errorf("status %q", d.text("Status"))
		}
		c.await(id, "Available")
	}},
	{"CreateDisk", "the same client token with the same parameters is the same disk", needsDisks, func(t *testing.T, c *cloud) {
		token := c.fresh()
		one := c.ready("ClientToken", token)
		if two := c.create("ClientToken", token); two != one {
			t.Errorf("disks %s and %s", one, two)
		}
	}},
	{"CreateDisk", "the same client token with other parameters is IdempotentParameterMismatch", needsDisks, func(_ *testing.T, c *cloud) {
		token := c.fresh()
		c.ready("ClientToken", token)
		c.refused(c.ask("CreateDisk", "ZoneId", c.zone, "DiskCategory", "cloud_essd", "Size", "21", "ClientToken", token), 400, "IdempotentParameterMismatch")
	}},
	{"CreateDisk", "a client token outlives its disk", needsDisks, func(t *testing.T, c *cloud) {
		token := c.fresh()
		id := c.ready("ClientToken", token)
		c.ok(c.ask("DeleteDisk", "DiskId", id))
		if again := c.create("ClientToken", token); again != id || c.show(id) != nil {
			t.Errorf("disk %s, want the ID of %s, which is gone", again, id)
		}
	}},
	{"CreateDisk", "tags come with the disk and cost no call", needsDisks, func(t *testing.T, c *cloud) {
		id := c.ready("Tag.1.Key", "a", "Tag.1.Value", "1", "Tag.2.Key", "b")
		tags := map[string]string{}
		for _, tag := range c.show(id).rows("Tags", "Tag") {
			tags[tag.text("TagKey")] = tag.text("TagValue")
		}
		if v, ok := tags["b"]; tags["a"] != "1" || !ok || v != "" {
			t.Errorf("tags %v", tags)
		}
	}},
	{"CreateDisk", "a category that is sold out in a zone is refused there and made elsewhere", needsSim, func(t *testing.T, c *cloud) {
		for code, status := range map[string]int{"InvalidDataDiskCategory.NotSupported": 400, "OperationDenied.NoStock": 403, "Zone.NotOnSale": 403} {
			if err := c.sim.SellOut(c.zone, "cloud_essd", code); err != nil {
				t.Fatal(err)
			}
			c.refused(c.ask("CreateDisk", "ZoneId", c.zone, "DiskCategory", "cloud_essd", "Size", "20"), status, code)
			c.ok(c.ask("CreateDisk", "ZoneId", zoneI, "DiskCategory", "cloud_essd", "Size", "20"))
		}
	}},
	{"CreateDisk", "a regional disk has no zone", needsSim, func(t *testing.T, c *cloud) {
		a := c.ok(c.ask("CreateDisk", "DiskCategory", "cloud_regional_disk_auto", "Size", "20"))
		id, _ := a.body["DiskId"].(string)
		if d := c.await(id, "Available"); d.text("ZoneId") != "" {
			t.Errorf("zone %q", d.text("ZoneId"))
		}
	}},
	{"DescribeDisks", "an unknown ID is left out of the reply", needsNothing, func(t *testing.T, c *cloud) {
		if c.show(noDisk) != nil {
			t.Error("it is shown")
		}
	}},
	{"DescribeDisks", "an empty JSON array of IDs finds nothing", needsDisks, func(t *testing.T, c *cloud) {
		c.ready()
		if n := len(c.ok(c.ask("DescribeDisks", "DiskIds", "[]")).rows("Disks", "Disk")); n != 0 {
			t.Errorf("%d disks", n)
		}
	}},
	{"DescribeDisks", "101 IDs are InvalidDiskIds.Malformed", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("DescribeDisks", "DiskIds", idList(repeated(101, noDisk)...)), 403, "InvalidDiskIds.Malformed")
	}},
	{"DescribeDisks", "IDs that are no JSON are InvalidParameter.DiskIds", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("DescribeDisks", "DiskIds", "d-1,d-2"), 400, "InvalidParameter.DiskIds")
	}},
	{"DescribeDisks", "IDs of 11 disks without a page size bring 10", needsSim, func(t *testing.T, c *cloud) {
		var all []string
		for range 11 {
			all = append(all, c.create())
		}
		time.Sleep(time.Minute)
		for size, want := range map[string]int{"": 10, "100": 11} {
			if n := len(c.ok(c.ask("DescribeDisks", "DiskIds", idList(all...), "PageSize", size)).rows("Disks", "Disk")); n != want {
				t.Errorf("PageSize %q: %d disks, want %d", size, n, want)
			}
		}
	}},
	{"DescribeDisks", "MaxResults below 10 are 10, and NextToken leads on", needsSim, func(t *testing.T, c *cloud) {
		for range 12 {
			c.create()
		}
		time.Sleep(time.Minute)
		a := c.ok(c.ask("DescribeDisks", "MaxResults", "5", "PageSize", "1"))
		next, _ := a.body["NextToken"].(string)
		if n := len(a.rows("Disks", "Disk")); n != 10 || next == "" {
			t.Errorf("%d disks and NextToken %q, want 10 and one", n, next)
		}
		a = c.ok(c.ask("DescribeDisks", "NextToken", next))
		if n := len(a.rows("Disks", "Disk")); n != 2 || a.body["NextToken"] != "" {
			t.Errorf("%d disks and NextToken %q, want 2 and none", n, a.body["NextToken"])
		}
	}},
	{"DescribeDisks", "PageSize above 100 is refused", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("DescribeDisks", "PageSize", "101"), 400, "InvalidParameter")
	}},
	{"DescribeDisks", "a status that does not exist is InvalidStatus.ValueNotSupported", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("DescribeDisks", "Status", "Gone"), 400, "InvalidStatus.ValueNotSupported")
	}},
	{"DescribeDisks", "a category that does not exist is InvalidCategory.ValueNotSupported", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("DescribeDisks", "Category", "cloud_none"), 400, "InvalidCategory.ValueNotSupported")
	}},
	{"DescribeDisks", "a filter that does not exist is InvalidFilterKey.NotFound", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("DescribeDisks", "Filter.1.Key", "Colour", "Filter.1.Value", "red"), 404, "InvalidFilterKey.NotFound")
	}},
	{"DescribeDisks", "a dry run ends in DryRunOperation", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("DescribeDisks", "DryRun", "true"), 400, "DryRunOperation")
	}},
	{"DescribeDisks", "no RegionId is MissingParamter.RegionId, as ECS spells it", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.askOf("2014-05-26", "DescribeDisks"), 400, "MissingParamter.RegionId")
	}},
	{"DescribeDisks", "a disk has its serial number, its times and its defaults", needsDisks, func(t *testing.T, c *cloud) {
		id := c.ready()
		d := c.show(id)
		if d.text("SerialNumber") != strings.TrimPrefix(id, "d-") || d.text("MultiAttach") != "Disabled" || d.text("Type") != "data" ||
			d.text("PerformanceLevel") != "PL1" || d.text("DiskChargeType") != "PostPaid" || d["Size"] != float64(20) || d["Portable"] != true || d.text("InstanceId") != "" {
			t.Errorf("disk %v", d)
		}
		if _, err := time.Parse("2006-01-02T15:04:05Z", d.text("CreationTime")); err != nil {
			t.Error(err)
		}
		if _, err := time.Parse("2006-01-02T15:04Z", d.text("ExpiredTime")); err != nil {
			t.Error(err)
		}
	}},
	{"DescribeDisks", "filters are joined by AND", needsDisks, func(t *testing.T, c *cloud) {
		id := c.ready("Tag.1.Key", "conformance-and", "Tag.1.Value", "1")
		find := func(pairs ...string) int {
			return len(c.ok(c.ask("DescribeDisks", append([]string{"DiskIds", idList(id), "Tag.1.Key", "conformance-and"}, pairs...)...)).rows("Disks", "Disk"))
		}
		if find("ZoneId", c.zone, "Status", "Available", "Category", "cloud_essd", "DiskType", "data") != 1 || find("Status", "In_use") != 0 || find("Tag.1.Value", "2") != 0 {
			t.Error("the filters find what they must not, or don't find what they must")
		}
	}},
	{"DeleteDisk", "no read shows the disk when the reply is there", needsDisks, func(t *testing.T, c *cloud) {
		id := c.ready()
		c.ok(c.ask("DeleteDisk", "DiskId", id))
		if c.show(id) != nil {
			t.Error("it is shown")
		}
	}},
	{"DeleteDisk", "a disk that has just been made is IncorrectDiskStatus.Initializing or not Available yet", needsSim, func(t *testing.T, c *cloud) {
		id := c.create()
		if a := c.ask("DeleteDisk", "DiskId", id); a.status != 403 || !strings.HasPrefix(a.code(), "IncorrectDiskStatus") {
			t.Errorf("got %d %s", a.status, a.text)
		}
	}},
	{"ResizeDisk", "the new size shows at once", needsDisks, func(t *testing.T, c *cloud) {
		id := c.ready()
		c.ok(c.ask("ResizeDisk", "DiskId", id, "NewSize", "21"))
		if d := c.show(id); d["Size"] != float64(21) {
			t.Errorf("size %v", d["Size"])
		}
	}},
	{"ResizeDisk", "a size that is not above the present one is InvalidDiskSize", needsDisks, func(_ *testing.T, c *cloud) {
		id := c.ready("Size", "40")
		c.refused(c.ask("ResizeDisk", "DiskId", id, "NewSize", "40"), 403, "InvalidDiskSize")
		c.refused(c.ask("ResizeDisk", "DiskId", id, "NewSize", "30"), 403, "InvalidDiskSize")
	}},
	{"ResizeDisk", "a disk that does not exist is InvalidDiskId.NotFound", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("ResizeDisk", "DiskId", noDisk, "NewSize", "40"), 404, "InvalidDiskId.NotFound")
	}},
	{"ModifyDiskSpec", "a change of category is a task that DescribeTasks shows, and the disk is Modifying", needsSim, func(t *testing.T, c *cloud) {
		id := c.ready()
		task, _ := c.ok(c.ask("ModifyDiskSpec", "DiskId", id, "DiskCategory", "cloud_auto")).body["TaskId"].(string)
		if d := c.show(id); d.text("Status") != "Modifying" {
			t.Errorf("status %q", d.text("Status"))
		}
		show := func() row { return c.ok(c.ask("DescribeTasks", "TaskIds", task)).rows("TaskSet", "Task")[0] }
		if got := show(); got.text("TaskStatus") != "Processing" || got.text("TaskAction") != "ModifyDiskSpec" {
			t.Errorf("task %v", got)
		}
		if d := c.await(id, "Available"); d.text("Category") != "cloud_auto" || show().text("TaskStatus") != "Finished" {
			t.Errorf("disk %v, task %v", d, show())
		}
	}},
	{"ModifyDiskSpec", "a dry run ends in DryRunOperation, or in what is wrong", needsDisks, func(_ *testing.T, c *cloud) {
		id := c.ready()
		c.refused(c.ask("ModifyDiskSpec", "DiskId", id, "DiskCategory", "cloud_auto", "DryRun", "true"), 400, "DryRunOperation")
		c.refused(c.ask("ModifyDiskSpec", "DiskId", id, "DiskCategory", "cloud_essd", "PerformanceLevel", "PL1", "DryRun", "true"), 403, "NoChangeInDiskCategoryAndPerformanceLevel")
	}},
	{"ModifyDiskAttribute", "100 disks take one call", needsSim, func(t *testing.T, c *cloud) {
		var pairs []string
		for i := range 100 {
			pairs = append(pairs, "DiskIds."+strconv.Itoa(i+1), c.create())
		}
		time.Sleep(time.Minute)
		c.ok(c.ask("ModifyDiskAttribute", append(pairs, "Description", "all of them")...))
		for _, d := range c.ok(c.ask("DescribeDisks", "PageSize", "100")).rows("Disks", "Disk") {
			if d.text("Description") != "all of them" {
				t.Fatalf("disk %v", d)
			}
		}
	}},
	{"ModifyDiskAttribute", "nothing to change is refused", needsDisks, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("ModifyDiskAttribute", "DiskId", c.ready()), 400, "NoAttributeToModify")
	}},
}...)

// fresh returns a client token that nobody has used.
func (c *cloud) fresh() string { return "conformance-" + strconv.FormatInt(time.Now().UnixNano(), 36) }
