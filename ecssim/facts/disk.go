package facts

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// IDs of what does not exist.
const (
	noDisk     = "d-bp1aaaaaaaaaaaaaaaaa"
	noSnapshot = "s-bp1aaaaaaaaaaaaaaaaa"
	noInstance = "i-bp1aaaaaaaaaaaaaaaaa"
)

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
func createRefusals() []refusal {
	return []refusal{
		{"neither Size nor SnapshotId is MissingParameter", []string{"Size", ""}, 400, "MissingParameter"},
		{"no ZoneId is MissingParameter", []string{"ZoneId", ""}, 400, "MissingParameter"},
		{"a zone that does not exist is InvalidZoneId.NotFound", []string{"ZoneId", "cn-hangzhou-zz"}, 404, "InvalidZoneId.NotFound"},
		{"a category that does not exist is InvalidDiskCategory.ValueNotSupported", []string{"DiskCategory", "cloud_none"}, 400, "InvalidDiskCategory.ValueNotSupported"},
		{"a size that is not a number is InvalidSize.ValueNotSupported", []string{"Size", "20Gi"}, 400, "InvalidSize.ValueNotSupported"},
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
		{"21 tags, those of the check among them, are QuotaExceed.Tags", manyTags(19), 403, "QuotaExceed.Tags"},
		{"provisioned IOPS of an ESSD are ProvisionedIopsForDiskCategoryUnsupported", []string{"ProvisionedIops", "100"}, 400, "ProvisionedIopsForDiskCategoryUnsupported"},
		{"provisioned IOPS below 4 GiB are InvalidProvisionedIops.LimitExceed", []string{"DiskCategory", "cloud_auto", "Size", "3", "ProvisionedIops", "100"}, 400, "InvalidProvisionedIops.LimitExceed"},
		{"bursting up to 3 GiB is InvalidBurstingEnabled.DiskSizeTooSmall", []string{"DiskCategory", "cloud_auto", "Size", "3", "BurstingEnabled", "true"}, 400, "InvalidBurstingEnabled.DiskSizeTooSmall"},
		{"bursting of an ESSD is BurstingEnabledForDiskCategoryUnsupported", []string{"BurstingEnabled", "true"}, 400, "BurstingEnabledForDiskCategoryUnsupported"},
		{"a zone for a regional category is InvalidZoneId.DiskCategoryUnsupported", []string{"DiskCategory", "cloud_regional_disk_auto"}, 400, "InvalidZoneId.DiskCategoryUnsupported"},
		{"multi-attach of a category that can't is InvalidParameter.DiskCategoryAndMultiAttachNotMatch", []string{"DiskCategory", "cloud_efficiency", "MultiAttach", "Enabled"}, 403, "InvalidParameter.DiskCategoryAndMultiAttachNotMatch"},
		{"a snapshot that does not exist is InvalidSnapshotId.NotFound", []string{"SnapshotId", "s-bp1aaaaaaaaaaaaaaaaa"}, 404, "InvalidSnapshotId.NotFound"},
		{"a client token of 65 characters is refused", []string{"ClientToken", strings.Repeat("t", 65)}, 400, "InvalidParameter"},
	}
}

// createRefused makes facts of the refusals. What is wrong with a request
// costs nothing on the real ECS either, which refuses it.
func createRefused() []Fact {
	var list []Fact
	for _, r := range createRefusals() {
		f := one("CreateDisk", r.says, table, Disks, func(p *Probe) {
			p.refused(p.ask("CreateDisk", p.ordinary(r.pairs...)...), r.status, r.code)
		})
		f.quick = true
		list = append(list, f)
	}
	return list
}

// ordinary are the parameters of a cloud_essd of 20 GiB, and others.
func (p *Probe) ordinary(pairs ...string) []string {
	return append([]string{"ZoneId", p.Zone, "DiskCategory", "cloud_essd", "Size", "20"}, pairs...)
}

