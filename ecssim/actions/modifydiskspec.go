package actions

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var modifyDiskSpecAction = Action{
	Name:     "ModifyDiskSpec",
	required: []string{"DiskId"},
	optional: []string{
		"DiskCategory", "PerformanceLevel", "ProvisionedIops", "DryRun", "DestinationZoneId",
		"PerformanceControlOptions.IOPS", "PerformanceControlOptions.Throughput", "PerformanceControlOptions.Recover",
	},
	// ECS refused a cloud_auto disk's change of IOPS whose DiskCategory and
	// PerformanceLevel were empty (alibaba-cloud-csi-driver, pull request 1740).
	notEmpty: map[string]wire.Refusal{
		"DiskCategory":     *wire.Refuse(400, "InvalidDiskCategory.NotSupported", "The specified disk category is not supported: DiskCategory is empty."),
		"PerformanceLevel": *wire.Refuse(400, "InvalidDiskCategory.NotSupported", "The specified disk category is not supported: PerformanceLevel is empty."),
	},
	about: [][2]string{{"disk", "DiskId"}},
	do:    modifyDiskSpec,
}

// paths are the categories that a category can be changed to. What is not
// here can't be changed at all.
var paths = map[string][]string{
	"cloud_efficiency":         {"cloud_ssd", "cloud_essd_entry", "cloud_essd", "cloud_auto"},
	"cloud_ssd":                {"cloud_essd", "cloud_auto"},
	"cloud_essd_entry":         {"cloud_essd", "cloud_auto", "cloud_regional_disk_auto"},
	"cloud_essd":               {"cloud_essd", "cloud_auto", "cloud_regional_disk_auto"},
	"cloud_auto":               {"cloud_auto", "cloud_regional_disk_auto"},
	"cloud_regional_disk_auto": {"cloud_regional_disk_auto", "cloud_essd", "cloud_auto"},
}

// targets are the values that ModifyDiskSpec takes for DiskCategory.
var targets = slices.Sorted(maps.Keys(paths))

// modifyDiskSpec starts to change a disk's category, performance level or
// provisioned IOPS. DescribeTasks tells when that is done.
func modifyDiskSpec(req *Request) (wire.Object, *wire.Refusal) {
	dry, no := req.Params.Boolean("DryRun", false)
	if no != nil {
		return nil, no
	}
	var c state.SpecChange
	steps := []func(*Request, *state.SpecChange) *wire.Refusal{
		readTarget, findModified, checkModifiable, checkPath, readDestination, readTargetLevel, readTargetIOPS,
		checkChange, checkUsers, checkCooling, checkModifyQuota,
	}
	for _, step := range steps {
		if no := step(req, &c); no != nil {
			return nil, no
		}
	}
	if dry {
		return nil, orDryRun(nil)
	}
	if c.To.Category != c.From.Category {
		if no := checkCapacity(req, c.To.Zone, c.To.Category, c.Disk.Size); no != nil {
			return nil, no
		}
		if req.Region.SoldOut(c.To.Zone, c.To.Category) != "" {
			no := soldOut["OperationDenied.NoStock"]
			return nil, &no
		}
		req.Region.TakeStock(c.To.Zone, c.To.Category)
	}
	return startModify(req, c), nil
}

// readTarget reads the parameters that stand for themselves.
func readTarget(req *Request, c *state.SpecChange) *wire.Refusal {
	c.To.Category, c.To.Level = req.Params["DiskCategory"], req.Params["PerformanceLevel"]
	switch {
	case !req.Params.OneOf("DiskCategory", targets...):
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "The specified parameter DiskCategory %q is not valid: %s.", c.To.Category, config.List(targets))
	case !req.Params.OneOf("PerformanceLevel", "PL0", "PL1", "PL2", "PL3"):
		return wire.Refuse(400, "InvalidPerformanceLevel.Malformed", "The specified parameter PerformanceLevel %q is not valid: PL0, PL1, PL2 or PL3.", c.To.Level)
	}
	return nil
}

// findModified finds the disk, whose category is the fallback.
func findModified(req *Request, c *state.SpecChange) (no *wire.Refusal) {
	if c.Disk, no = findDisk(req, req.Disk); no != nil {
		return no
	}
	c.From = c.Disk.Spec()
	c.To.Zone = c.From.Zone
	if c.To.Category == "" {
		c.To.Category = c.From.Category
	}
	return nil
}

