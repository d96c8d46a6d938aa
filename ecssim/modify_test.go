package ecssim_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

type specChange = func(*ecs.ModifyDiskSpecRequest)

// modify starts to change a disk's spec and returns the ID of the task.
func modify(c *ecs.Client, disk string, changes ...specChange) (string, error) {
	r := ecs.CreateModifyDiskSpecRequest()
	r.DiskId = disk
	for _, change := range changes {
		change(r)
	}
	reply, err := c.ModifyDiskSpec(r)
	return reply.TaskId, err
}

func toCategory(name string) specChange {
	return func(r *ecs.ModifyDiskSpecRequest) { r.DiskCategory = name }
}

func toLevel(level string) specChange {
	return func(r *ecs.ModifyDiskSpecRequest) { r.PerformanceLevel = level }
}

func toIOPS(n int) specChange {
	return func(r *ecs.ModifyDiskSpecRequest) { r.ProvisionedIops = requests.NewInteger(n) }
}

func toZone(zone string) specChange {
	return func(r *ecs.ModifyDiskSpecRequest) { r.DestinationZoneId = zone }
}

// tasks returns what DescribeTasks shows.
func tasks(t *testing.T, c *ecs.Client, change func(*ecs.DescribeTasksRequest)) []ecs.Task {
	t.Helper()
	r := ecs.CreateDescribeTasksRequest()
	if change != nil {
		change(r)
	}
	reply, err := c.DescribeTasks(r)
	ok(t, err)
	return reply.TaskSet.Task
}

// ofKind returns a change to a request for a disk of a category, a level and
// a size.
func ofKind(category, level, size string) func(*ecs.CreateDiskRequest) {
	return func(r *ecs.CreateDiskRequest) {
		r.DiskCategory, r.PerformanceLevel, r.Size = category, level, requests.Integer(size)
		if category == "cloud_regional_disk_auto" {
			r.ZoneId = ""
		}
	}
}

func TestChangeOfCategoryIsATaskAndTheDiskIsModifying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) {
			c.Latency = ecssim.Latency{API: map[string]time.Duration{"ModifyDiskSpec": time.Second}, Modify: time.Minute, ModifyPerTiB: 16 * time.Minute}
		})
		id := create(t, c, ofKind("cloud_efficiency", "", "512"))
		ok(t, attach(c, "i-1", id))
		task, err := modify(c, id, toCategory("cloud_essd"), toLevel("PL2"))
		ok(t, err)
		one := func() ecs.Task {
			t.Helper()
			list := tasks(t, c, func(r *ecs.DescribeTasksRequest) { r.TaskIds = task })
			if len(list) != 1 || list[0].TaskId != task || list[0].ResourceId != id || list[0].TaskAction != "ModifyDiskSpec" || list[0].CreationTime == "" {
				t.Fatalf("tasks %+v", list)
			}
			return list[0]
		}
		time.Sleep(9*time.Minute - time.Nanosecond)
		if d, task := look(t, c, id), one(); d.Status != "Modifying" || d.Category != "cloud_efficiency" || task.TaskStatus != "Processing" || task.FinishedTime != "" {
			t.Errorf("before the end: %s %s, task %s finished %q", d.Status, d.Category, task.TaskStatus, task.FinishedTime)
		}
		for what, err := range map[string]error{
			"attach": attach(c, "i-1", id), "detach": detach(c, "i-1", id), "resize": resize(c, id, 600, online), "delete": remove(c, id),
			"attributes": attributes(c, []string{id}, func(r *ecs.ModifyDiskAttributeRequest) { r.DiskName = "data" }),
			"snapshot":   second(snap(c, id)),
		} {
			t.Log(what)
			wantCode(t, err, 403, "IncorrectDiskStatus")
		}
		_, err = modify(c, id, toCategory("cloud_auto"))
		wantCode(t, err, 403, "InvalidStatus.DiskNotReady")
		time.Sleep(time.Nanosecond)
		if d, task := look(t, c, id), one(); d.Status != "In_use" || d.Category != "cloud_essd" || d.PerformanceLevel != "PL2" || task.TaskStatus != "Finished" || task.FinishedTime == "" {
			t.Errorf("at the end: %s %s %s, task %s", d.Status, d.Category, d.PerformanceLevel, task.TaskStatus)
		}
		ok(t, s.Check())
	})
}

