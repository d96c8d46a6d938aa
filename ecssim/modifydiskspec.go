package ecssim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var modifyDiskSpec = action{
	name:     "ModifyDiskSpec",
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
	do: (*Server).modifyDiskSpec,
}

// diskSpec is what ModifyDiskSpec changes of a disk.
type diskSpec struct {
	zone, category, level string
	iops                  int
}

// String is the category with the level or the provisioned IOPS, if any.
func (c diskSpec) String() string {
	if c.iops != 0 {
		return fmt.Sprintf("%s %d IOPS", c.category, c.iops)
	}
	return strings.TrimSpace(c.category + " " + c.level)
}

func (d *disk) spec() diskSpec { return diskSpec{d.zone, d.category, d.level, d.provisionedIOPS} }

// respec is a change of a disk's spec that is asked for.
type respec struct {
	disk     *disk
	from, to diskSpec
}

// cooling is the time after a change in which there can't be another.
type cooling struct {
	until time.Time
	free  bool // one change of the IOPS alone may come all the same
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
func (s *Server) modifyDiskSpec(x *exchange) (wire.Object, *wire.Refusal) {
	dry, no := x.Params.Boolean("DryRun", false)
	if no != nil {
		return nil, no
	}
	var c respec
	steps := []func(*exchange, *respec) *wire.Refusal{
		readTarget, s.findModified, s.checkModifiable, checkPath, s.readDestination, readTargetLevel, readTargetIOPS,
		checkChange, s.checkUsers, s.checkCooling, s.checkModifyQuota,
	}
	for _, step := range steps {
		if no := step(x, &c); no != nil {
			return nil, no
		}
	}
	if dry {
		return nil, orDryRun(nil)
	}
	if c.to.category != c.from.category {
		if no := s.checkCapacity(c.to.zone, c.to.category, c.disk.size); no != nil {
			return nil, no
		}
		if no := s.stock.take(c.to.zone, c.to.category); no != nil {
			no := soldOut["OperationDenied.NoStock"]
			return nil, &no
		}
	}
	return s.startModify(x, c), nil
}

// readTarget reads the parameters that stand for themselves.
func readTarget(x *exchange, c *respec) *wire.Refusal {
	c.to.category, c.to.level = x.Params["DiskCategory"], x.Params["PerformanceLevel"]
	switch {
	case !x.Params.OneOf("DiskCategory", targets...):
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "The specified parameter DiskCategory %q is not valid: %s.", c.to.category, config.List(targets))
	case !x.Params.OneOf("PerformanceLevel", "PL0", "PL1", "PL2", "PL3"):
		return wire.Refuse(400, "InvalidPerformanceLevel.Malformed", "The specified parameter PerformanceLevel %q is not valid: PL0, PL1, PL2 or PL3.", c.to.level)
	}
	return nil
}

// findModified finds the disk, whose category is the fallback.
func (s *Server) findModified(x *exchange, c *respec) (no *wire.Refusal) {
	if c.disk, no = s.findDisk(x.disk); no != nil {
		return no
	}
	c.from = c.disk.spec()
	c.to.zone = c.from.zone
	if c.to.category == "" {
		c.to.category = c.from.category
	}
	return nil
}

// checkPath refuses a change of category that ECS does not make.
func checkPath(_ *exchange, c *respec) *wire.Refusal {
	from, to := c.from.category, c.to.category
	switch {
	case c.disk.multiAttach:
		return wire.Refuse(403, "InvalidOperation.MultiAttachDisk", "A disk with MultiAttach does not support this operation.")
	case paths[from] == nil:
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "The disk category %s can't be changed.", from)
	case from == to:
		return nil
	case !slices.Contains(paths[from], to), from == "cloud_essd" && categories[to].regional && c.from.level != "PL0" && c.from.level != "PL1":
		return wire.Refuse(403, "Downgrade.NotSupported", "The disk category %s %s can't be changed to %s.", from, c.from.level, to)
	case categories[to].regional && (c.disk.bursting || c.from.iops != 0):
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "A disk with bursting or provisioned IOPS can't be changed to %s.", to)
	}
	if spec := categories[to]; c.disk.size < spec.min || c.disk.size > spec.max {
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "The disk size %d does not fit: category %s takes %d to %d GiB.", c.disk.size, to, spec.min, spec.max)
	}
	return nil
}