// checkPath refuses a change of category that ECS does not make.
func checkPath(_ *Request, c *state.SpecChange) *wire.Refusal {
	from, to := c.From.Category, c.To.Category
	switch {
	case c.Disk.MultiAttach:
		return wire.Refuse(403, "InvalidOperation.MultiAttachDisk", "A disk with MultiAttach does not support this operation.")
	case paths[from] == nil:
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "The disk category %s can't be changed.", from)
	case from == to:
		return nil
	case !slices.Contains(paths[from], to), from == "cloud_essd" && state.Categories[to].Regional && c.From.Level != "PL0" && c.From.Level != "PL1":
		return wire.Refuse(403, "Downgrade.NotSupported", "The disk category %s %s can't be changed to %s.", from, c.From.Level, to)
	case state.Categories[to].Regional && (c.Disk.Bursting || c.From.IOPS != 0):
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "A disk with bursting or provisioned IOPS can't be changed to %s.", to)
	}
	if spec := state.Categories[to]; c.Disk.Size < spec.Min || c.Disk.Size > spec.Max {
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "The disk size %d does not fit: category %s takes %d to %d GiB.", c.Disk.Size, to, spec.Min, spec.Max)
	}
	return nil
}

// readDestination reads the zone of a regional disk that is to be in one, and
// of no other.
func readDestination(req *Request, c *state.SpecChange) *wire.Refusal {
	if !state.Categories[c.From.Category].Regional || state.Categories[c.To.Category].Regional {
		if state.Categories[c.To.Category].Regional {
			c.To.Zone = ""
		}
		return nil
	}
	c.To.Zone = req.Params["DestinationZoneId"]
	switch {
	case c.To.Zone == "":
		return wire.Refuse(400, "MissingParameter.DestinationZoneId", "The input parameter DestinationZoneId is mandatory for a regional disk that becomes zonal.")
	case !slices.Contains(req.Rules.Zones, c.To.Zone):
		return wire.Refuse(400, "InvalidDestinationZoneId.NotFound", "The specified DestinationZoneId %q does not exist.", c.To.Zone)
	}
	for _, a := range c.Disk.Attachments {
		if i := a.Instance; i.Zone != c.To.Zone {
			return wire.Refuse(400, "InvalidDestinationZoneId.ValueNotSupported", "The disk is attached to the instance %s in %s.", i.ID, i.Zone)
		}
	}
	return nil
}

// readTargetLevel reads PerformanceLevel: an ESSD has one, PL1 by default.
func readTargetLevel(_ *Request, c *state.SpecChange) *wire.Refusal {
	levels := state.Categories[c.To.Category].Levels
	switch {
	case levels == nil && c.To.Level != "":
		return wire.Refuse(400, "InvalidPerformanceLevelParam.Mismatch", "The specified PerformanceLevel %s does not match disk category %s, which has none.", c.To.Level, c.To.Category)
	case levels == nil:
		return nil
	case c.To.Level == "" && c.From.Category == c.To.Category:
		c.To.Level = c.From.Level
	case c.To.Level == "":
		c.To.Level = "PL1"
	}
	if c.To.Level == "PL0" && (c.From.Category == "cloud_essd" || c.From.Category == "cloud_ssd") && c.From.Level != "PL0" {
		return wire.Refuse(403, "InvalidPerformanceLevel.TooLow", "The disk %s can't be changed to PL0.", c.Disk.ID)
	}
	if least := levels[c.To.Level].Min; c.Disk.Size < least {
		return wire.Refuse(403, "OperationDenied.PerformanceLevelNotMatch", "The specified PerformanceLevel %s and disk size %d do not match: it takes %d GiB or more.", c.To.Level, c.Disk.Size, least)
	}
	return nil
}

// readTargetIOPS reads ProvisionedIops, which an AutoPL disk alone has and
// keeps if it is absent.
func readTargetIOPS(req *Request, c *state.SpecChange) (no *wire.Refusal) {
	fallback := 0
	if state.Categories[c.To.Category].Auto {
		fallback = c.From.IOPS
	}
	if c.To.IOPS, no = req.Params.Integer("ProvisionedIops", fallback); no != nil {
		return no
	}
	switch limit := state.MaxProvisionedIOPS(c.Disk.Size); {
	case req.Params["ProvisionedIops"] != "" && !state.Categories[c.To.Category].Auto:
		return wire.Refuse(400, "ProvisionedIopsForDiskCategoryUnsupported", "The specified disk category %s does not support provisioned IOPS.", c.To.Category)
	case c.To.IOPS < 0 || c.To.IOPS > limit && c.To.IOPS != c.From.IOPS:
		return wire.Refuse(400, "InvalidProvisionedIops.LimitExceed", "The specified ProvisionedIops %d exceeds the limit: 0 to %d for %d GiB.", c.To.IOPS, limit, c.Disk.Size)
	}
	return nil
}

// checkChange refuses a change that is none.
func checkChange(_ *Request, c *state.SpecChange) *wire.Refusal {
	if c.From != c.To {
		return nil
	}
	return wire.Refuse(403, "NoChangeInDiskCategoryAndPerformanceLevel", "The category and the performance level of disk %s are not changed.", c.Disk.ID)
}

