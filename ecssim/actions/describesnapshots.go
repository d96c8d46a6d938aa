package actions

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeSnapshotsAction = Action{
	Name:     "DescribeSnapshots",
	required: []string{"RegionId"},
	optional: []string{
		"SnapshotIds", "DiskId", "InstanceId", "SnapshotName", "Status", "SnapshotType", "SourceDiskType", "Usage", "Category",
		"ResourceGroupId", "Encrypted", "KMSKeyId", "SnapshotLinkId",
		"Filter.N.Key", "Filter.N.Value", "DryRun", "NextToken", "MaxResults", "PageNumber", "PageSize",
	},
	tagged: true,
	lags:   true,
	do:     describeSnapshots,
}

// snapshotFilter tells whether a read may show a snapshot.
type snapshotFilter func(*state.Snapshot) bool

// describeSnapshots shows the snapshots that pass every filter, the newest
// first.
func describeSnapshots(req *Request) (wire.Object, *wire.Refusal) {
	ids, byID, no := req.Params.IDs("SnapshotIds", "snapshot")
	if no != nil {
		return nil, no
	}
	filters, no := snapshotFilters(req)
	if no != nil {
		return nil, no
	}
	page, no := readPage(req, wire.Paging{DefaultSize: 10, MaxSize: 100, MinResults: 10, MaxResults: 100})
	if no != nil {
		return nil, no
	}
	if dry, no := req.Params.Boolean("DryRun", false); no != nil || dry {
		return nil, orDryRun(no)
	}
	var found []*state.Snapshot
	for n := range snapshotsFor(req, ids, !byID) {
		if !slices.ContainsFunc(filters, func(f snapshotFilter) bool { return !f(n) }) {
			found = append(found, n)
		}
	}
	if (req.Params.HasList("Tag") || req.Params["ResourceGroupId"] != "") && len(found) > maxTagged {
		found = found[:maxTagged]
	}
	shown, reply := wire.Cut(page, found, func(n *state.Snapshot) int { return -n.Seq })
	reply["Snapshots"] = wire.Wrapped("Snapshot", wire.Each(shown, func(n *state.Snapshot) wire.Object { return renderSnapshot(req, n, req.Now) }))
	return reply, nil
}

// snapshotFilters reads the filters of a request. They are joined by AND.
func snapshotFilters(req *Request) ([]snapshotFilter, *wire.Refusal) {
	if no := checkSnapshotWords(req); no != nil {
		return nil, no
	}
	tags, no := searchedTags(req)
	if no != nil {
		return nil, no
	}
	encrypted, no := req.Params.Boolean("Encrypted", false)
	if no != nil {
		return nil, no
	}
	from, to, no := creationBounds(req)
	if no != nil {
		return nil, no
	}
	p := req.Params
	return []snapshotFilter{
		func(n *state.Snapshot) bool { return p["DiskId"] == "" || p["DiskId"] == n.DiskID },
		func(n *state.Snapshot) bool { return p["InstanceId"] == "" || n.OfInstance(p["InstanceId"]) },
		func(n *state.Snapshot) bool { return p["SnapshotName"] == "" || p["SnapshotName"] == n.Name },
		func(n *state.Snapshot) bool { return p["Status"] == "all" || p.OneOf("Status", n.Status) },
		func(n *state.Snapshot) bool { return p["SnapshotType"] == "all" || p.OneOf("SnapshotType", n.Kind()) },
		func(n *state.Snapshot) bool { return p.OneOf("SourceDiskType", n.Disk.Kind()) },
		func(n *state.Snapshot) bool { return p.OneOf("Usage", usage(req, n)) },
		func(*state.Snapshot) bool { return p.OneOf("Category", "standard") },
		func(n *state.Snapshot) bool { return p.OneOf("ResourceGroupId", n.ResourceGroup) },
		func(n *state.Snapshot) bool { return p["Encrypted"] == "" || n.Encrypted == encrypted },
		func(n *state.Snapshot) bool { return p.OneOf("KMSKeyId", n.KMSKey) },
		func(n *state.Snapshot) bool { return p.OneOf("SnapshotLinkId", n.LinkID()) },
		func(n *state.Snapshot) bool {
			return wire.HasTags(n.Tags.Searched(req.Now, req.Timing.TagsVisible), tags)
		},
		func(n *state.Snapshot) bool {
			return (from.IsZero() || !n.CutAt.Before(from)) && (to.IsZero() || state.Passed(n.CutAt, to))
		},
	}, nil
}

