package snapshot

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/listing"
)

// ListSnapshots lists the snapshots of the region, whoever made them, but for
// those whose point in time is still to come (CSI spec, ListSnapshots). The order
// is that of ECS, and so are the pages, of which no more are read than asked for;
// an answer may have fewer. A snapshot that is there throughout is listed once,
// whatever comes and goes between two pages; in pages of fewer than ten it may be
// listed twice or not then, which the CSI spec allows. An empty list is answered
// only if ECS doesn't hide snapshots, as far as that can be told.
func (c *Controller) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if err := listing.CheckMost(req.GetMaxEntries()); err != nil {
		return nil, err
	}
	from, err := readListPosition(req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	if req.GetSnapshotId() != "" {
		return c.listOne(ctx, req)
	}
	most := int(req.GetMaxEntries())
	if most == 0 || most > listing.LongestPage {
		most = listing.LongestPage
	}
	shots, to, err := c.listFrom(ctx, disk.SnapshotFilter{Source: disk.ID(req.GetSourceVolumeId())}, from, most)
	if err != nil {
		return nil, err
	}
	if len(shots) == 0 && from == (listPosition{}) && to == from {
		if err := c.ecs.CheckSnapshotSight(ctx); err != nil {
			return nil, err
		}
	}
	response := &csi.ListSnapshotsResponse{NextToken: to.token()}
	for _, shot := range shots {
		response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: c.config.snapshot(shot)})
	}
	return response, nil
}

// listOne lists the one snapshot that is asked for, or none. Who asks so waits for
// it to become ready: that it has failed is an error then.
func (c *Controller) listOne(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	shot, err := c.ecs.GetSnapshot(ctx, disk.SnapshotID(req.GetSnapshotId()))
	response := &csi.ListSnapshotsResponse{}
	if disk.KindOf(err) == disk.NotFound {
		return response, c.ecs.CheckSnapshotGone(ctx, disk.SnapshotID(req.GetSnapshotId()))
	}
	switch source := disk.ID(req.GetSourceVolumeId()); {
	case err == nil && source != "" && source != shot.Source:
		return response, nil
	case err != nil:
		return nil, err
	case shot.State == disk.Failed:
		return nil, hasFailed(shot)
	case shot.Taken():
		response.Entries = []*csi.ListSnapshotsResponse_Entry{{Snapshot: c.config.snapshot(shot)}}
	}
	return response, nil
}

// How many snapshots a page of ECS's has.
const (
	leastOfPage = 10
	mostOfPage  = 100
)

// listFrom reads on from a place in the list, and returns the place where it has
// got to. It reads whole pages of ECS's, as many as together are asked for; only
// if that is less than the smallest one has, it stops within a page.
func (c *Controller) listFrom(ctx context.Context, filter disk.SnapshotFilter, at listPosition, most int) ([]disk.Snapshot, listPosition, error) {
	var all []disk.Snapshot
	for room := most; room >= leastOfPage || len(all) == 0; room = most - len(all) {
		page, next, err := c.ecs.PageSnapshots(ctx, filter, at.page, min(max(at.skip+room, leastOfPage), mostOfPage))
		switch {
		case err != nil:
			return nil, at, err
		case next != "" && next == at.page:
			return nil, at, disk.Errorf(disk.Unexpected, "ECS's list of snapshots doesn't go on after page %q", next)
		}
		for ; at.skip < len(page); at.skip++ {
			if len(all) == most {
				return all, at, nil
			}
			// One whose point in time is still to come is none to CSI.
			if shot := page[at.skip]; shot.Taken() {
				all = append(all, shot)
			}
		}
		if at = (listPosition{page: next}); next == "" {
			break
		}
	}
	return all, at, nil
}

// listPosition is a place in the list of snapshots: a page of ECS's, and how many
// snapshots of it come before. The zero listPosition is the end, or in a request the
// beginning.
type listPosition struct {
	page string // ECS's token; empty for the first page
	skip int
}

// positionPrefix begins the token of a listPosition; what is skipped follows, if it is
// anything, a colon, and ECS's token.
const positionPrefix = "page:"

// readListPosition reads the token of a listPosition.
func readListPosition(token string) (listPosition, error) {
	text, ours := strings.CutPrefix(token, positionPrefix)
	skip, page, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(cmp.Or(skip, "0"))
	b := listPosition{page: page, skip: n}
	if token != "" && (!ours || err != nil || n < 0 || n > mostOfPage || b.token() != token) {
		return listPosition{}, listing.BadToken(token)
	}
	return b, nil
}

// token returns the listPosition as a token, empty at the end.
func (b listPosition) token() string {
	switch {
	case b == listPosition{}:
		return ""
	case b.skip == 0:
		return positionPrefix + ":" + b.page
	}
	return positionPrefix + strconv.Itoa(b.skip) + ":" + b.page
}