// checkModifiable refuses a disk that is in no state to be changed.
func checkModifiable(req *Request, c *state.SpecChange) *wire.Refusal {
	d := c.Disk
	switch {
	case d.Task != nil:
		return wire.Refuse(403, "InvalidStatus.DiskNotReady", "The disk %s is being changed.", d.ID)
	case !req.Rules.Doubts.takesState(req.Action.Name, d):
		return wrongState(d)
	}
	return checkSnapshots(req, d)
}

// checkUsers refuses a change that an instance with the disk does not support.
func checkUsers(req *Request, c *state.SpecChange) *wire.Refusal {
	for _, a := range c.Disk.Attachments {
		i := a.Instance
		switch {
		case i.Status != state.InstanceRunning && i.Status != state.InstanceStopped:
			return wire.Refuse(400, "InvalidOperation.InstanceStatusUnsupported", "The current status %s of instance %s does not support this operation.", i.Status, i.ID)
		case !i.Kind.Takes(c.To.Category):
			return wire.Refuse(403, "InvalidInstanceType.NotSupportDiskCategory", "The instance type %s does not support disk category %s.", i.Kind.ID, c.To.Category)
		}
	}
	return nil
}

// checkCooling refuses a change too soon after the one before.
func checkCooling(req *Request, c *state.SpecChange) *wire.Refusal {
	cooling := &c.Disk.Cooling
	if !req.Now.Before(cooling.Until) {
		return nil
	}
	if cooling.Free && c.From.Category == c.To.Category {
		return nil
	}
	return wire.Refuse(403, "DiskInCoolingPeriod", "The disk %s was changed lately and can't be changed before %s.", c.Disk.ID, wire.Stamp(cooling.Until))
}

// checkModifyQuota refuses one change of category too many.
func checkModifyQuota(req *Request, c *state.SpecChange) *wire.Refusal {
	if c.From.Category == c.To.Category {
		return nil
	}
	n := 0
	for t := range req.Region.Present().Tasks() {
		if t.Status == state.TaskProcessing && t.Change.From.Category != t.Change.To.Category {
			n++
		}
	}
	if n >= req.Rules.Limits.CategoryChanges {
		return wire.Refuse(403, "ModifyingDiskCategoryLimitExceed", "The number of disks whose category is being changed exceeds the limit of %d.", n)
	}
	return nil
}

// startModify makes a task of the change and plans the end of it.
func startModify(req *Request, c state.SpecChange) wire.Object {
	d := c.Disk
	if c.From.Category == c.To.Category && req.Rules.Doubts.NoTaskForLevel {
		finishModify(req, c, req.Now)
		return wire.Object{"OrderId": ""}
	}
	t := &state.Task{Change: c, Status: state.TaskProcessing, Created: req.Now}
	req.Region.AddTask(t)
	d.Task, d.Modifying = t, c.From.Category != c.To.Category
	req.Region.Note(d, req.Now, req.Cause())
	span := req.Timing.Vary(req.Timing.Modify + time.Duration(d.Size)*req.Timing.ModifyPerTiB/1024)
	plan(req, state.Transition{
		At: repliesAt(req).Add(span), Disk: d.ID,
		Valid: func() bool { return d.Task == t },
		Done:  func(tr state.Transition) { finishTask(req, t, state.TaskFinished, tr); finishModify(req, c, tr.At) },
		Fail:  func(tr state.Transition) { finishTask(req, t, state.TaskFailed, tr) },
	})
	return wire.Object{"TaskId": t.ID, "OrderId": ""}
}

// finishTask ends a task and frees its disk.
func finishTask(req *Request, t *state.Task, status string, tr state.Transition) {
	d := t.Change.Disk
	t.Status, t.Finished = status, tr.At
	req.Region.Touch(t.ID)
	d.Task, d.Modifying, d.Modified = nil, false, tr.At
	req.Region.Note(d, tr.At, tr.Cause)
}

// finishModify gives the disk its new spec and lets it cool.
func finishModify(req *Request, c state.SpecChange, at time.Time) {
	d, l := c.Disk, req.Timing
	switch {
	case c.From.Category != c.To.Category && c.To.Category == "cloud_auto":
		d.Cooling = state.Cooling{Until: at.Add(l.CoolAuto), Free: c.To.IOPS == 0}
	case c.From.Category != c.To.Category:
		d.Cooling = state.Cooling{Until: at.Add(l.CoolCategory)}
	case c.From.IOPS != c.To.IOPS:
		d.Cooling = state.Cooling{Until: at.Add(l.CoolIOPS)}
	}
	d.Zone, d.Category, d.Level, d.ProvisionedIOPS = c.To.Zone, c.To.Category, c.To.Level, c.To.IOPS
	d.Bursting = d.Bursting && state.Categories[d.Category].Auto
}
