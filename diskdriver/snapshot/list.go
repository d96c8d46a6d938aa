package snapshot

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/listing"
)

// ListSnapshots lists the snapshots of the region, whoever made them, but for
// those whose point in time is still to come (CSI spec, ListSnapshots). The order
// is that of ECS, and so are the pages, of which no more are read than asked for; an answer
// may have fewer. A snapshot that is there throughout is listed once, whatever
// comes and goes between two pages.
func (c *Controller) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if err := listing.CheckMost(req.GetMaxEntries()); err != nil {
		return nil, err
	}
	from, err := readBookmark(req.GetStartingToken())
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
	switch source := disk.ID(req.GetSourceVolumeId()); {
	case disk.KindOf(err) == disk.NotFound || err == nil && source != "" && source != shot.Source:
		return response, nil
	case err != nil:
		return nil, err
	case shot.State == disk.Failed:
		return nil, hasFailed(shot)
	case shot.Cut():
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
// got to. It takes whole pages of ECS's, as many as together are asked for.
func (c *Controller) listFrom(ctx context.Context, filter disk.SnapshotFilter, at bookmark, most int) ([]disk.Snapshot, bookmark, error) {
	if most < leastOfPage || at.listed != nil {
		return c.listWithin(ctx, filter, at, most)
	}
	var all []disk.Snapshot
	for room := most; room >= leastOfPage; {
		size := min(room, mostOfPage)
		if room > mostOfPage && room < mostOfPage+leastOfPage {
			size = room - leastOfPage // so that the last page isn't too small
		}
		page, next, err := c.ecs.PageSnapshots(ctx, filter, at.page, size)
		switch {
		case err != nil:
			return nil, at, err
		case next != "" && next == at.page:
			return nil, at, disk.Errorf(disk.Unexpected, "ECS's list of snapshots doesn't go on after page %q", next)
		}
		all = append(all, cutOnes(page)...)
		at = bookmark{page: next, more: next != ""}
		if room = most - len(all); !at.more {
			break
		}
	}
	return all, at, nil
}

// listWithin lists a part of one page of ECS's: fewer are asked for than the
// smallest page has, or were before.
func (c *Controller) listWithin(ctx context.Context, filter disk.SnapshotFilter, at bookmark, most int) ([]disk.Snapshot, bookmark, error) {
	page, next, err := c.ecs.PageSnapshots(ctx, filter, at.page, mostOfPage)
	if err != nil {
		return nil, at, err
	}
	rest, found := at.rest(page)
	if !found {
		return nil, at, disk.Errorf(disk.BadToken, "starting_token: the snapshots that were listed last are gone, and so is the place; begin again without one")
	}
	if rest = cutOnes(rest); len(rest) > most {
		return rest[:most], at.after(rest[:most]), nil
	}
	return rest, bookmark{page: next, more: next != ""}, nil
}

// cutOnes leaves out the snapshots whose point in time is still to come: they
// are none to CSI.
func cutOnes(shots []disk.Snapshot) []disk.Snapshot {
	return slices.DeleteFunc(slices.Clone(shots), func(s disk.Snapshot) bool { return !s.Cut() })
}

// bookmark is a place in the list of snapshots: a page of ECS's, and on it the
// last ones listed, if not all of it was. Should one be deleted, the others keep
// the place. The zero bookmark is the end, or in a request the beginning.
type bookmark struct {
	more   bool
	page   string   // ECS's token; empty for the first page
	listed []string // what their IDs end with
}

const (
	// bookmarkPrefix begins the token of a bookmark; the last ones listed follow,
	// a colon, and ECS's token.
	bookmarkPrefix = "page:"

	// ending is how much of an ID tells the snapshots of a page apart, and
	// landmarks how many of them are kept: a CSI string has at most 128 bytes.
	ending    = 6
	landmarks = 8
)

// readBookmark reads the token of a bookmark.
func readBookmark(token string) (bookmark, error) {
	text, ours := strings.CutPrefix(token, bookmarkPrefix)
	ids, page, whole := strings.Cut(text, ":")
	b := bookmark{more: token != "", page: page}
	if ids != "" {
		b.listed = strings.Split(ids, ",")
	}
	foreign := func(id string) bool { return len(id) > ending || !endForm.MatchString(id) }
	if token != "" && (!ours || !whole || page == "" && b.listed == nil || slices.ContainsFunc(b.listed, foreign)) {
		return bookmark{}, listing.BadToken(token)
	}
	return b, nil
}

// token returns the bookmark as a token, empty at the end.
func (b bookmark) token() string {
	if !b.more {
		return ""
	}
	return bookmarkPrefix + strings.Join(b.listed, ",") + ":" + b.page
}

// endForm is the form of the end of an ID.
var endForm = regexp.MustCompile(`^[0-9A-Za-z_.-]+$`)

// endOf returns what an ID ends with.
func endOf(id disk.SnapshotID) string { return string(id[max(0, len(id)-ending):]) }

// rest returns what comes after those listed, false if the page has none of them.
// What is before them and wasn't listed has come since.
func (b bookmark) rest(page []disk.Snapshot) (rest []disk.Snapshot, found bool) {
	for i, s := range slices.Backward(page) {
		if slices.Contains(b.listed, endOf(s.ID)) {
			return page[i+1:], true
		}
	}
	return page, b.listed == nil
}

// after is the bookmark when more of its page are listed.
func (b bookmark) after(shots []disk.Snapshot) bookmark {
	b.more, b.listed = true, slices.Clone(b.listed)
	for _, s := range shots {
		b.listed = append(b.listed, endOf(s.ID))
	}
	b.listed = b.listed[max(0, len(b.listed)-landmarks):]
	return b
}
