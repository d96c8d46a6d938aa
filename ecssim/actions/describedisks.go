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
	if no := checkDiskWords(req); no != nil {
		return nil, no
	}
	tags, no := searchedTags(req)
	if no != nil {
		return nil, no
	}
	from, to, no := creationBounds(req)
	if no != nil {
		return nil, no
	}
	filters, no := truthFilters(req)
	if no != nil {
		return nil, no
	}
	where := func(given bool, f diskFilter) {
		if given {
			filters = append(filters, f)
		}
	}
	for name, of := range diskTexts {
		want := req.Params[name]
		every := want == "all" && (name == "Category" || name == "DiskType")
		where(want != "" && !every, func(d *state.Disk) bool { return of(d) == want })
	}
	status, instance := req.Params["Status"], req.Params["InstanceId"]
	where(status != "" && status != "All", func(d *state.Disk) bool { return d.Shown(req.Now) == status })
	where(instance != "", func(d *state.Disk) bool {
		return slices.ContainsFunc(listed(req, d, req.Now), func(a *state.Attachment) bool { return a.Instance.ID == instance })
	})
	where(len(tags) > 0, func(d *state.Disk) bool { return wire.HasTags(d.Tags.Searched(req.Now, req.Timing.TagsVisible), tags) })
	where(!from.IsZero(), func(d *state.Disk) bool { return !d.Created.Before(from) })
	where(!to.IsZero(), func(d *state.Disk) bool { return !d.Created.After(to) })
	return filters, nil
}

// diskTexts are the parameters that a text of a disk must equal.
var diskTexts = map[string]func(*state.Disk) string{
	"ZoneId":          func(d *state.Disk) string { return d.Zone },
	"Category":        func(d *state.Disk) string { return d.Category },
	"DiskType":        (*state.Disk).Kind,
	"MultiAttach":     multiAttachText,
	"DiskChargeType":  func(*state.Disk) string { return "PostPaid" },
	"DiskName":        func(d *state.Disk) string { return d.Name },
	"ResourceGroupId": func(d *state.Disk) string { return d.ResourceGroup },
	"KMSKeyId":        func(d *state.Disk) string { return d.KMSKey },
	"SnapshotId":      (*state.Disk).SourceID,
}

// truthFilters reads the filters that are true or false.
func truthFilters(req *Request) ([]diskFilter, *wire.Refusal) {
	var filters []diskFilter
	for _, truth := range []struct {
		name string
		of   func(*state.Disk) bool
	}{
		{"Encrypted", func(d *state.Disk) bool { return d.Encrypted }},
		{"Portable", func(d *state.Disk) bool { return !d.System }},
		{"DeleteWithInstance", func(d *state.Disk) bool { return d.DeleteWithInstance }},
		{"DeleteAutoSnapshot", func(d *state.Disk) bool { return !d.KeepAutoSnapshot }},
	} {
		want, no := req.Params.Boolean(truth.name, false)
		if no != nil {
			return nil, no
		}
		if req.Params[truth.name] != "" {
			filters = append(filters, func(d *state.Disk) bool { return truth.of(d) == want })
		}
	}
	return filters, nil
}

// checkDiskWords refuses words that the filters don't know.
func checkDiskWords(req *Request) *wire.Refusal {
	p, zone, category := req.Params, req.Params["ZoneId"], req.Params["Category"]
	_, known := state.Categories[category]
	switch {
	case zone != "" && !slices.Contains(req.Rules.Zones, zone):
		return wire.Refuse(400, "InvalidZoneId.NotFound", "The specified ZoneId %q does not exist.", zone)
	case !p.OneOf("Status", state.DiskStates...):
		return wire.Refuse(400, "InvalidStatus.ValueNotSupported", "The specified parameter Status %q is not valid: %s.", p["Status"], config.List(state.DiskStates))
	case category != "" && category != "all" && !known && !slices.Contains(state.LocalCategories, category):
		return wire.Refuse(400, "InvalidCategory.ValueNotSupported", "The specified parameter Category %q is not valid.", category)
	case !p.OneOf("DiskType", "all", "data", "system"):
		return wire.Refuse(400, "InvalidDiskType.ValueNotSupported", "The specified parameter DiskType %q is not valid: all, data or system.", p["DiskType"])
	case !p.OneOf("MultiAttach", "Enabled", "Disabled", "LegacyShared"):
		return wire.Refuse(403, "InvalidParameter.MultiAttach", "The specified parameter MultiAttach %q is not valid: Enabled, Disabled or LegacyShared.", p["MultiAttach"])
	case !p.OneOf("DiskChargeType", "PrePaid", "PostPaid"):
		return wire.Refuse(404, "InvalidDiskChargeType.NotFound", "The specified DiskChargeType %q is not valid: PrePaid or PostPaid.", p["DiskChargeType"])
	}
	return nil
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