func second[A, B any](_ A, b B) B { return b }

func TestLevelChangeIsATaskUnlessAsDocumented(t *testing.T) {
	for _, none := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.Modify, c.Doubts.NoTaskForLevel = time.Minute, none })
			id := create(t, c, ofKind("cloud_essd", "PL1", "500"))
			task, err := modify(c, id, toLevel("PL2"))
			ok(t, err)
			if (task == "") != none {
				t.Errorf("task %q, want none: %v", task, none)
			}
			d := look(t, c, id)
			if d.Status != "Available" || (d.PerformanceLevel == "PL2") != none {
				t.Errorf("at once it is %s %s", d.Status, d.PerformanceLevel)
			}
			if !none {
				wantCode(t, resize(c, id, 600), 400, "InvalidStatus.Upgrading")
				wantCode(t, remove(c, id), 403, "IncorrectDiskStatus")
			}
			time.Sleep(time.Minute)
			if d := look(t, c, id); d.PerformanceLevel != "PL2" {
				t.Errorf("in the end it is %s, want PL2", d.PerformanceLevel)
			}
			_, err = modify(c, id, toLevel("PL1")) // levels need no time to cool
			ok(t, err)
			ok(t, s.Check())
		})
	}
}

func TestModifyDiskSpecPaths(t *testing.T) {
	type kind struct{ category, level string }
	for _, tt := range []struct {
		from   kind
		change []specChange
		to     kind // zero if it is refused
		status int
		code   string
	}{
		{kind{"cloud_essd", "PL0"}, []specChange{toLevel("PL3")}, kind{"cloud_essd", "PL3"}, 0, ""},
		{kind{"cloud_essd", "PL3"}, []specChange{toLevel("PL1")}, kind{"cloud_essd", "PL1"}, 0, ""},
		{kind{"cloud_essd", "PL1"}, []specChange{toLevel("PL0")}, kind{}, 403, "InvalidPerformanceLevel.TooLow"},
		{kind{"cloud_essd", "PL1"}, []specChange{toCategory("cloud_auto")}, kind{"cloud_auto", ""}, 0, ""},
		{kind{"cloud_essd", "PL1"}, []specChange{toCategory("cloud_regional_disk_auto")}, kind{"cloud_regional_disk_auto", ""}, 0, ""},
		{kind{"cloud_essd", "PL2"}, []specChange{toCategory("cloud_regional_disk_auto")}, kind{}, 403, "Downgrade.NotSupported"},
		{kind{"cloud_essd", "PL1"}, []specChange{toCategory("cloud_ssd")}, kind{}, 403, "Downgrade.NotSupported"},
		{kind{"cloud_auto", ""}, []specChange{toIOPS(1000)}, kind{"cloud_auto", ""}, 0, ""},
		{kind{"cloud_auto", ""}, []specChange{toCategory("cloud_essd")}, kind{}, 403, "Downgrade.NotSupported"},
		{kind{"cloud_auto", ""}, []specChange{toCategory("cloud_regional_disk_auto")}, kind{"cloud_regional_disk_auto", ""}, 0, ""},
		{kind{"cloud_regional_disk_auto", ""}, []specChange{toCategory("cloud_essd"), toZone(zoneI)}, kind{"cloud_essd", "PL1"}, 0, ""},
		{kind{"cloud_regional_disk_auto", ""}, []specChange{toCategory("cloud_auto")}, kind{}, 400, "MissingParameter.DestinationZoneId"},
		{kind{"cloud_regional_disk_auto", ""}, []specChange{toCategory("cloud_auto"), toZone("cn-hangzhou-x")}, kind{}, 400, "InvalidDestinationZoneId.NotFound"},
		{kind{"cloud_essd_entry", ""}, []specChange{toCategory("cloud_essd")}, kind{"cloud_essd", "PL1"}, 0, ""},
		{kind{"cloud_efficiency", ""}, []specChange{toCategory("cloud_ssd")}, kind{"cloud_ssd", ""}, 0, ""},
		{kind{"cloud_efficiency", ""}, []specChange{toCategory("cloud_essd"), toLevel("PL0")}, kind{"cloud_essd", "PL0"}, 0, ""},
		{kind{"cloud_efficiency", ""}, []specChange{toCategory("cloud_regional_disk_auto")}, kind{}, 403, "Downgrade.NotSupported"},
		{kind{"cloud_ssd", ""}, []specChange{toCategory("cloud_essd"), toLevel("PL1")}, kind{"cloud_essd", "PL1"}, 0, ""},
		{kind{"cloud_ssd", ""}, []specChange{toCategory("cloud_essd"), toLevel("PL0")}, kind{}, 403, "InvalidPerformanceLevel.TooLow"},
		{kind{"cloud_ssd", ""}, []specChange{toCategory("cloud_efficiency")}, kind{}, 403, "Downgrade.NotSupported"},
		{kind{"cloud", ""}, []specChange{toCategory("cloud_essd")}, kind{}, 400, "InvalidDiskCategory.ValueNotSupported"},
		{kind{"elastic_ephemeral_disk_standard", ""}, []specChange{toCategory("cloud_essd")}, kind{}, 400, "InvalidDiskCategory.ValueNotSupported"},
	} {
		c := newClient(t, newServer(t, nil))
		id := create(t, c, ofKind(tt.from.category, tt.from.level, "2000"))
		_, err := modify(c, id, tt.change...)
		d := look(t, c, id)
		if tt.code != "" {
			wantCode(t, err, tt.status, tt.code)
			tt.to = tt.from
		} else if err != nil {
			t.Errorf("%v: %v", tt, err)
		}
		if d.Category != tt.to.category || d.PerformanceLevel != tt.to.level || (d.ZoneId == "") != (d.Category == "cloud_regional_disk_auto") {
			t.Errorf("from %v to %s %s in %q, want %v", tt.from, d.Category, d.PerformanceLevel, d.ZoneId, tt.to)
		}
	}
}

