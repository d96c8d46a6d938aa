package ecs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// CreateSnapshot asks for a snapshot under a client token and returns its ID.
// No read has shown it yet, and its point in time may be still to come.
//
// NotFound: there is no such disk. Mismatch: the token was used with other
// parameters. Of an UnknownOutcome the same call with the same token tells.
func (c *Client) CreateSnapshot(ctx context.Context, spec disk.SnapshotSpec, token disk.Token) (disk.SnapshotID, error) {
	if token == "" {
		return "", &disk.Error{Op: transport.CreateSnapshot.Name, Kind: disk.Invalid, Err: errNoToken}
	}
	if !possibleID.MatchString(string(spec.Source)) {
		return "", notAnID(spec.Source)
	}
	reply, err := transport.CreateSnapshot.Send(ctx, c.session, func(r *sdkecs.CreateSnapshotRequest) {
		r.DiskId = string(spec.Source)
		r.ClientToken = string(token)
		r.ResourceGroupId = spec.ResourceGroupID
		if spec.RetentionDays > 0 {
			r.RetentionDays = integer(spec.RetentionDays)
		}
		if name := disk.DisplayName(spec.Name); !strings.HasPrefix(name, "auto") { // ECS keeps such names for its own
			r.SnapshotName = name
		}
		setTags(r, spec.Tags)
	})
	if err != nil {
		return "", ofDisk(spec.Source, err)
	}
	c.known.add(disk.SnapshotID(reply.SnapshotId))
	return disk.SnapshotID(reply.SnapshotId), nil
}

var errNoToken = errors.New("the client token is empty; without one a retry would make a second one")

// DeleteSnapshot deletes a snapshot, also one that is still in progress and one
// that disks were made from; those stay. A snapshot that ECS says it doesn't
// know is deleted.
func (c *Client) DeleteSnapshot(ctx context.Context, id disk.SnapshotID) error {
	if !possibleID.MatchString(string(id)) {
		return nil // such a snapshot can't be
	}
	_, err := transport.DeleteSnapshot.Send(ctx, c.session, func(r *sdkecs.DeleteSnapshotRequest) {
		r.SnapshotId = string(id)
		r.Force = requests.NewBoolean(true)
	})
	if err == nil || disk.KindOf(err) == disk.NotFound {
		c.known.remove(id)
		return nil
	}
	return err
}

// snapshotForm is the form of the IDs that ECS gives to snapshots.
var snapshotForm = regexp.MustCompile(`^s-[0-9a-z]{1,60}$`)

// GetSnapshot reads one snapshot; concurrent reads share calls. NotFound: ECS
// doesn't show it.
func (c *Client) GetSnapshot(ctx context.Context, id disk.SnapshotID) (disk.Snapshot, error) {
	if !possibleID.MatchString(string(id)) {
		return disk.Snapshot{}, c.snapshots.NotFound(id)
	}
	got, err := c.snapshots.Get(ctx, id)
	if err == nil && !got.Found {
		err = c.snapshots.NotFound(id)
	}
	return got.Value, err
}

// snapshotsByID reads up to a hundred snapshots.
func (c *Client) snapshotsByID(ctx context.Context, ids []disk.SnapshotID) (map[disk.SnapshotID]disk.Snapshot, error) {
	all, err := c.ListSnapshots(ctx, disk.SnapshotFilter{IDs: ids})
	return byKey(all, func(s disk.Snapshot) disk.SnapshotID { return s.ID }), err
}

// ListSnapshots returns every snapshot of the region that passes the filter,
// whoever made it, each once and sorted by ID. None is no error, and no proof
// either: ECS may show a new tag late.
func (c *Client) ListSnapshots(ctx context.Context, filter disk.SnapshotFilter) ([]disk.Snapshot, error) {
	all, err := everyPage(transport.DescribeSnapshots.Name, func(token string) ([]disk.Snapshot, string, error) {
		return c.PageSnapshots(ctx, filter, token, batch.Size)
	})
	slices.SortFunc(all, disk.CompareSnapshots)
	return slices.CompactFunc(all, func(a, b disk.Snapshot) bool { return a.ID == b.ID }), err
}

// PageSnapshots reads one page of the snapshots that pass the filter, in ECS's
// own order, and returns the token of the next page, empty after the last. A page
// has at most so many, of 10 to 100. BadToken: ECS takes the
// token for none of its own, or not any more.
func (c *Client) PageSnapshots(ctx context.Context, filter disk.SnapshotFilter, token string, most int) ([]disk.Snapshot, string, error) {
	impossible := func(id disk.SnapshotID) bool { return !possibleID.MatchString(string(id)) }
	if slices.ContainsFunc(filter.IDs, impossible) || filter.Source != "" && !possibleID.MatchString(string(filter.Source)) {
		return nil, "", nil // such a snapshot can't be
	}
	reply, err := c.describeSnapshots(ctx, filter, token, most)
	if err != nil {
		return nil, "", badToken(transport.DescribeSnapshots.Name, token, err)
	}
	var page []disk.Snapshot
	for _, shown := range reply.Snapshots.Snapshot {
		// An answer to some other question must not pass for this one.
		if shot := snapshotFromECS(shown); filter.Passes(shot) {
			page = append(page, shot)
			c.known.add(shot.ID)
		}
	}
	return page, reply.NextToken, nil
}

// describeSnapshots reads one page. A reply without a list of snapshots is no
// answer: read as an empty list it would say that snapshots are gone.
func (c *Client) describeSnapshots(ctx context.Context, filter disk.SnapshotFilter, token string, most int) (*sdkecs.DescribeSnapshotsResponse, error) {
	return transport.DescribeSnapshots.Send(ctx, c.session, func(r *sdkecs.DescribeSnapshotsRequest) {
		r.MaxResults = integer(int64(most))
		r.NextToken = token
		r.DiskId = string(filter.Source)
		if filter.IDs != nil {
			r.SnapshotIds = jsonList(filter.IDs)
		}
		setTags(r, filter.Tags)
	})
}

