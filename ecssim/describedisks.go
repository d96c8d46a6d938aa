package ecssim

import (
	"iter"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeDisks = action{
	name:     "DescribeDisks",
	required: []string{"RegionId"},
	optional: []string{
		"ZoneId", "DiskIds", "InstanceId", "DiskType", "Category", "Status", "SnapshotId", "DiskName", "Tag.N.Key", "Tag.N.Value",
		"Tag.N.key", "Tag.N.value", "ResourceGroupId", "Portable", "DeleteWithInstance", "DeleteAutoSnapshot", "Encrypted", "KMSKeyId",
		"MultiAttach", "DiskChargeType", "Filter.N.Key", "Filter.N.Value", "AdditionalAttributes.N", "DryRun",
		"NextToken", "MaxResults", "PageNumber", "PageSize",
	},
	absent:     map[string]wire.Refusal{"RegionId": {Status: 400, Code: "MissingParamter.RegionId"}}, // ECS's spelling
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegion.NotFound"},
	do:         (*Server).describeDisks,
}

// maxTagged is how many resources a read by tags or resource group can reach.
const maxTagged = 1000

// describeDisks shows the disks that pass every filter, the newest first.
func (s *Server) describeDisks(x *exchange) (wire.Object, *wire.Refusal) {
	candidates, no := s.candidates(x)
	if no != nil {
		return nil, no
	}
	filters, no := s.diskFilters(x)
	if no != nil {
		return nil, no
	}
	page, no := s.readPage(x, wire.Paging{DefaultSize: 10, MaxSize: 100, MinResults: 10, MaxResults: 500})
	if no != nil {
		return nil, no
	}
	if dry, no := x.Params.Boolean("DryRun", false); no != nil || dry {
		return nil, orDryRun(no)
	}
	shown, reply := s.pageOfDisks(x, page, candidates, filters)
	x.extra = time.Duration(len(shown)) * s.timing.PerDisk
	reply["Disks"] = wire.Wrapped("Disk", wire.Each(shown, func(d *disk) wire.Object { return s.renderDisk(d, x) }))
	return reply, nil
}

// pageOfDisks returns the disks of a page. There may be very many, and everybody
// waits meanwhile: without filters, those of other pages are not looked at.
func (s *Server) pageOfDisks(x *exchange, pg wire.Page, candidates iter.Seq[*disk], filters []diskFilter) ([]*disk, wire.Object) {
	key := func(d *disk) int { return -d.seq }
	if x.Params["DiskIds"] == "" && len(filters) == 0 && !x.stale && x.fault.Do != faults.Hidden {
		all := s.disks.order
		hidden := x.now.Add(-s.timing.Visible) // what was created later is
		n := sort.Search(len(all), func(i int) bool { return all[i].created.After(hidden) })
		return wire.CutAt(pg, n, func(i int) *disk { return all[n-1-i] }, key)
	}
	limit := math.MaxInt
	if x.Params.HasList("Tag") || x.Params["ResourceGroupId"] != "" {
		limit = maxTagged
	}
	return wire.CutSeq(pg, s.visible(x, candidates, filters, limit), key)
}

// visible yields the candidates that a read may show and that pass every
// filter, up to a limit.
func (s *Server) visible(x *exchange, candidates iter.Seq[*disk], filters []diskFilter, limit int) iter.Seq[*disk] {
	latest := x.now.Add(-s.timing.Visible) // of the creation
	return func(yield func(*disk) bool) {
		n := 0
		for d := range candidates {
			if d.created.After(latest) || slices.ContainsFunc(filters, func(f diskFilter) bool { return !f(d) }) {
				continue
			}
			if n++; n > limit || !yield(d) {
				return
			}
		}
	}
}

// diskFilter tells whether a read may show a disk.
type diskFilter func(*disk) bool

// diskFilters reads the filters of a request. They are joined by AND.
func (s *Server) diskFilters(x *exchange) ([]diskFilter, *wire.Refusal) {
	readers := []func(*exchange) (diskFilter, *wire.Refusal){
		s.filterZone, filterStatus, filterCategory, filterType, s.filterTags, filterMultiAttach,
		filterTruth("Encrypted", func(d *disk) bool { return d.encrypted }),
		filterTruth("Portable", func(d *disk) bool { return !d.system }),
		filterTruth("DeleteWithInstance", func(d *disk) bool { return d.deleteWithInstance }),
		filterTruth("DeleteAutoSnapshot", func(d *disk) bool { return !d.keepAutoSnapshot }),
		filterChargeType, filterCreation,
		filterText("DiskName", func(d *disk) string { return d.name }),
		filterText("ResourceGroupId", func(d *disk) string { return d.resourceGroup }),
		filterText("KMSKeyId", func(d *disk) string { return d.kmsKey }),
		s.filterInstance,
		filterText("SnapshotId", (*disk).sourceID),
	}
	var filters []diskFilter
	for _, read := range readers {
		f, no := read(x)
		if no != nil {
			return nil, no
		}
		if f != nil {
			filters = append(filters, f)
		}
	}
	return filters, nil
}

// candidates yields the disks that DiskIds names, or all if it is absent.
func (s *Server) candidates(x *exchange) (iter.Seq[*disk], *wire.Refusal) {
	ids, given, no := x.Params.JSONList("DiskIds",
		func() *wire.Refusal {
			return wire.Refuse(403, "InvalidDiskIds.Malformed", "The amount of specified disk IDs exceeds the limit of 100.")
		},
		func() *wire.Refusal {
			return wire.Refuse(400, "InvalidParameter.DiskIds", "The specified parameter DiskIds is not valid: it must be a JSON array of disk IDs.")
		})
	if no != nil {
		return nil, no
	}
	if given && len(ids) == 1 {
		x.disk = ids[0]
	}
	return s.disksFor(x, ids, !given), nil
}

func (s *Server) filterZone(x *exchange) (diskFilter, *wire.Refusal) {
	zone := x.Params["ZoneId"]
	if zone == "" {
		return nil, nil
	}
	if !slices.Contains(s.config.Zones, zone) {
		return nil, wire.Refuse(400, "InvalidZoneId.NotFound", "The specified ZoneId %q does not exist.", zone)
	}
	return func(d *disk) bool { return d.zone == zone }, nil
}

func filterStatus(x *exchange) (diskFilter, *wire.Refusal) {
	status := x.Params["Status"]
	if !x.Params.OneOf("Status", diskStates...) {
		return nil, wire.Refuse(400, "InvalidStatus.ValueNotSupported", "The specified parameter Status %q is not valid: %s.", status, config.List(diskStates))
	}
	if status == "" || status == "All" {
		return nil, nil
	}
	return func(d *disk) bool { return d.shown(x.now) == status }, nil
}

func filterCategory(x *exchange) (diskFilter, *wire.Refusal) {
	category := x.Params["Category"]
	if category == "" || category == "all" {
		return nil, nil
	}
	if _, ok := categories[category]; !ok && !slices.Contains(localCategories, category) {
		return nil, wire.Refuse(400, "InvalidCategory.ValueNotSupported", "The specified parameter Category %q is not valid.", category)
	}
	return func(d *disk) bool { return d.category == category }, nil
}

// filterType reads DiskType.
func filterType(x *exchange) (diskFilter, *wire.Refusal) {
	if !x.Params.OneOf("DiskType", "all", "data", "system") {
		return nil, wire.Refuse(400, "InvalidDiskType.ValueNotSupported", "The specified parameter DiskType %q is not valid: all, data or system.", x.Params["DiskType"])
	}
	if x.Params["DiskType"] == "" || x.Params["DiskType"] == "all" {
		return nil, nil
	}
	return func(d *disk) bool { return d.kind() == x.Params["DiskType"] }, nil
}

func (s *Server) filterTags(x *exchange) (diskFilter, *wire.Refusal) {
	want, no := x.Params.Tags()
	if no != nil || len(want) == 0 {
		return nil, no
	}
	if len(want) > maxTags {
		return nil, wire.Refuse(400, "InvalidTagCount", "The specified tags are beyond the permitted range of %d.", maxTags)
	}
	return func(d *disk) bool { return wire.HasTags(d.tags.searched(x.now, s.timing.TagsVisible), want) }, nil
}

func filterMultiAttach(x *exchange) (diskFilter, *wire.Refusal) {
	if !x.Params.OneOf("MultiAttach", "Enabled", "Disabled", "LegacyShared") {
		return nil, wire.Refuse(403, "InvalidParameter.MultiAttach", "The specified parameter MultiAttach %q is not valid: Enabled, Disabled or LegacyShared.", x.Params["MultiAttach"])
	}
	if x.Params["MultiAttach"] == "" {
		return nil, nil
	}
	return func(d *disk) bool { return d.multiAttachText() == x.Params["MultiAttach"] }, nil
}

func filterChargeType(x *exchange) (diskFilter, *wire.Refusal) {
	if !x.Params.OneOf("DiskChargeType", "PrePaid", "PostPaid") {
		return nil, wire.Refuse(404, "InvalidDiskChargeType.NotFound", "The specified DiskChargeType %q is not valid: PrePaid or PostPaid.", x.Params["DiskChargeType"])
	}
	if x.Params["DiskChargeType"] != "PrePaid" {
		return nil, nil
	}
	return func(*disk) bool { return false }, nil
}

// filterInstance filters by the instances that reads show a disk attached to.
func (s *Server) filterInstance(x *exchange) (diskFilter, *wire.Refusal) {
	id := x.Params["InstanceId"]
	if id == "" {
		return nil, nil
	}
	return func(d *disk) bool {
		return slices.ContainsFunc(s.listed(d, x.now), func(a *attachment) bool { return a.instance.ID == id })
	}, nil
}

func filterTruth(name string, of func(*disk) bool) func(*exchange) (diskFilter, *wire.Refusal) {
	return func(x *exchange) (diskFilter, *wire.Refusal) {
		want, no := x.Params.Boolean(name, false)
		if no != nil || x.Params[name] == "" {
			return nil, no
		}
		return func(d *disk) bool { return of(d) == want }, nil
	}
}

func filterText(name string, of func(*disk) string) func(*exchange) (diskFilter, *wire.Refusal) {
	return func(x *exchange) (diskFilter, *wire.Refusal) {
		want := x.Params[name]
		if want == "" {
			return nil, nil
		}
		return func(d *disk) bool { return of(d) == want }, nil
	}
}

// filterCreation reads Filter.N: CreationStartTime and CreationEndTime.
func filterCreation(x *exchange) (diskFilter, *wire.Refusal) {
	from, to, no := creationBounds(x)
	if no != nil || from.IsZero() && to.IsZero() {
		return nil, no
	}
	return func(d *disk) bool {
		return (from.IsZero() || !d.created.Before(from)) && (to.IsZero() || !d.created.After(to))
	}, nil
}

func (d *disk) multiAttachText() string {
	if d.multiAttach {
		return "Enabled"
	}
	return "Disabled"
}

// listed returns the attachments that reads name the instances of.
func (s *Server) listed(d *disk, now time.Time) []*attachment {
	var list []*attachment
	for _, a := range d.attachments {
		phase := a.shown(now)
		if phase == diskInUse || phase == diskDetaching && !s.config.Doubts.HideDetaching || phase == diskAttaching && s.config.Doubts.ListAttaching {
			list = append(list, a)
		}
	}
	return list
}

// renderAttachments shows what a disk is attached to. A disk with MultiAttach
// has that in Attachments alone.
func (s *Server) renderAttachments(o wire.Object, d *disk, now time.Time) {
	list := []wire.Object{}
	for _, a := range s.listed(d, now) {
		list = append(list, wire.Object{"InstanceId": a.instance.ID, "Device": a.device, "AttachedTime": wire.Stamp(a.attached)})
		if !d.multiAttach && a.phase != diskAttaching {
			o["InstanceId"], o["Device"], o["AttachedTime"] = a.instance.ID, a.device, wire.Stamp(a.attached)
		}
	}
	o["Attachments"], o["MountInstances"], o["MountInstanceNum"] = wire.Wrapped("Attachment", list), wire.Wrapped("MountInstance", list), len(list)
}

// renderDisk returns a disk as DescribeDisks shows it.
func (s *Server) renderDisk(d *disk, x *exchange) wire.Object {
	o := wire.Object{
		"DiskId": d.id, "DiskName": d.name, "Description": d.description, "RegionId": s.config.Region, "ZoneId": d.zone,
		"Status": d.shown(x.now), "Type": d.kind(), "Category": d.category, "PerformanceLevel": d.level, "Size": d.size,
		"ProvisionedIops": d.provisionedIOPS, "BurstingEnabled": d.bursting, "Encrypted": d.encrypted, "KMSKeyId": d.kmsKey,
		"MultiAttach": d.multiAttachText(), "InstanceId": "", "Device": "", "SerialNumber": d.serial(), "BdfId": nil,
		"CreationTime": d.created.UTC().Format(wire.SecondTime), "AttachedTime": "", "DetachedTime": wire.Stamp(d.detached), "ExpiredTime": "2999-09-08T16:00Z",
		"DeleteWithInstance": d.deleteWithInstance, "DeleteAutoSnapshot": !d.keepAutoSnapshot,
		"EnableAutoSnapshot": !d.noAutoSnapshot, "EnableAutomatedSnapshotPolicy": false,
		"Portable": !d.system, "AutoSnapshotPolicyId": "", "DiskChargeType": "PostPaid", "ResourceGroupId": d.resourceGroup, "ImageId": "",
		"SourceSnapshotId": d.sourceID(), "StorageSetId": "", "StorageSetPartitionNumber": 0, "StorageClusterId": d.storageCluster, "ProductCode": "",
		"Tags": wire.Wrapped("Tag", s.tags(d.tags)), "OperationLocks": wire.Wrapped("OperationLock", d.renderLocks()),
	}
	s.renderAttachments(o, d, x.now)
	wanted := x.Params.List("AdditionalAttributes")
	if slices.Contains(wanted, "IOPS") {
		iops := categories[d.category].iops(d.size, d.level) + d.provisionedIOPS
		o["IOPS"], o["IOPSRead"], o["IOPSWrite"] = iops, iops, iops
	}
	if slices.Contains(wanted, "Placement") && d.zone == "" {
		o["Placement"] = wire.Object{"ZoneIds": strings.Join(s.config.Zones, "\n")}
	}
	return o
}
