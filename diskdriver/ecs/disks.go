package ecs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// Create makes one attempt at a disk under a client token, and returns the disk
// as soon as a read shows that it is there, in whatever state.
//
// OutOfStock: not to be had there. Mismatch: the token was used with other
// parameters. NotFound: ECS answered with the ID of a disk that no read finds,
// for the token outlived the disk or reads lag. UnknownOutcome or Pending: a
// disk may exist, or come to. After any other Kind this call has made none.
func (c *Client) Create(ctx context.Context, spec disk.Spec, try disk.Attempt, token disk.Token) (disk.Disk, error) {
	if token == "" {
		return disk.Disk{}, &disk.Error{Op: transport.CreateDisk.Name, Kind: disk.Invalid, Err: errNoToken}
	}
	began := time.Now()
	reply, err := transport.CreateDisk.Send(ctx, c.session, func(r *sdkecs.CreateDiskRequest) { fillCreate(r, spec, try, token) })
	if err != nil {
		return disk.Disk{}, err
	}
	id, answered := disk.ID(reply.DiskId), time.Now()
	// ECS may show a disk a moment after it has given its ID.
	made, err := c.reads.Await(ctx, batch.Change{Disk: id}, func(disk.Disk) (bool, error) { return true, nil })
	switch {
	case err == nil:
		if made.State == disk.Creating {
			c.recent.Begin(batch.Change{Disk: id, Kind: batch.Create, Since: answered, Reply: answered.Sub(began)})
		}
		return made, nil
	case disk.KindOf(err) == disk.NotFound:
		return disk.Disk{}, &disk.Error{Op: transport.CreateDisk.Name, Disk: id, Kind: disk.NotFound, RequestID: reply.RequestId,
			Err: errors.New("ECS gave the ID of a disk that no read shows")}
	}
	// Whatever kept the read from its answer, the disk may be there.
	return disk.Disk{}, &disk.Error{Op: transport.CreateDisk.Name, Disk: id, Kind: disk.UnknownOutcome, RequestID: reply.RequestId,
		Err: fmt.Errorf("ECS gave the disk's ID, but the read that should show it failed: %w", err)}
}

// fillCreate asks for the disk of one attempt. ECS compares the parameters
// of calls with the same token literally, so equal attempts make equal requests.
func fillCreate(r *sdkecs.CreateDiskRequest, spec disk.Spec, try disk.Attempt, token disk.Token) {
	r.ClientToken = string(token)
	r.ZoneId = string(try.Zone)
	r.DiskCategory = string(try.Category)
	r.PerformanceLevel = string(try.Level)
	r.Size = integer(int64(try.Size))
	r.DiskName = disk.DisplayName(spec.Name)
	r.SnapshotId = spec.SnapshotID
	r.ResourceGroupId = spec.ResourceGroupID
	r.StorageClusterId = spec.StorageClusterID
	if spec.Encrypted {
		r.Encrypted = requests.NewBoolean(true)
		r.KMSKeyId = spec.KMSKeyID
	}
	if spec.MultiAttach {
		r.MultiAttach = "Enabled"
	}
	traits, _ := try.Category.Traits()
	if traits.IOPS && spec.ProvisionedIOPS > 0 {
		r.ProvisionedIops = integer(spec.ProvisionedIOPS)
	}
	r.BurstingEnabled = trueOrUnset(traits.Bursting && spec.Bursting)
	setTags(r, spec.Tags)
}

// The forms of disk IDs: those that ECS gives out, and those that a request can
// carry at all. Older and foreign IDs are read apart, so that ECS's refusal of
// one hits no other.
var (
	diskForm   = regexp.MustCompile(`^d-[0-9a-z]{1,60}$`)
	possibleID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.-]{0,127}$`)
)

// Get reads one disk; concurrent reads share calls. NotFound: ECS doesn't show
// it, though it shows others. Denied: ECS shows no disk at all, which is also
// what it does to an account without the permission to see any.
func (c *Client) Get(ctx context.Context, id disk.ID) (disk.Disk, error) {
	if !possibleID.MatchString(string(id)) {
		return disk.Disk{}, notAnID(id)
	}
	return c.reads.Get(ctx, id)
}

// GetCached returns a disk as a read has just shown it, if no call has changed it since; else it is Get.
func (c *Client) GetCached(ctx context.Context, id disk.ID) (disk.Disk, error) {
	if !possibleID.MatchString(string(id)) {
		return disk.Disk{}, notAnID(id)
	}
	return c.reads.GetCached(ctx, id)
}

// notAnID is the error for what can't be the ID of a disk.
func notAnID(id disk.ID) error {
	return &disk.Error{Op: transport.DescribeDisks.Name, Kind: disk.NotFound, Err: fmt.Errorf("%q is not the ID of a disk", id)}
}

// Named reads every disk of this cluster whose tag disk.VolumeNameTag is the CSI
// volume name, by ID; a crowd shares calls. None is no error, and no proof
// either: ECS may show a new tag late. Denied: ECS shows no disk at all, as to
// Get; with proof it must have shown one later than it didn't show these.
func (c *Client) Named(ctx context.Context, name string, proof bool) ([]disk.Disk, error) {
	if name == "" {
		return nil, &disk.Error{Op: transport.DescribeDisks.Name, Kind: disk.Invalid, Err: errors.New("the volume name is empty")}
	}
	got, err := c.names.Once(ctx, name)
	if err != nil {
		return nil, err
	}
	// An answer to some other question must not pass for this one.
	named := slices.DeleteFunc(slices.Clone(got.Value), func(d disk.Disk) bool {
		return d.Tags[disk.VolumeNameTag] != name || d.Tags[disk.ClusterTag] != c.shared.clusterID
	})
	if len(named) == 0 {
		since := got.Received.Add(-evidenceLasts)
		if proof {
			since = got.Received
		}
		return nil, c.describer.checkSight(ctx, since)
	}
	slices.SortFunc(named, func(a, b disk.Disk) int { return cmp.Compare(a.ID, b.ID) })
	return named, nil
}

// List reads every data disk of the region, page by page, and returns them
// sorted by ID. Disks that come and go meanwhile may be missing; every other
// one is there, once. Denied: ECS shows no disk at all, as to Get.
func (c *Client) List(ctx context.Context) ([]disk.Disk, error) {
	began := time.Now()
	all, err := c.describer.all(ctx, func(r *sdkecs.DescribeDisksRequest) {
		r.DiskType = "data"
		r.MaxResults = integer(largestPage)
	})
	if err == nil && len(all) == 0 {
		err = c.describer.checkSight(ctx, began)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b disk.Disk) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b disk.Disk) bool { return a.ID == b.ID }), nil
}

// Delete deletes a disk. A disk that ECS says it doesn't know is deleted. There
// is no read before: only the answer of DeleteDisk proves absence.
func (c *Client) Delete(ctx context.Context, id disk.ID) error {
	if !possibleID.MatchString(string(id)) {
		return nil // such a disk can't be
	}
	c.recent.End(id)
	defer c.recent.Changed(id)
	_, err := transport.DeleteDisk.Send(ctx, c.session, func(r *sdkecs.DeleteDiskRequest) { r.DiskId = string(id) })
	if disk.KindOf(err) == disk.NotFound {
		return nil
	}
	return ofDisk(id, err)
}