// CheckSnapshotGone returns nil if a snapshot that no read shows is gone: ECS shows
// others, or says that it doesn't know this one. Denied: it shows none at all, as
// to an account without the permission to see any, and knows this one or, with
// disk.ErrUntold, doesn't allow the question.
func (c *Client) CheckSnapshotGone(ctx context.Context, id disk.SnapshotID) error {
	if !snapshotForm.MatchString(string(id)) {
		return nil // ECS gives out no such ID
	}
	shown, _, err := c.PageSnapshots(ctx, disk.SnapshotFilter{}, "", leastPage)
	if err != nil || len(shown) > 0 {
		return err
	}
	err = c.untag(ctx, "snapshot", string(id), []string{disk.NeverSetTag})
	blind := errNoSnapshots
	switch {
	case err == nil: // ECS knows it
	case disk.KindOf(err) == disk.NotFound:
		return nil
	case disk.KindOf(err) == disk.Denied:
		blind = fmt.Errorf("%w: %w", disk.ErrUntold, errNoSnapshots)
	default:
		return err
	}
	c.shared.metrics.countEmpty(transport.DescribeSnapshots.Name)
	return &disk.Error{Op: transport.DescribeSnapshots.Name, Kind: disk.Denied, Err: blind}
}

// AskSnapshotGone is to snapshots what askGone is to all resources.
func (c *Client) AskSnapshotGone(ctx context.Context, id disk.SnapshotID) error {
	if !snapshotForm.MatchString(string(id)) {
		return nil // ECS gives out no such ID
	}
	err := c.askGone(ctx, "snapshot", string(id))
	if err == nil {
		c.known.remove(id)
	}
	return err
}

// CheckSnapshotSight returns nil if a list without snapshots may be true: ECS shows
// some, or knows none of those that this process has seen last. Denied: as to
// CheckSnapshotGone.
func (c *Client) CheckSnapshotSight(ctx context.Context) error {
	for _, id := range c.known.all() {
		if err := c.CheckSnapshotGone(ctx, id); err != nil {
			return err
		}
		c.known.remove(id)
	}
	return nil
}

// knownSnapshots are the last snapshots that ECS has shown or made, and that this
// process has not deleted. It is safe for concurrent use.
type knownSnapshots struct {
	mu  sync.Mutex
	ids []disk.SnapshotID
}

// knownKept is how many of them are asked for one by one.
const knownKept = 3

func (k *knownSnapshots) add(id disk.SnapshotID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.ids, id) {
		return
	}
	if k.ids = append(k.ids, id); len(k.ids) > knownKept {
		k.ids = slices.Delete(k.ids, 0, 1)
	}
}

func (k *knownSnapshots) remove(id disk.SnapshotID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids = slices.DeleteFunc(k.ids, func(known disk.SnapshotID) bool { return known == id })
}

func (k *knownSnapshots) all() []disk.SnapshotID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ids)
}

// leastPage is the least that a page of snapshots may be asked to hold.
const leastPage = 10

var errNoSnapshots = errors.New("an empty answer: ECS shows these credentials no snapshot at all, in the whole region; " +
	"is ecs:DescribeSnapshots allowed for all snapshots?")

// snapshotPauses are those between the reads that wait for a snapshot; the last
// one is repeated.
var snapshotPauses = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second}

// AwaitSnapshot reads a snapshot again and again until seen says that it is done
// or that it failed, and returns it as it was seen last. NotFound: several reads
// in a row didn't show it. When ctx leaves no more time than to answer, the
// error is Pending. A read that ECS throttles or doesn't answer ends no wait. All
// who wait share calls.
func (c *Client) AwaitSnapshot(ctx context.Context, id disk.SnapshotID, seen func(disk.Snapshot) (done bool, err error)) (disk.Snapshot, error) {
	if !possibleID.MatchString(string(id)) {
		return disk.Snapshot{}, c.snapshots.NotFound(id)
	}
	return c.snapshots.Poll(ctx, id, snapshotPauses, seen, func(last disk.Snapshot) string {
		return fmt.Sprintf("snapshot %s is not there yet: %s", id, last.Phase())
	})
}

// snapshotFromECS translates a snapshot of ECS.
func snapshotFromECS(s sdkecs.Snapshot) disk.Snapshot {
	tags := tagsFromECS(s.Tags.Tag)
	size, _ := strconv.ParseInt(s.SourceDiskSize, 10, 64) // not a number stands for: not known
	return disk.Snapshot{
		ID:      disk.SnapshotID(s.SnapshotId),
		Name:    tags[disk.SnapshotNameTag],
		Source:  disk.ID(s.SourceDiskId),
		Size:    disk.GiB(size),
		Created: timeFromECS(s.CreationTime),
		State:   disk.SnapshotState(s.Status),
		Usable:  s.Available || disk.SnapshotState(s.Status) == disk.Accomplished,
		Group:   groupOf(s),
		Tags:    tags,
	}
}

// groupPrefix begins the name and the description that ECS gives to the members
// of a snapshot group; the group's ID follows.
const groupPrefix = "Created_from_"

// groupOf returns the group that a snapshot belongs to: ECS shows it in the text
// that it gives the members, and nowhere else.
func groupOf(s sdkecs.Snapshot) disk.GroupID {
	for _, text := range []string{s.Description, s.SnapshotName} {
		if id, ok := strings.CutPrefix(text, groupPrefix); ok && strings.HasPrefix(id, "ssg-") {
			return disk.GroupID(id)
		}
	}
	return ""
}