func TestModifyDiskSpecRefuses(t *testing.T) {
	s := fleet(t, nil)
	c := newClient(t, s)
	essd, auto := create(t, c, nil), create(t, c, ofKind("cloud_auto", "", "40"))
	both := create(t, c, shared)
	used := create(t, c, nil)
	ok(t, attach(c, "i-essd", used))
	bursting := create(t, c, func(r *ecs.CreateDiskRequest) { ofKind("cloud_auto", "", "40")(r); r.BurstingEnabled = "true" })
	for _, tt := range []struct {
		name   string
		disk   string
		change []specChange
		status int
		code   string
	}{
		{"an unknown disk", "d-9", []specChange{toLevel("PL2")}, 404, "InvalidDiskId.NotFound"},
		{"an unknown category", essd, []specChange{toCategory("cloud_fast")}, 400, "InvalidDiskCategory.ValueNotSupported"},
		{"an unknown level", essd, []specChange{toLevel("PL9")}, 400, "InvalidPerformanceLevel.Malformed"},
		{"a level of a category that has none", auto, []specChange{toLevel("PL1")}, 400, "InvalidPerformanceLevelParam.Mismatch"},
		{"a level for a larger disk", essd, []specChange{toLevel("PL2")}, 403, "OperationDenied.PerformanceLevelNotMatch"},
		{"IOPS of a category that has none", essd, []specChange{toIOPS(100)}, 400, "ProvisionedIopsForDiskCategoryUnsupported"},
		{"too many IOPS", auto, []specChange{toIOPS(50001)}, 400, "InvalidProvisionedIops.LimitExceed"},
		{"nothing", essd, nil, 403, "NoChangeInDiskCategoryAndPerformanceLevel"},
		{"what it is", essd, []specChange{toCategory("cloud_essd"), toLevel("PL1")}, 403, "NoChangeInDiskCategoryAndPerformanceLevel"},
		{"a shared disk", both, []specChange{toCategory("cloud_auto")}, 403, "InvalidOperation.MultiAttachDisk"},
		{"a category that the instance does not take", used, []specChange{toCategory("cloud_auto")}, 403, "InvalidInstanceType.NotSupportDiskCategory"},
		{"a bursting disk to a regional one", bursting, []specChange{toCategory("cloud_regional_disk_auto")}, 400, "InvalidDiskCategory.ValueNotSupported"},
		{"a dry run of a change", essd, []specChange{toCategory("cloud_auto"), func(r *ecs.ModifyDiskSpecRequest) { r.DryRun = "true" }}, 400, "DryRunOperation"},
		{"a dry run of no change", essd, []specChange{func(r *ecs.ModifyDiskSpecRequest) { r.DryRun = "true" }}, 403, "NoChangeInDiskCategoryAndPerformanceLevel"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := modify(c, tt.disk, tt.change...)
			wantCode(t, err, tt.status, tt.code)
		})
	}
	if n := len(s.State().Tasks); n != 0 {
		t.Errorf("%d tasks, want none", n)
	}
}

