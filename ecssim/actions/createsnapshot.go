package actions

import (
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var createSnapshotAction = Action{
	Name:     "CreateSnapshot",
	required: []string{"DiskId"},
	optional: []string{
		"SnapshotName", "Description", "RetentionDays", "ResourceGroupId",
		"ClientToken", "Category", "InstantAccess", "InstantAccessRetentionDays", "StorageLocationArn",
	},
	tagged: true,
	about:  [][2]string{{"disk", "DiskId"}, {"snapshot"}},
	do:     createSnapshot,
}

// createSnapshot starts to make a snapshot, or returns the one that its
// ClientToken made before. The point in time is cut a little after the reply:
// until then the snapshot has no CreationTime.
func createSnapshot(req *Request) (wire.Object, *wire.Refusal) {
	id, no := underSnapshotToken(req, func(req *Request) (string, *wire.Refusal) {
		d, n, no := readSnapshot(req)
		if no != nil {
			return "", no
		}
		startSnapshot(req, d, n)
		return n.ID, nil
	})
	if no != nil {
		return nil, no
	}
	return wire.Object{"SnapshotId": id}, nil
}

// underSnapshotToken is underToken of snapshots: ECS's tables give its refusals
// other codes and statuses than CreateDisk's.
func underSnapshotToken(req *Request, make func(*Request) (string, *wire.Refusal)) (string, *wire.Refusal) {
	id, no := underToken(req, make)
	switch {
	case no != nil && no.Code == "LastTokenProcessing":
		return "", &wire.Refusal{Status: 403, Code: "IdempotentProcessing", Message: no.Message}
	case no != nil && no.Code == mismatchCode:
		return "", &wire.Refusal{Status: 403, Code: mismatchCode, Message: no.Message}
	}
	return id, no
}

// readSnapshot checks a request for a snapshot of one disk.
func readSnapshot(req *Request) (*state.Disk, *state.Snapshot, *wire.Refusal) {
	n := &state.Snapshot{}
	for _, step := range []func(*Request, *state.Snapshot) *wire.Refusal{readSnapshotNames, readRetention, readSnapshotTags} {
		if no := step(req, n); no != nil {
			return nil, nil, no
		}
	}
	d, no := findDisk(req, req.Disk)
	if no != nil {
		return nil, nil, no
	}
	return d, n, checkSnapshot(req, d)
}

// readSnapshotNames reads SnapshotName and Description. Names that begin with
// auto are those of ECS's own snapshots.
func readSnapshotNames(req *Request, n *state.Snapshot) *wire.Refusal {
	n.Name, n.Description = req.Params["SnapshotName"], req.Params["Description"]
	if n.Name != "" && (!validName(n.Name) || strings.HasPrefix(n.Name, "auto")) {
		return badName("InvalidSnapshotName.Malformed", "snapshot name, which must not begin with auto,")
	}
	if n.Description != "" && !validDescription(n.Description) {
		return badDescription(404) // as ECS's table for this action has it
	}
	return nil
}

// readRetention reads RetentionDays; none keeps the snapshot for ever.
func readRetention(req *Request, n *state.Snapshot) (no *wire.Refusal) {
	if n.RetentionDays, no = req.Params.Integer("RetentionDays", 0); no != nil {
		return no
	}
	if req.Params["RetentionDays"] != "" && (n.RetentionDays < 1 || n.RetentionDays > 65536) {
		return wire.Refuse(400, "InvalidRetentionDays.Malformed", "The specified RetentionDays %d is not valid: 1 to 65536.", n.RetentionDays)
	}
	return nil
}

// readSnapshotTags reads the tags and the resource group.
func readSnapshotTags(req *Request, n *state.Snapshot) *wire.Refusal {
	tags, no := newTags(req)
	if no != nil {
		return no
	}
	n.Tags, n.ResourceGroup = state.NewTagSet(tags, req.Now), req.Params["ResourceGroupId"]
	if !known(req.Rules.ResourceGroups, n.ResourceGroup) {
		return wire.Refuse(404, "InvalidResourceGroup.NotFound", "The specified ResourceGroupId %q does not exist.", n.ResourceGroup)
	}
	return nil
}

// readSource finds the snapshot that a new disk is made from, if any.
func readSource(req *Request, d *state.Disk) *wire.Refusal {
	id := req.Params["SnapshotId"]
	if id == "" {
		return nil
	}
	n, no := findSnapshot(req, id)
	switch {
	case no != nil:
		return no
	case state.Categories[d.Category].Ephemeral:
		return wire.Refuse(403, "InvalidOperation.CreateFromSnapshotUnsupported", "The disk category %s can't be made from a snapshot.", d.Category)
	case !n.Usable(req.Now):
		return wire.Refuse(403, "InvalidSnapshotId.NotReady", "The specified snapshot %s is not ready.", id)
	}
	d.Source = n
	return nil
}

// checkSnapshot refuses a snapshot of a disk that none can be made of now.
func checkSnapshot(req *Request, d *state.Disk) *wire.Refusal {
	for _, a := range d.Attachments {
		if no := checkState(a.Instance, 400); no != nil {
			return no
		}
	}
	progressing, all := req.Region.SnapshotsOf(d)
	switch {
	case state.Categories[d.Category].Ephemeral:
		return wire.Refuse(400, "DiskCategory.OperationNotSupported", "The disk category %s does not support this operation.", d.Category)
	case !req.Rules.Doubts.takesState("CreateSnapshot", d):
		return wrongState(d)
	case !d.EverAttached && !slices.Contains(req.Rules.Doubts.SnapshotUnattached, d.Category):
		return wire.Refuse(403, "IncorrectDiskStatus.NeverAttached", "The disk %s has never been attached: there is nothing in it.", d.ID)
	case d.Task != nil:
		return wrongState(d)
	case all >= req.Rules.Limits.SnapshotsPerDisk:
		return wire.Refuse(403, "QuotaExceed.Snapshot", "The number of snapshots of disk %s exceeds the quota of %d.", d.ID, req.Rules.Limits.SnapshotsPerDisk)
	case progressing > 0 && !state.Categories[d.Category].Instant:
		return wire.Refuse(403, "IncorrectDiskStatus.CreatingSnapshot", "A snapshot of disk %s is being created.", d.ID)
	case progressing >= req.Rules.Limits.SnapshotsAtOnce:
		return wire.Refuse(403, "IncorrectDiskStatus.TooManyCreatingSnapshots", "%d snapshots of disk %s are being created.", progressing, d.ID)
	}
	return nil
}

// startSnapshot adds a snapshot of a disk and plans the end of it.
func startSnapshot(req *Request, d *state.Disk, n *state.Snapshot) {
	l, reply := req.Timing, repliesAt(req)
	n.Status, n.Asked = state.SnapshotProgressing, req.Now
	cut := req.Timing.Vary(l.SnapshotCut)
	done := reply.Add(max(req.Timing.Vary(l.SnapshotDone), cut))
	if req.Fault.Do != faults.Stuck && req.Fault.Do != faults.Fails {
		n.CutAt, n.DoneAt = reply.Add(cut), done
		if state.Categories[d.Category].Instant {
			n.UsableAt = reply.Add(max(req.Timing.Vary(l.SnapshotUsable), cut))
		}
	}
	req.Region.AddSnapshot(n, d)
	end := func(status string, at time.Time) {
		n.Status, n.DoneAt = status, at
		req.Region.TouchSnapshot(n)
	}
	plan(req, state.Transition{
		At: done, Disk: d.ID,
		Valid: func() bool { return req.Region.Snapshot(n.ID) == n && n.Status == state.SnapshotProgressing },
		Done: func(t state.Transition) {
			end(state.SnapshotAccomplished, t.At)
			if n.CutAt.IsZero() {
				n.CutAt = t.At
			}
		},
		Fail: func(t state.Transition) { end(state.SnapshotFailed, t.At) },
	})
}