// readDestination reads the zone of a regional disk that is to be in one, and
// of no other.
func (s *Server) readDestination(x *exchange, c *respec) *wire.Refusal {
	if !categories[c.from.category].regional || categories[c.to.category].regional {
		if categories[c.to.category].regional {
			c.to.zone = ""
		}
		return nil
	}
	c.to.zone = x.Params["DestinationZoneId"]
	switch {
	case c.to.zone == "":
		return wire.Refuse(400, "MissingParameter.DestinationZoneId", "The input parameter DestinationZoneId is mandatory for a regional disk that becomes zonal.")
	case !slices.Contains(s.config.Zones, c.to.zone):
		return wire.Refuse(400, "InvalidDestinationZoneId.NotFound", "The specified DestinationZoneId %q does not exist.", c.to.zone)
	}
	for _, a := range c.disk.attachments {
		if a.instance.Zone != c.to.zone {
			return wire.Refuse(400, "InvalidDestinationZoneId.ValueNotSupported", "The disk is attached to the instance %s in %s.", a.instance.ID, a.instance.Zone)
		}
	}
	return nil
}

// readTargetLevel reads PerformanceLevel: an ESSD has one, PL1 by default.
func readTargetLevel(_ *exchange, c *respec) *wire.Refusal {
	levels := categories[c.to.category].levels
	switch {
	case levels == nil && c.to.level != "":
		return wire.Refuse(400, "InvalidPerformanceLevelParam.Mismatch", "The specified PerformanceLevel %s does not match disk category %s, which has none.", c.to.level, c.to.category)
	case levels == nil:
		return nil
	case c.to.level == "" && c.from.category == c.to.category:
		c.to.level = c.from.level
	case c.to.level == "":
		c.to.level = "PL1"
	}
	if c.to.level == "PL0" && (c.from.category == "cloud_essd" || c.from.category == "cloud_ssd") && c.from.level != "PL0" {
		return wire.Refuse(403, "InvalidPerformanceLevel.TooLow", "The disk %s can't be changed to PL0.", c.disk.id)
	}
	if least := levels[c.to.level].min; c.disk.size < least {
		return wire.Refuse(403, "OperationDenied.PerformanceLevelNotMatch", "The specified PerformanceLevel %s and disk size %d do not match: it takes %d GiB or more.", c.to.level, c.disk.size, least)
	}
	return nil
}

// readTargetIOPS reads ProvisionedIops, which an AutoPL disk alone has and
// keeps if it is absent.
func readTargetIOPS(x *exchange, c *respec) (no *wire.Refusal) {
	fallback := 0
	if categories[c.to.category].auto {
		fallback = c.from.iops
	}
	if c.to.iops, no = x.Params.Integer("ProvisionedIops", fallback); no != nil {
		return no
	}
	switch limit := maxProvisionedIOPS(c.disk.size); {
	case x.Params["ProvisionedIops"] != "" && !categories[c.to.category].auto:
		return wire.Refuse(400, "ProvisionedIopsForDiskCategoryUnsupported", "The specified disk category %s does not support provisioned IOPS.", c.to.category)
	case c.to.iops < 0 || c.to.iops > limit && c.to.iops != c.from.iops:
		return wire.Refuse(400, "InvalidProvisionedIops.LimitExceed", "The specified ProvisionedIops %d exceeds the limit: 0 to %d for %d GiB.", c.to.iops, limit, c.disk.size)
	}
	return nil
}

// checkChange refuses a change that is none.
func checkChange(_ *exchange, c *respec) *wire.Refusal {
	if c.from != c.to {
		return nil
	}
	return wire.Refuse(403, "NoChangeInDiskCategoryAndPerformanceLevel", "The category and the performance level of disk %s are not changed.", c.disk.id)
}

// checkModifiable refuses a disk that is in no state to be changed.
func (s *Server) checkModifiable(x *exchange, c *respec) *wire.Refusal {
	d := c.disk
	switch {
	case d.task != nil:
		return wire.Refuse(403, "InvalidStatus.DiskNotReady", "The disk %s is being changed.", d.id)
	case !s.config.Doubts.takesState(x.action.name, d):
		return wrongState(d)
	}
	return s.checkSnapshots(d)
}