func TestModifyDiskSpecNeedsStock(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	id := create(t, c, nil)
	ok(t, s.SetStock(zoneH, "cloud_auto", 0))
	_, err := modify(c, id, toCategory("cloud_auto"))
	wantCode(t, err, 403, "OperationDenied.NoStock")
}

func TestModifyDiskSpecHasToCool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newServerAndClient(t, func(c *ecssim.Config) {
			c.Latency.CoolIOPS, c.Latency.CoolAuto, c.Latency.CoolCategory = time.Hour, time.Hour, 6*time.Hour
		})
		slow := create(t, c, ofKind("cloud_efficiency", "", "40"))
		change := func(id string, changes ...specChange) error { return second(modify(c, id, changes...)) }
		ok(t, change(slow, toCategory("cloud_essd")))
		time.Sleep(6*time.Hour - time.Nanosecond)
		wantCode(t, change(slow, toCategory("cloud_auto")), 403, "DiskInCoolingPeriod")
		time.Sleep(time.Nanosecond)
		ok(t, change(slow, toCategory("cloud_auto")))
		ok(t, change(slow, toIOPS(100))) // the first one after that is free
		wantCode(t, change(slow, toIOPS(200)), 403, "DiskInCoolingPeriod")
		time.Sleep(time.Hour)
		ok(t, change(slow, toIOPS(200)))
		wantCode(t, change(slow, toIOPS(300)), 403, "DiskInCoolingPeriod")

		touched := create(t, c, ofKind("cloud_essd", "", "40"))
		ok(t, change(touched, toCategory("cloud_auto"), toIOPS(100)))
		wantCode(t, change(touched, toIOPS(200)), 403, "DiskInCoolingPeriod") // the IOPS were touched
	})
}

func TestFiftyCategoriesChangeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Latency.Modify = time.Minute }))
		ids := createMany(t, c, 51, nil)
		for _, id := range ids[:50] {
			ok(t, second(modify(c, id, toCategory("cloud_auto"))))
		}
		wantCode(t, second(modify(c, ids[50], toCategory("cloud_auto"))), 403, "ModifyingDiskCategoryLimitExceed")
		time.Sleep(time.Minute)
		ok(t, second(modify(c, ids[50], toCategory("cloud_auto"))))
	})
}

func TestTaskThatFailsLeavesTheDiskAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *ecssim.Config) { c.Latency.Modify = time.Minute })
		addFault(t, s, ecssim.Fault{Action: "ModifyDiskSpec", Do: ecssim.FaultFails})
		c := newClient(t, s)
		id := create(t, c, nil)
		ok(t, second(modify(c, id, toCategory("cloud_auto"))))
		time.Sleep(time.Minute)
		d, task := look(t, c, id), tasks(t, c, nil)[0]
		if d.Status != "Available" || d.Category != "cloud_essd" || task.TaskStatus != "Failed" || task.FailedReason == "" {
			t.Errorf("disk %s %s, task %s %q", d.Status, d.Category, task.TaskStatus, task.FailedReason)
		}
		ok(t, s.Check())
	})
}

func TestDescribeTasksFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.Modify = time.Minute })
		ids := createMany(t, c, 12, nil)
		var all []string
		for i, id := range ids {
			task, err := modify(c, id, toCategory("cloud_auto"))
			ok(t, err)
			all = append(all, task)
			if i == 10 {
				time.Sleep(2 * time.Minute)
			}
		}
		for _, tt := range []struct {
			name   string
			change func(*ecs.DescribeTasksRequest)
			want   int
		}{
			{"a page of ten by default", func(*ecs.DescribeTasksRequest) {}, 10},
			{"a larger page", func(r *ecs.DescribeTasksRequest) { r.PageSize = "100" }, 12},
			{"the second page", func(r *ecs.DescribeTasksRequest) { r.PageNumber = "2" }, 2},
			{"by ID", func(r *ecs.DescribeTasksRequest) { r.TaskIds = all[0] + "," + all[11] + ",t-none" }, 2},
			{"by disk", func(r *ecs.DescribeTasksRequest) { r.ResourceIds = &[]string{ids[3]} }, 1},
			{"by status", func(r *ecs.DescribeTasksRequest) { r.TaskStatus = "Processing" }, 1},
			{"by action", func(r *ecs.DescribeTasksRequest) { r.TaskAction = "ImportImage" }, 0},
			{"from a time on", func(r *ecs.DescribeTasksRequest) { r.StartTime = "2000-01-01T00:01Z" }, 1},
			{"until a time", func(r *ecs.DescribeTasksRequest) { r.EndTime, r.PageSize = "2000-01-01T00:01Z", "100" }, 11},
		} {
			if got := len(tasks(t, c, tt.change)); got != tt.want {
				t.Errorf("%s: %d tasks, want %d", tt.name, got, tt.want)
			}
		}
		r := ecs.CreateDescribeTasksRequest()
		r.TaskStatus = "Done"
		_, err := c.DescribeTasks(r)
		wantCode(t, err, 400, "InvalidParameter")
		r = ecs.CreateDescribeTasksRequest()
		r.StartTime = "yesterday"
		_, err = c.DescribeTasks(r)
		wantCode(t, err, 400, "InvalidParameter")
	})
}

// attributes gives disks new values.
func attributes(c *ecs.Client, disks []string, change func(*ecs.ModifyDiskAttributeRequest)) error {
	r := ecs.CreateModifyDiskAttributeRequest()
	r.DiskIds = &disks
	change(r)
	_, err := c.ModifyDiskAttribute(r)
	return err
}