// diskFacts are of CreateDisk, DescribeDisks, DeleteDisk, ResizeDisk,
// ModifyDiskSpec, ModifyDiskAttribute and DescribeTasks.
func diskFacts() []Fact {
	return append(createRefused(), []Fact{
		one("CreateDisk", "it answers with the disk's ID before the disk is Available: d- and 20 letters and digits", page, Disks, func(p *Probe) {
			id := p.create()
			if !regexp.MustCompile(`^d-[a-z0-9]{20}$`).MatchString(id) {
				p.differs("ID %q", id)
			}
			if d := p.show(id); d != nil && d.text("Status") != "Creating" && d.text("Status") != "Available" {
				p.differs("status %q", d.text("Status"))
			}
			p.await(id, "Available")
		}),
		one("CreateDisk", "the same client token with the same parameters is the same disk", page, Disks, func(p *Probe) {
			token := token()
			one := p.ready("ClientToken", token)
			if two := p.create("ClientToken", token); two != one {
				p.differs("disks %s and %s", one, two)
			}
		}),
		one("CreateDisk", "the same client token with other parameters is IdempotentParameterMismatch", page, Disks, func(p *Probe) {
			token := token()
			p.ready("ClientToken", token)
			p.refused(p.ask("CreateDisk", p.ordinary("Size", "21", "ClientToken", token)...), 400, "IdempotentParameterMismatch")
		}),
		one("CreateDisk", "a client token outlives its disk", page, Disks, func(p *Probe) {
			token := token()
			id := p.ready("ClientToken", token)
			p.delete(id)
			if again := p.create("ClientToken", token); again != id || p.show(id) != nil {
				p.differs("disk %s, want the ID of %s, which is gone", again, id)
			}
		}),
		one("CreateDisk", "tags come with the disk and cost no call", page, Disks, func(p *Probe) {
			id := p.ready("Tag.1.Key", "a", "Tag.1.Value", "1", "Tag.2.Key", "b")
			tags := p.show(id).tags()
			if v, ok := tags["b"]; tags["a"] != "1" || !ok || v != "" {
				p.differs("tags %v", tags)
			}
		}),
		one("CreateDisk", "a category that is sold out in a zone is refused there and accepted elsewhere", table, Simulator, func(p *Probe) {
			for code, status := range map[string]int{"InvalidDataDiskCategory.NotSupported": 400, "OperationDenied.NoStock": 403, "Zone.NotOnSale": 403} {
				p.must(p.Sim.SellOut(p.Zone, "cloud_essd", code))
				p.refused(p.ask("CreateDisk", p.ordinary()...), status, code)
				p.ok(p.ask("CreateDisk", p.ordinary("ZoneId", p.otherZone())...))
			}
		}),
		one("CreateDisk", "a regional disk has no zone", page, Simulator, func(p *Probe) {
			id := p.create("ZoneId", "", "DiskCategory", "cloud_regional_disk_auto")
			if d := p.await(id, "Available"); d.text("ZoneId") != "" {
				p.differs("zone %q", d.text("ZoneId"))
			}
		}),
		several("CreateDisk", "a size below that of its snapshot", "API page: the disk has the size of the snapshot; its error codes have InvalidDiskSize.TooSmall", Instance, lessThanSnapshot,
			way("the disk has the size of the snapshot", "refuse-less-than-snapshot", "false"),
			way(refusedWith("InvalidDiskSize.TooSmall", 403), "refuse-less-than-snapshot", "true")),
		several("CreateDisk", "the client token of a refused call, with parameters that are right", "free: alibaba-cloud-csi-driver relies on it; bound: page on idempotence", Disks, func(p *Probe) string {
			token := token()
			p.ask("CreateDisk", p.ordinary("DiskCategory", "cloud_none", "ClientToken", token)...)
			return p.had("CreateDisk", p.ask("CreateDisk", p.ordinary("ClientToken", token)...), "IdempotentParameterMismatch").outcome()
		},
			way(accepted, "bind-failed-tokens", "false"),
			way(refusedWith("IdempotentParameterMismatch", 400), "bind-failed-tokens", "true")),
		several("CreateDisk", "a category that is sold out", "error codes of CreateDisk and ModifyDiskSpec, and an ACK FAQ", Simulator, func(p *Probe) string {
			p.must(p.Sim.SetStock(p.Zone, "cloud_essd", 0))
			return p.ask("CreateDisk", p.ordinary()...).outcome()
		}, waysByCode("sold-out-code", ecssim.SoldOutCodes, func(code string) int {
			if code == "InvalidDataDiskCategory.NotSupported" {
				return 400
			}
			return 403
		})...),
		several("DescribeDisks", "the names of a disk's tags", "TagKey and TagValue: API page; Key and Value: read by alibaba-cloud-csi-driver; the SDK has all four", Disks, func(p *Probe) string {
			tags := p.show(p.ready()).rows("Tags", "Tag")
			if len(tags) == 0 {
				p.stop("the disk has no tags")
			}
			names := []string{}
			for _, name := range []string{"TagKey", "TagValue", "Key", "Value"} {
				if _, has := tags[0][name]; has {
					names = append(names, name)
				}
			}
			return strings.Join(names, ", ")
		},
			way("TagKey, TagValue, Key, Value", "tags-as", "both"),
			way("TagKey, TagValue", "tags-as", "TagKey"),
			way("Key, Value", "tags-as", "Key")),
		one("DescribeDisks", "an unknown ID is left out of the reply", page, Nothing, func(p *Probe) {
			if p.show(noDisk) != nil {
				p.differs("it is shown")
			}
		}),
		one("DescribeDisks", "an empty JSON array of IDs finds nothing", page, Disks, func(p *Probe) {
			p.ready()
			if n := len(p.ok(p.ask("DescribeDisks", "DiskIds", "[]")).rows("Disks", "Disk")); n != 0 {
				p.differs("%d disks", n)
			}
		}),
		one("DescribeDisks", "101 IDs are InvalidDiskIds.Malformed", table, Nothing, func(p *Probe) {
			p.refused(p.ask("DescribeDisks", "DiskIds", idList(repeated(101, noDisk)...)), 403, "InvalidDiskIds.Malformed")
		}),
		one("DescribeDisks", "IDs that are not JSON are InvalidParameter.DiskIds", page, Nothing, func(p *Probe) {
			p.refused(p.ask("DescribeDisks", "DiskIds", "d-1,d-2"), 400, "InvalidParameter.DiskIds")
		}),
		one("DescribeDisks", "IDs of 11 disks without a page size return 10", page, Simulator, func(p *Probe) {
			var all []string
			for range 11 {
				all = append(all, p.create())
			}
			p.sleep(time.Minute)
			for size, want := range map[string]int{"": 10, "100": 11} {
				if n := len(p.ok(p.ask("DescribeDisks", "DiskIds", idList(all...), "PageSize", size)).rows("Disks", "Disk")); n != want {
					p.differs("PageSize %q: %d disks, want %d", size, n, want)
				}
			}
		}),
		one("DescribeDisks", "MaxResults below 10 are taken as 10, and NextToken leads to the next page", page, Simulator, func(p *Probe) {
			for range 12 {
				p.create()
			}
			p.sleep(time.Minute)
			a := p.ok(p.ask("DescribeDisks", "DiskType", "data", "MaxResults", "5", "PageSize", "1"))
			next := a.body.text("NextToken")
			if n := len(a.rows("Disks", "Disk")); n != 10 || next == "" {
				p.differs("%d disks and NextToken %q, want 10 and one", n, next)
			}
			a = p.ok(p.ask("DescribeDisks", "DiskType", "data", "NextToken", next))
			if n := len(a.rows("Disks", "Disk")); n != 2 || a.body["NextToken"] != "" {
				p.differs("%d disks and NextToken %q, want 2 and none", n, a.body["NextToken"])
			}
		}),
		one("DescribeDisks", "PageSize above 100 is refused", table, Nothing, func(p *Probe) {
			p.refused(p.ask("DescribeDisks", "PageSize", "101"), 400, "InvalidParameter")
		}),
		one("DescribeDisks", "a status that does not exist is InvalidStatus.ValueNotSupported", table, Nothing, func(p *Probe) {
			p.refused(p.ask("DescribeDisks", "Status", "Gone"), 400, "InvalidStatus.ValueNotSupported")
		}),
		one("DescribeDisks", "a category that does not exist is InvalidCategory.ValueNotSupported", table, Nothing, func(p *Probe) {
			p.refused(p.ask("DescribeDisks", "Category", "cloud_none"), 400, "InvalidCategory.ValueNotSupported")
		}),
		one("DescribeDisks", "a filter that does not exist is InvalidFilterKey.NotFound", table, Nothing, func(p *Probe) {
			p.refused(p.ask("DescribeDisks", "Filter.1.Key", "Colour", "Filter.1.Value", "red"), 404, "InvalidFilterKey.NotFound")
		}),
		one("DescribeDisks", "a dry run ends in DryRunOperation", table, Nothing, func(p *Probe) {
			p.refused(p.ask("DescribeDisks", "DryRun", "true"), 400, "DryRunOperation")
		}),
		one("DescribeDisks", "no RegionId is MissingParamter.RegionId, as ECS spells it", table, Nothing, func(p *Probe) {
			p.refused(p.askOf(ecsVersion, "DescribeDisks"), 400, "MissingParamter.RegionId")
		}),
		one("DescribeDisks", "a disk has its serial number, its times and its defaults", page, Disks, func(p *Probe) {
			id := p.ready()
			d := p.show(id)
			if d.text("SerialNumber") != strings.TrimPrefix(id, "d-") || d.text("MultiAttach") != "Disabled" || d.text("Type") != "data" ||
				d.text("PerformanceLevel") != "PL1" || d.text("DiskChargeType") != "PostPaid" || d["Size"] != float64(20) || d["Portable"] != true ||
				d.text("InstanceId") != "" {
				p.differs("disk %v", d)
			}
			if _, err := time.Parse("2006-01-02T15:04:05Z", d.text("CreationTime")); err != nil {
				p.differs("%v", err)
			}
			if _, err := time.Parse("2006-01-02T15:04Z", d.text("ExpiredTime")); err != nil {
				p.differs("%v", err)
			}
		}),
		one("DescribeDisks", "filters are joined by AND", page, Disks, func(p *Probe) {
			id := p.ready("Tag.1.Key", "conformance-and", "Tag.1.Value", "1")
			find := func(pairs ...string) int {
				return len(p.ok(p.ask("DescribeDisks",
					append([]string{"DiskIds", idList(id), "Tag.1.Key", "conformance-and"}, pairs...)...)).rows("Disks", "Disk"))
			}
			found := p.until(searchLag, func() bool {
				return find("ZoneId", p.Zone, "Status", "Available", "Category", "cloud_essd", "DiskType", "data") == 1
			})
			if !found || find("Status", "In_use") != 0 || find("Tag.1.Value", "2") != 0 {
				p.differs("the filters find what they must not, or don't find what they must")
			}
		}),
		several("DeleteDisk", "a disk that does not exist", "404: API page, error codes; accepted: API page", Nothing, func(p *Probe) string {
			return p.ask("DeleteDisk", "DiskId", noDisk).outcome()
		},
			way(refusedWith("InvalidDiskId.NotFound", 404), "forgive-unknown-disk", "false"),
			way(accepted, "forgive-unknown-disk", "true")),
		one("DeleteDisk", "no read shows the disk after the reply", page, Disks, func(p *Probe) {
			id := p.ready()
			p.delete(id)
			if p.show(id) != nil {
				p.differs("it is shown")
			}
		}),
		one("DeleteDisk", "a disk that has just been made is IncorrectDiskStatus.Initializing or not Available yet", table, Simulator, func(p *Probe) {
			p.must(p.Sim.SetLatency(p.realLatency())) // the reply comes before the disk is Available
			id := p.create()
			if a := p.ask("DeleteDisk", "DiskId", id); a.status != 403 || !strings.HasPrefix(a.code(), "IncorrectDiskStatus") {
				p.differs("%s", a.outcome())
			}
		}),
		creating("ResizeDisk", "NewSize", "21"),
		one("ResizeDisk", "the new size is shown immediately", page, Disks, func(p *Probe) {
			id := p.ready()
			p.ok(p.ask("ResizeDisk", "DiskId", id, "NewSize", "21"))
			if d := p.show(id); d["Size"] != float64(21) {
				p.differs("size %v", d["Size"])
			}
		}),
		one("ResizeDisk", "a size that is not above the present one is InvalidDiskSize", table, Disks, func(p *Probe) {
			id := p.ready("Size", "40")
			p.refused(p.ask("ResizeDisk", "DiskId", id, "NewSize", "40"), 403, "InvalidDiskSize")
			p.refused(p.ask("ResizeDisk", "DiskId", id, "NewSize", "30"), 403, "InvalidDiskSize")
		}),
		several("ResizeDisk", "a size that no disk of the category has", "InvalidParameter: gardener/pvc-autoscaler#293 and bosh-alicloud-cpi-release#144; InvalidDiskSize.TooLarge: error codes of the API page", Disks, func(p *Probe) string {
			return p.ask("ResizeDisk", "DiskId", p.ready(), "NewSize", "100000").outcome()
		},
			way(refusedWith("InvalidParameter", 400), "resize-limit-code", "InvalidParameter"),
			way(refusedWith("InvalidDiskSize.TooLarge", 403), "resize-limit-code", "InvalidDiskSize.TooLarge")),
		one("ResizeDisk", "a disk that does not exist is InvalidDiskId.NotFound", table, Nothing, func(p *Probe) {
			p.refused(p.ask("ResizeDisk", "DiskId", noDisk, "NewSize", "40"), 404, "InvalidDiskId.NotFound")
		}),
		creating("ModifyDiskSpec", "DiskCategory", "cloud_auto", "DryRun", "true"),
		several("ModifyDiskSpec", "a change of the level alone", "none: API page; a task: alibaba-cloud-csi-driver takes its absence for an error", Disks, levelTask,
			way("has a task", "no-task-for-level", "false"),
			way("has no task and takes effect immediately", "no-task-for-level", "true")),
		one("ModifyDiskSpec", "a change of category is a task that DescribeTasks shows, and the disk is Modifying", page, Simulator, func(p *Probe) {
			id := p.ready()
			task := p.ok(p.ask("ModifyDiskSpec", "DiskId", id, "DiskCategory", "cloud_auto")).body.text("TaskId")
			if d := p.show(id); d.text("Status") != "Modifying" {
				p.differs("status %q", d.text("Status"))
			}
			show := func() row { return p.ok(p.ask("DescribeTasks", "TaskIds", task)).rows("TaskSet", "Task")[0] }
			if got := show(); got.text("TaskStatus") != "Processing" || got.text("TaskAction") != "ModifyDiskSpec" {
				p.differs("task %v", got)
			}
			p.until(time.Hour, func() bool { return show().text("TaskStatus") != "Processing" })
			if d := p.await(id, "Available"); d.text("Category") != "cloud_auto" || show().text("TaskStatus") != "Finished" {
				p.differs("disk %v, task %v", d, show())
			}
		}),
		one("ModifyDiskSpec", "a dry run ends in DryRunOperation, or in the error", table, Disks, func(p *Probe) {
			id := p.ready()
			p.refused(p.ask("ModifyDiskSpec", "DiskId", id, "DiskCategory", "cloud_auto", "DryRun", "true"), 400, "DryRunOperation")
			p.refused(p.ask("ModifyDiskSpec", "DiskId", id, "DiskCategory", "cloud_essd", "PerformanceLevel", "PL1", "DryRun", "true"),
				403, "NoChangeInDiskCategoryAndPerformanceLevel")
		}),
		one("ModifyDiskAttribute", "100 disks take one call", page, Simulator, func(p *Probe) {
			var pairs []string
			for i := range 100 {
				pairs = append(pairs, "DiskIds."+strconv.Itoa(i+1), p.create())
			}
			p.sleep(time.Minute)
			p.ok(p.ask("ModifyDiskAttribute", append(pairs, "Description", "all of them")...))
			for _, d := range p.ok(p.ask("DescribeDisks", "DiskType", "data", "PageSize", "100")).rows("Disks", "Disk") {
				if d.text("Description") != "all of them" {
					p.stop("disk %v", d)
				}
			}
		}),
		one("ModifyDiskAttribute", "nothing to change is refused", table, Disks, func(p *Probe) {
			p.refused(p.ask("ModifyDiskAttribute", "DiskId", p.ready()), 400, "NoAttributeToModify")
		}),
	}...)
}

