package ecs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
)

// largestPage is the most disks that one page of DescribeDisks holds, if the
// pages are asked for by token.
const largestPage = 500

// query fills a fresh DescribeDisks request.
type query func(*sdkecs.DescribeDisksRequest)

// anyDisk asks for as few disks as ECS allows.
func anyDisk(r *sdkecs.DescribeDisksRequest) { r.MaxResults = "10" }

// namedQuery asks for the disks of a cluster by the name of their volume.
func namedQuery(name, clusterID string) query {
	return func(r *sdkecs.DescribeDisksRequest) {
		r.Tag = &[]sdkecs.DescribeDisksTag{
			{Key: disk.VolumeNameTag, Value: name},
			{Key: disk.ClusterTag, Value: clusterID},
		}
		r.MaxResults = "100"
	}
}

// describer reads disks, and knows whether the account may see any. It remembers
// when the last read left by which ECS showed a disk, any disk, and when it last showed none: to an
// account without the permission to see disks ECS answers with an empty list and
// no error (ECS API, DescribeInstances, and users' reports of DescribeDisks). So
// an answer that lacks a disk says that it's gone only if others are shown.
type describer struct {
	session         *transport.Session
	countEmpty      func(action string)
	turn            chan struct{} // holds one element for whoever reads only to see a disk
	sawDisks, sawNo atomic.Pointer[time.Time]
}

// byID reads up to a hundred disks by ID. Those that ECS doesn't show are
// not in the map.
func (d *describer) byID(ctx context.Context, ids []disk.ID) (map[disk.ID]disk.Disk, error) {
	reply, err := d.page(ctx, func(r *sdkecs.DescribeDisksRequest) {
		r.DiskIds = jsonList(ids)
		r.PageSize = integer(batch.Size) // ECS's default page has ten
	})
	if err != nil {
		return nil, err
	}
	if reply.TotalCount > len(reply.Disks.Disk) {
		return nil, &disk.Error{Op: transport.DescribeDisks.Name, Kind: disk.Unreachable, RequestID: reply.RequestId,
			Err: fmt.Errorf("the answer breaks off: it shows %d of %d disks", len(reply.Disks.Disk), reply.TotalCount)}
	}
	return byKey(disksFromECS(reply), func(d disk.Disk) disk.ID { return d.ID }), nil
}

// all reads every page of an answer.
func (d *describer) all(ctx context.Context, q query) ([]disk.Disk, error) {
	return everyPage(transport.DescribeDisks.Name, func(token string) ([]disk.Disk, string, error) {
		reply, err := d.page(ctx, func(r *sdkecs.DescribeDisksRequest) {
			q(r)
			r.NextToken = token
		})
		if err != nil {
			return nil, "", err
		}
		return disksFromECS(reply), reply.NextToken, nil
	})
}

// page makes one DescribeDisks. A reply without a list of disks is no
// answer: read as an empty list it would say that disks are gone.
func (d *describer) page(ctx context.Context, q query) (*sdkecs.DescribeDisksResponse, error) {
	left := time.Now()
	reply, err := transport.DescribeDisks.Send(ctx, d.session, q)
	if err == nil && len(reply.Disks.Disk) > 0 {
		d.sawDisks.Store(&left)
	}
	return reply, err
}

// How long a disk that was shown says that the account may see disks, where no
// proof is needed, and how long it is believed that it may not.
const (
	evidenceLasts = 10 * time.Second
	blindLasts    = 5 * time.Second
)

var errBlind = errors.New("an empty answer: ECS shows these credentials no disk at all, in the whole region, so whether one is gone can't be told; " +
	"is ecs:DescribeDisks allowed for all disks?")

// checkSight returns nil if ECS shows the account any disk, by a read that left
// since then, if need be by one more, and else an error of Kind Denied. One
// caller reads, and the others wait for what that shows.
func (d *describer) checkSight(ctx context.Context, since time.Time) error {
	blind := &disk.Error{Op: transport.DescribeDisks.Name, Kind: disk.Denied, Err: errBlind}
	if d.saw(since) {
		return nil
	}
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-limited.Done():
		return &disk.Error{Op: transport.DescribeDisks.Name, Kind: disk.Unreachable, Err: fmt.Errorf("not sent: %w", limited.Err())}
	}
	if d.saw(since) {
		return nil
	}
	if saw := d.sawNo.Load(); saw != nil && time.Since(*saw) < blindLasts {
		return blind
	}
	reply, err := d.page(ctx, anyDisk)
	if err != nil || len(reply.Disks.Disk) > 0 {
		return err
	}
	now := time.Now()
	d.sawNo.Store(&now)
	d.countEmpty(transport.DescribeDisks.Name)
	blind.RequestID = reply.RequestId
	return blind
}

// saw says whether a read that left since then has shown a disk.
func (d *describer) saw(since time.Time) bool {
	at := d.sawDisks.Load()
	return at != nil && !at.Before(since)
}

// disksFromECS translates the disks of a reply.
func disksFromECS(reply *sdkecs.DescribeDisksResponse) []disk.Disk {
	disks := make([]disk.Disk, len(reply.Disks.Disk))
	for i, shown := range reply.Disks.Disk {
		disks[i] = fromECS(shown)
	}
	return disks
}

// fromECS translates a disk of ECS.
func fromECS(d sdkecs.Disk) disk.Disk {
	tags := tagsFromECS(d.Tags.Tag)
	return disk.Disk{
		ID:               disk.ID(d.DiskId),
		Name:             tags[disk.VolumeNameTag],
		System:           d.Type == "system",
		Zone:             disk.Zone(d.ZoneId),
		Size:             disk.GiB(d.Size),
		Category:         disk.Category(d.Category),
		PerformanceLevel: disk.Level(d.PerformanceLevel),
		State:            disk.State(d.Status),
		Serial:           d.SerialNumber,
		Encrypted:        d.Encrypted,
		KMSKeyID:         d.KMSKeyId,
		MultiAttach:      d.MultiAttach == "Enabled",
		ProvisionedIOPS:  d.ProvisionedIops,
		Bursting:         d.BurstingEnabled,
		ResourceGroupID:  d.ResourceGroupId,
		StorageClusterID: d.StorageClusterId,
		SnapshotID:       d.SourceSnapshotId,
		Attachments:      holdersOf(d),
		Locks:            locks(d),
		NeverAttached:    d.AttachedTime == "" && d.DetachedTime == "" && len(holdersOf(d)) == 0,
		Released:         d.DetachedTime,
		Created:          timeFromECS(d.CreationTime),
		Tags:             tags,
	}
}

// locks returns why ECS has locked a disk.
func locks(d sdkecs.Disk) []string {
	var all []string
	for _, lock := range d.OperationLocks.OperationLock {
		all = append(all, lock.LockReason)
	}
	return all
}

// holdersOf returns who holds a disk. ECS fills the list for every disk today
// and the older pair of fields for disks that one instance holds.
func holdersOf(d sdkecs.Disk) []disk.Attachment {
	var all []disk.Attachment
	for _, a := range d.Attachments.Attachment {
		all = append(all, disk.Attachment{Instance: disk.InstanceID(a.InstanceId), Since: a.AttachedTime})
	}
	if all == nil && d.InstanceId != "" {
		all = []disk.Attachment{{Instance: disk.InstanceID(d.InstanceId), Since: d.AttachedTime}}
	}
	return all
}