// checkUsers refuses a change that an instance with the disk does not support.
func (s *Server) checkUsers(_ *exchange, c *respec) *wire.Refusal {
	for _, a := range c.disk.attachments {
		i := a.instance
		switch {
		case i.Status != instanceRunning && i.Status != instanceStopped:
			return wire.Refuse(400, "InvalidOperation.InstanceStatusUnsupported", "The current status %s of instance %s does not support this operation.", i.Status, i.ID)
		case !i.kind.takes(c.to.category):
			return wire.Refuse(403, "InvalidInstanceType.NotSupportDiskCategory", "The instance type %s does not support disk category %s.", i.kind.ID, c.to.category)
		}
	}
	return nil
}

// checkCooling refuses a change too soon after the one before.
func (s *Server) checkCooling(x *exchange, c *respec) *wire.Refusal {
	cooling := &c.disk.cooling
	if !x.now.Before(cooling.until) {
		return nil
	}
	if cooling.free && c.from.category == c.to.category {
		return nil
	}
	return wire.Refuse(403, "DiskInCoolingPeriod", "The disk %s was changed lately and can't be changed before %s.", c.disk.id, wire.Stamp(cooling.until))
}

// checkModifyQuota refuses one change of category too many.
func (s *Server) checkModifyQuota(_ *exchange, c *respec) *wire.Refusal {
	if c.from.category == c.to.category {
		return nil
	}
	n := 0
	for _, t := range s.tasks {
		if t.status == taskProcessing && t.change.from.category != t.change.to.category {
			n++
		}
	}
	if n >= s.config.Limits.CategoryChanges {
		return wire.Refuse(403, "ModifyingDiskCategoryLimitExceed", "The number of disks whose category is being changed exceeds the limit of %d.", n)
	}
	return nil
}

// startModify makes a task of the change and plans the end of it.
func (s *Server) startModify(x *exchange, c respec) wire.Object {
	d := c.disk
	if c.from.category == c.to.category && s.config.Doubts.NoTaskForLevel {
		s.finishModify(c, x.now)
		return wire.Object{"OrderId": ""}
	}
	s.tasksMade++
	t := &task{seq: s.tasksMade, id: s.ids.resource(taskPrefix), change: c, status: taskProcessing, created: x.now}
	s.addTask(t)
	s.earlier.touch(t.id)
	d.task, d.modifying = t, c.from.category != c.to.category
	s.note(d, x.now, x.cause())
	span := s.timing.Vary(s.timing.Modify + time.Duration(d.size)*s.timing.ModifyPerTiB/1024)
	s.plan(x, transition{
		at: s.repliesAt(x).Add(span), disk: d.id,
		valid: func() bool { return d.task == t },
		done:  func(tr transition) { s.finishTask(t, taskFinished, tr); s.finishModify(c, tr.at) },
		fail:  func(tr transition) { s.finishTask(t, taskFailed, tr) },
	})
	return wire.Object{"TaskId": t.id, "OrderId": ""}
}

// finishTask ends a task and frees its disk.
func (s *Server) finishTask(t *task, status string, tr transition) {
	d := t.change.disk
	t.status, t.finished = status, tr.at
	s.earlier.touch(t.id)
	d.task, d.modifying, d.modified = nil, false, tr.at
	s.note(d, tr.at, tr.cause)
}

// finishModify gives the disk its new spec and lets it cool.
func (s *Server) finishModify(c respec, at time.Time) {
	d, l := c.disk, s.timing.Latency
	switch {
	case c.from.category != c.to.category && c.to.category == "cloud_auto":
		d.cooling = cooling{until: at.Add(l.CoolAuto), free: c.to.iops == 0}
	case c.from.category != c.to.category:
		d.cooling = cooling{until: at.Add(l.CoolCategory)}
	case c.from.iops != c.to.iops:
		d.cooling = cooling{until: at.Add(l.CoolIOPS)}
	}
	d.zone, d.category, d.level, d.provisionedIOPS = c.to.zone, c.to.category, c.to.level, c.to.iops
	d.bursting = d.bursting && categories[d.category].auto
}