// searchLag is how long searches by tag may lag behind.
const searchLag = 10 * time.Second

// delete deletes a disk. ECS may refuse that for a while after the disk was
// made.
func (p *Probe) delete(id string) {
	var answer reply
	p.until(time.Minute, func() bool {
		answer = p.ask("DeleteDisk", "DiskId", id)
		return answer.code() != "IncorrectDiskStatus.Initializing"
	})
	p.ok(answer)
}

// otherZone is a zone of the simulator besides the client's.
func (p *Probe) otherZone() string {
	for _, z := range p.Sim.State().Zones {
		if z != p.Zone {
			return z
		}
	}
	p.skip("the simulator has one zone only")
	return ""
}

// creating is the fact of what an action does to a disk that is Creating.
func creating(action string, pairs ...string) Fact {
	return several(action, "a disk that is Creating", "refused: API page, which wants Available or In_use; accepted: csi-sanity through alibaba-cloud-csi-driver, which does not wait", Disks, func(p *Probe) string {
		for range attempts {
			id := p.create()
			meanwhile := make(chan bool, 1)
			go func() {
				read, err := p.call(p.ctx, "DescribeDisks", "DiskIds", idList(id))
				list := read.rows("Disks", "Disk")
				meanwhile <- err == nil && len(list) == 1 && list[0].text("Status") == "Creating"
			}()
			answer := p.ask(action, append([]string{"DiskId", id}, pairs...)...)
			wasCreating := <-meanwhile
			switch {
			case answer.code() == "IncorrectDiskStatus.NeverAttached":
				p.skip("no snapshot is made of a cloud_essd that was never attached")
			case answer.status != 200 && answer.code() != "DryRunOperation": // which says that it would have been accepted
				return answer.outcome()
			case wasCreating:
				return accepted
			}
		}
		p.skip("disks are Available before they can be asked about")
		return ""
	},
		way(accepted, "refuse-creating", "-"+action),
		way(refusedWith("IncorrectDiskStatus", 403), "refuse-creating", "+"+action))
}