// checkSnapshotWords refuses words that the filters don't know.
func checkSnapshotWords(req *Request) *wire.Refusal {
	for _, w := range []struct {
		name    string
		allowed []string
	}{
		{"Status", state.SnapshotStates},
		{"SnapshotType", []string{"auto", "user", "all"}},
		{"SourceDiskType", []string{"system", "data"}},
		{"Usage", []string{"none", "image", "disk", "image_disk"}},
		{"Category", []string{"standard", "flash", "archive"}},
	} {
		if !req.Params.OneOf(w.name, w.allowed...) {
			return wire.Refuse(400, "Invalid"+w.name+".ValueNotSupported",
				"The specified parameter %s %q is not valid: %s.", w.name, req.Params[w.name], config.List(w.allowed))
		}
	}
	return nil
}

// usage tells what was made from a snapshot.
func usage(req *Request, n *state.Snapshot) string {
	if req.Region.MadeFrom(n) > 0 {
		return "disk"
	}
	return "none"
}

// creationBounds reads Filter.N: CreationStartTime and CreationEndTime. The
// zero time bounds nothing.
func creationBounds(req *Request) (from, to time.Time, no *wire.Refusal) {
	for _, n := range []string{"1", "2"} {
		key, value := req.Params["Filter."+n+".Key"], req.Params["Filter."+n+".Value"]
		if key == "" && value == "" {
			continue
		}
		into := map[string]*time.Time{"CreationStartTime": &from, "CreationEndTime": &to}[key]
		if into == nil {
			return from, to, wire.Refuse(404, "InvalidFilterKey.NotFound", "The specified Filter.%s.Key %q is not valid: CreationStartTime or CreationEndTime.", n, key)
		}
		t, err := time.Parse(wire.MinuteTime, value)
		if err != nil {
			return from, to, wire.Refuse(404, "InvalidFilterValue", "The specified Filter.%s.Value %q is not valid: it must be UTC in the form yyyy-MM-ddTHH:mmZ.", n, value)
		}
		*into = t
	}
	return from, to, nil
}

func percentText(n int) string { return fmt.Sprintf("%d%%", n) }

// renderSnapshot shows a snapshot as DescribeSnapshots does.
func renderSnapshot(req *Request, n *state.Snapshot, now time.Time) wire.Object {
	percent, left := n.Progress(now)
	cut := ""
	if state.Passed(n.CutAt, now) {
		cut = wire.Stamp(n.CutAt)
	}
	changed := cut
	if n.Status != state.SnapshotProgressing {
		changed = wire.Stamp(n.DoneAt)
	}
	return wire.Object{
		"SnapshotId": n.ID, "SnapshotName": n.Name, "Description": n.Description, "Status": n.Status, "Progress": percentText(percent),
		"RemainTime": int(math.Ceil(left.Seconds())), "Available": n.Usable(now), "CreationTime": cut, "LastModifiedTime": changed,
		"SourceDiskId": n.DiskID, "SourceDiskSize": fmt.Sprint(n.Size), "SourceDiskType": n.Disk.Kind(), "SourceStorageType": "disk",
		"Encrypted": n.Encrypted, "KMSKeyId": n.KMSKey, "Usage": usage(req, n), "SnapshotType": n.Kind(), "SnapshotLinkId": n.LinkID(),
		"SnapshotSN": n.ID[len(state.SnapshotPrefix):], "RetentionDays": n.RetentionDays, "Category": "standard",
		"InstantAccess": state.Categories[n.Category].Instant, "InstantAccessRetentionDays": 0, "RegionId": req.Rules.Region,
		"SourceRegionId": "", "SourceSnapshotId": "", "ResourceGroupId": n.ResourceGroup, "ProductCode": "", "Tags": renderTags(req, n.Tags),
	}
}