func TestModifyDiskAttributeChangesManyDisksOrNone(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	ids := createMany(t, c, 100, ofKind("cloud_auto", "", "40"))
	change := func(r *ecs.ModifyDiskAttributeRequest) {
		r.DiskName, r.Description, r.BurstingEnabled = "data", "a disk", "true"
		r.DeleteAutoSnapshot, r.EnableAutoSnapshot, r.DeleteWithInstance = "false", "false", "true"
	}
	ok(t, attributes(c, ids, change))
	for _, id := range []string{ids[0], ids[99]} {
		d := look(t, c, id)
		if d.DiskName != "data" || d.Description != "a disk" || !d.BurstingEnabled || d.DeleteAutoSnapshot || d.EnableAutoSnapshot || !d.DeleteWithInstance {
			t.Errorf("disk %+v", d)
		}
	}
	rename := func(r *ecs.ModifyDiskAttributeRequest) { r.DiskName = "other" }
	wantCode(t, attributes(c, append(slices.Clone(ids[:2]), "d-9"), rename), 404, "InvalidDiskId.NotFound")
	if d := look(t, c, ids[0]); d.DiskName != "data" {
		t.Errorf("a refused change renamed a disk %s", d.DiskName)
	}
	one := func(r *ecs.ModifyDiskAttributeRequest) { r.DiskId, r.DiskName = ids[5], "fifth" }
	ok(t, attributes(c, nil, one))
	if d := look(t, c, ids[5]); d.DiskName != "fifth" {
		t.Errorf("by DiskId: the name is %s", d.DiskName)
	}
}

func TestModifyDiskAttributeRefuses(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	essd, auto, both := create(t, c, nil), create(t, c, ofKind("cloud_auto", "", "3")), create(t, c, func(r *ecs.CreateDiskRequest) { ofKind("cloud_auto", "", "40")(r); shared(r) })
	burst := func(r *ecs.ModifyDiskAttributeRequest) { r.BurstingEnabled = "true" }
	for _, tt := range []struct {
		name   string
		disks  []string
		change func(*ecs.ModifyDiskAttributeRequest)
		status int
		code   string
	}{
		{"nothing", []string{essd}, func(*ecs.ModifyDiskAttributeRequest) {}, 400, "NoAttributeToModify"},
		{"no disk", nil, burst, 400, "IncompleteParamter"},
		{"101 disks", slices.Repeat([]string{essd}, 101), burst, 400, "InvalidParameter"},
		{"a name of one letter", []string{essd}, func(r *ecs.ModifyDiskAttributeRequest) { r.DiskName = "x" }, 400, "InvalidDiskName.Malformed"},
		{"a description of one letter", []string{essd}, func(r *ecs.ModifyDiskAttributeRequest) { r.Description = "x" }, 404, "InvalidDescription.Malformed"},
		{"a word for a truth value", []string{essd}, func(r *ecs.ModifyDiskAttributeRequest) { r.BurstingEnabled = "yes" }, 400, "InvalidParameter"},
		{"bursting of an ESSD", []string{essd}, burst, 400, "BurstingEnabledForDiskCategoryUnsupported"},
		{"bursting of 3 GiB", []string{auto}, burst, 400, "InvalidBurstingEnabled.DiskSizeTooSmall"},
		{"bursting of a shared disk", []string{both}, burst, 400, "BurstingEnabledForMultiAttachDiskUnsupported"},
		{"a shared disk that goes with its instance", []string{both}, func(r *ecs.ModifyDiskAttributeRequest) { r.DeleteWithInstance = "true" }, 403, "DeleteWithInstance.Conflict"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantCode(t, attributes(c, tt.disks, tt.change), tt.status, tt.code) })
	}
}

func TestLimitsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		limits ecssim.Limits
		field  string
	}{
		{ecssim.Limits{SnapshotsPerDisk: -1}, "Limits.SnapshotsPerDisk"},
		{ecssim.Limits{SnapshotsAtOnce: -1}, "Limits.SnapshotsAtOnce"},
		{ecssim.Limits{CategoryChanges: -1}, "Limits.CategoryChanges"},
	} {
		_, err := ecssim.New(ecssim.Config{Region: region, Zones: []string{zoneH}, Limits: tt.limits})
		if want := fmt.Sprintf("ecssim: %s %q: allowed is ", tt.field, "-1"); err == nil || err.Error()[:len(want)] != want {
			t.Errorf("error %v, want one that begins %s", err, want)
		}
	}
}