// levelTask changes a disk from PL0 to PL1.
func levelTask(p *Probe) string {
	id := p.ready("PerformanceLevel", "PL0", "Size", "40")
	answer := p.ok(p.ask("ModifyDiskSpec", "DiskId", id, "PerformanceLevel", "PL1"))
	changed := func() bool {
		d := p.show(id)
		return d.text("PerformanceLevel") == "PL1" && d.text("Status") == "Available"
	}
	if answer.body.text("TaskId") == "" {
		if !changed() {
			return "has no task, and does not take effect at once"
		}
		return "has no task and takes effect immediately"
	}
	if !p.until(changeLimit, changed) {
		return "has a task, and is not done after " + changeLimit.String()
	}
	return "has a task"
}

// lessThanSnapshot makes a disk of 20 GiB from a snapshot of 21.
func lessThanSnapshot(p *Probe) string {
	snapshot := p.snapshot(p.attached("Size", "21"))
	if !p.until(changeLimit, func() bool { return p.showSnapshot(snapshot)["Available"] == true }) {
		p.skip("the snapshot is not Available after %v", changeLimit)
	}
	answer := p.ask("CreateDisk", p.ordinary("SnapshotId", snapshot)...)
	if answer.status != 200 {
		return answer.outcome()
	}
	if d := p.await(answer.body.text("DiskId"), "Available"); d["Size"] != float64(21) {
		return "the disk has " + strconv.Itoa(int(d["Size"].(float64))) + " GiB"
	}
	return "the disk has the size of the snapshot"
}
