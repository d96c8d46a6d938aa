package actions

import (
	"iter"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeDisksAction = Action{
	Name:     "DescribeDisks",
	required: []string{"RegionId"},
	optional: []string{
		"ZoneId", "DiskIds", "InstanceId", "DiskType", "Category", "Status", "SnapshotId", "DiskName", "ResourceGroupId", "Portable",
		"DeleteWithInstance", "DeleteAutoSnapshot", "Encrypted", "KMSKeyId", "MultiAttach", "DiskChargeType", "Filter.N.Key", "Filter.N.Value",
		"AdditionalAttributes.N", "DryRun", "NextToken", "MaxResults", "PageNumber", "PageSize",
	},
	tagged:     true,
	absent:     map[string]wire.Refusal{"RegionId": {Status: 400, Code: "MissingParamter.RegionId"}}, // ECS's spelling
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegion.NotFound"},
	lags:       true,
	do:         describeDisks,
}

// maxTagged is how many resources a read by tags or resource group can reach.
const maxTagged = 1000

// describeDisks shows the disks that pass every filter, the newest first.
func describeDisks(req *Request) (wire.Object, *wire.Refusal) {
	candidates, no := candidates(req)
	if no != nil {
		return nil, no
	}
	filters, no := diskFilters(req)
	if no != nil {
		return nil, no
	}
	page, no := readPage(req, wire.Paging{DefaultSize: 10, MaxSize: 100, MinResults: 10, MaxResults: 500})
	if no != nil {
		return nil, no
	}
	if dry, no := req.Params.Boolean("DryRun", false); no != nil || dry {
		return nil, orDryRun(no)
	}
	shown, reply := pageOfDisks(req, page, candidates, filters)
	req.Extra = time.Duration(len(shown)) * req.Timing.PerDisk
	reply["Disks"] = wire.Wrapped("Disk", wire.Each(shown, func(d *state.Disk) wire.Object { return renderDisk(req, d) }))
	return reply, nil
}

// pageOfDisks returns the disks of a page. There may be very many, and everybody
// waits meanwhile: without filters, those of other pages are not looked at.
func pageOfDisks(req *Request, pg wire.Page, candidates iter.Seq[*state.Disk], filters []diskFilter) ([]*state.Disk, wire.Object) {
	key := func(d *state.Disk) int { return -d.Seq }
	if req.Params["DiskIds"] == "" && len(filters) == 0 && !req.stale && req.Fault.Do != faults.Hidden {
		all := req.Region.AllDisks()
		hidden := req.Now.Add(-req.Timing.Visible) // what was created later is
		n := sort.Search(len(all), func(i int) bool { return all[i].Created.After(hidden) })
		return wire.CutAt(pg, n, func(i int) *state.Disk { return all[n-1-i] }, key)
	}
	limit := math.MaxInt
	if req.Params.HasList("Tag") || req.Params["ResourceGroupId"] != "" {
		limit = maxTagged
	}
	return wire.CutSeq(pg, visible(req, candidates, filters, limit), key)
}

// visible yields the candidates that a read may show and that pass every
// filter, up to a limit.
func visible(req *Request, candidates iter.Seq[*state.Disk], filters []diskFilter, limit int) iter.Seq[*state.Disk] {
	latest := req.Now.Add(-req.Timing.Visible) // of the creation
	return func(yield func(*state.Disk) bool) {
		n := 0
		for d := range candidates {
			if d.Created.After(latest) || slices.ContainsFunc(filters, func(f diskFilter) bool { return !f(d) }) {
				continue
			}
			if n++; n > limit || !yield(d) {
				return
			}
		}
	}
}

// diskFilter tells whether a read may show a disk.
type diskFilter func(*state.Disk) bool

// diskFilters reads the filters of a request. They are joined by AND.
func diskFilters(req *Request) ([]diskFilter, *wire.Refusal) {
	readers := []func(*Request) (diskFilter, *wire.Refusal){
		filterZone, filterStatus, filterCategory, filterType, filterTags, filterMultiAttach,
		filterTruth("Encrypted", func(d *state.Disk) bool { return d.Encrypted }),
		filterTruth("Portable", func(d *state.Disk) bool { return !d.System }),
		filterTruth("DeleteWithInstance", func(d *state.Disk) bool { return d.DeleteWithInstance }),
		filterTruth("DeleteAutoSnapshot", func(d *state.Disk) bool { return !d.KeepAutoSnapshot }),
		filterChargeType, filterCreation,
		filterText("DiskName", func(d *state.Disk) string { return d.Name }),
		filterText("ResourceGroupId", func(d *state.Disk) string { return d.ResourceGroup }),
		filterText("KMSKeyId", func(d *state.Disk) string { return d.KMSKey }),
		filterInstance,
		filterText("SnapshotId", (*state.Disk).SourceID),
	}
	var filters []diskFilter
	for _, read := range readers {
		f, no := read(req)
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
func candidates(req *Request) (iter.Seq[*state.Disk], *wire.Refusal) {
	ids, given, no := req.Params.IDs("DiskIds", "disk")
	if no != nil {
		return nil, no
	}
	if given && len(ids) == 1 {
		req.Disk = ids[0]
	}
	return disksFor(req, ids, !given), nil
}

func filterZone(req *Request) (diskFilter, *wire.Refusal) {
	zone := req.Params["ZoneId"]
	if zone == "" {
		return nil, nil
	}
	if !slices.Contains(req.Rules.Zones, zone) {
		return nil, wire.Refuse(400, "InvalidZoneId.NotFound", "The specified ZoneId %q does not exist.", zone)
	}
	return func(d *state.Disk) bool { return d.Zone == zone }, nil
}

func filterStatus(req *Request) (diskFilter, *wire.Refusal) {
	status := req.Params["Status"]
	if !req.Params.OneOf("Status", state.DiskStates...) {
		return nil, wire.Refuse(400, "InvalidStatus.ValueNotSupported", "The specified parameter Status %q is not valid: %s.", status, config.List(state.DiskStates))
	}
	if status == "" || status == "All" {
		return nil, nil
	}
	return func(d *state.Disk) bool { return d.Shown(req.Now) == status }, nil
}

func filterCategory(req *Request) (diskFilter, *wire.Refusal) {
	category := req.Params["Category"]
	if category == "" || category == "all" {
		return nil, nil
	}
	if _, ok := state.Categories[category]; !ok && !slices.Contains(state.LocalCategories, category) {
		return nil, wire.Refuse(400, "InvalidCategory.ValueNotSupported", "The specified parameter Category %q is not valid.", category)
	}
	return func(d *state.Disk) bool { return d.Category == category }, nil
}

// filterType reads DiskType.
func filterType(req *Request) (diskFilter, *wire.Refusal) {
	if !req.Params.OneOf("DiskType", "all", "data", "system") {
		return nil, wire.Refuse(400, "InvalidDiskType.ValueNotSupported", "The specified parameter DiskType %q is not valid: all, data or system.", req.Params["DiskType"])
	}
	if req.Params["DiskType"] == "" || req.Params["DiskType"] == "all" {
		return nil, nil
	}
	return func(d *state.Disk) bool { return d.Kind() == req.Params["DiskType"] }, nil
}

func filterTags(req *Request) (diskFilter, *wire.Refusal) {
	want, no := req.Params.Tags()
	if no != nil || len(want) == 0 {
		return nil, no
	}
	if len(want) > state.MaxTags {
		return nil, wire.Refuse(400, "InvalidTagCount", "The specified tags are beyond the permitted range of %d.", state.MaxTags)
	}
	return func(d *state.Disk) bool { return wire.HasTags(d.Tags.Searched(req.Now, req.Timing.TagsVisible), want) }, nil
}

func filterMultiAttach(req *Request) (diskFilter, *wire.Refusal) {
	if !req.Params.OneOf("MultiAttach", "Enabled", "Disabled", "LegacyShared") {
		return nil, wire.Refuse(403, "InvalidParameter.MultiAttach", "The specified parameter MultiAttach %q is not valid: Enabled, Disabled or LegacyShared.", req.Params["MultiAttach"])
	}
	if req.Params["MultiAttach"] == "" {
		return nil, nil
	}
	return func(d *state.Disk) bool { return multiAttachText(d) == req.Params["MultiAttach"] }, nil
}

func filterChargeType(req *Request) (diskFilter, *wire.Refusal) {
	if !req.Params.OneOf("DiskChargeType", "PrePaid", "PostPaid") {
		return nil, wire.Refuse(404, "InvalidDiskChargeType.NotFound", "The specified DiskChargeType %q is not valid: PrePaid or PostPaid.", req.Params["DiskChargeType"])
	}
	if req.Params["DiskChargeType"] != "PrePaid" {
		return nil, nil
	}
	return func(*state.Disk) bool { return false }, nil
}

// filterInstance filters by the instances that reads show a disk attached to.
func filterInstance(req *Request) (diskFilter, *wire.Refusal) {
	id := req.Params["InstanceId"]
	if id == "" {
		return nil, nil
	}
	return func(d *state.Disk) bool {
		return slices.ContainsFunc(listed(req, d, req.Now), func(a *state.Attachment) bool { return a.Instance.ID == id })
	}, nil
}

func filterTruth(name string, of func(*state.Disk) bool) func(*Request) (diskFilter, *wire.Refusal) {
	return func(req *Request) (diskFilter, *wire.Refusal) {
		want, no := req.Params.Boolean(name, false)
		if no != nil || req.Params[name] == "" {
			return nil, no
		}
		return func(d *state.Disk) bool { return of(d) == want }, nil
	}
}

func filterText(name string, of func(*state.Disk) string) func(*Request) (diskFilter, *wire.Refusal) {
	return func(req *Request) (diskFilter, *wire.Refusal) {
		want := req.Params[name]
		if want == "" {
			return nil, nil
		}
		return func(d *state.Disk) bool { return of(d) == want }, nil
	}
}

// filterCreation reads Filter.N: CreationStartTime and CreationEndTime.
func filterCreation(req *Request) (diskFilter, *wire.Refusal) {
	from, to, no := creationBounds(req)
	if no != nil || from.IsZero() && to.IsZero() {
		return nil, no
	}
	return func(d *state.Disk) bool {
		return (from.IsZero() || !d.Created.Before(from)) && (to.IsZero() || !d.Created.After(to))
	}, nil
}

// multiAttachText is MultiAttach as ECS writes it.
func multiAttachText(d *state.Disk) string {
	if d.MultiAttach {
		return "Enabled"
	}
	return "Disabled"
}

// listed returns the attachments that reads name the instances of.
func listed(req *Request, d *state.Disk, now time.Time) []*state.Attachment {
	doubts := req.Rules.Doubts
	phases := map[string]bool{state.DiskInUse: true, state.DiskDetaching: !doubts.HideDetaching, state.DiskAttaching: doubts.ListAttaching}
	var list []*state.Attachment
	for _, a := range d.Attachments {
		if phases[a.Shown(now)] {
			list = append(list, a)
		}
	}
	return list
}

// renderAttachments shows what a disk is attached to. A disk with MultiAttach
// has that in Attachments alone.
func renderAttachments(req *Request, o wire.Object, d *state.Disk, now time.Time) {
	list := []wire.Object{}
	for _, a := range listed(req, d, now) {
		list = append(list, wire.Object{"InstanceId": a.Instance.ID, "Device": a.Device, "AttachedTime": wire.Stamp(a.Attached)})
		if !d.MultiAttach && a.Phase != state.DiskAttaching {
			o["InstanceId"], o["Device"], o["AttachedTime"] = a.Instance.ID, a.Device, wire.Stamp(a.Attached)
		}
	}
	o["Attachments"], o["MountInstances"], o["MountInstanceNum"] = wire.Wrapped("Attachment", list), wire.Wrapped("MountInstance", list), len(list)
}

// renderDisk returns a disk as DescribeDisks shows it.
func renderDisk(req *Request, d *state.Disk) wire.Object {
	o := wire.Object{
		"DiskId": d.ID, "DiskName": d.Name, "Description": d.Description, "RegionId": req.Rules.Region, "ZoneId": d.Zone,
		"Status": d.Shown(req.Now), "Type": d.Kind(), "Category": d.Category, "PerformanceLevel": d.Level, "Size": d.Size,
		"ProvisionedIops": d.ProvisionedIOPS, "BurstingEnabled": d.Bursting, "Encrypted": d.Encrypted, "KMSKeyId": d.KMSKey,
		"MultiAttach": multiAttachText(d), "InstanceId": "", "Device": "", "SerialNumber": d.Serial(), "BdfId": nil,
		"CreationTime": d.Created.UTC().Format(wire.SecondTime), "AttachedTime": "", "DetachedTime": wire.Stamp(d.Detached), "ExpiredTime": "2999-09-08T16:00Z",
		"DeleteWithInstance": d.DeleteWithInstance, "DeleteAutoSnapshot": !d.KeepAutoSnapshot,
		"EnableAutoSnapshot": !d.NoAutoSnapshot, "EnableAutomatedSnapshotPolicy": false,
		"Portable": !d.System, "AutoSnapshotPolicyId": "", "DiskChargeType": "PostPaid", "ResourceGroupId": d.ResourceGroup, "ImageId": "",
		"SourceSnapshotId": d.SourceID(), "StorageSetId": "", "StorageSetPartitionNumber": 0, "StorageClusterId": d.StorageCluster, "ProductCode": "",
		"Tags": renderTags(req, d.Tags), "OperationLocks": wire.Wrapped("OperationLock", renderLocks(d.Locks)),
	}
	renderAttachments(req, o, d, req.Now)
	wanted := req.Params.List("AdditionalAttributes")
	if slices.Contains(wanted, "IOPS") {
		iops := state.Categories[d.Category].IOPS(d.Size, d.Level) + d.ProvisionedIOPS
		o["IOPS"], o["IOPSRead"], o["IOPSWrite"] = iops, iops, iops
	}
	if slices.Contains(wanted, "Placement") && d.Zone == "" {
		o["Placement"] = wire.Object{"ZoneIds": strings.Join(req.Rules.Zones, "\n")}
	}
	return o
}
