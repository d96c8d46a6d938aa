package ecs

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// How long a disk that was shown proves that the account may see disks, and how
// long it is believed that it may not.
const (
	evidenceLasts = 10 * time.Second
	blindLasts    = 5 * time.Second
)

// evidence remembers when ECS last showed a disk, any disk, and when it last
// showed none. To an account without the permission to see disks it answers
// with an empty list and no error (ECS API, DescribeInstances, and users'
// reports of DescribeDisks); so an answer that lacks a disk says that it's gone
// only if others are shown.
type evidence struct{ disks, none atomic.Pointer[time.Time] }

var errBlind = errors.New("ECS shows these credentials no disk at all, in the whole region, so whether this one is gone can't be told; " +
	"is ecs:DescribeDisks allowed for all disks?")

// look returns nil if ECS shows the account any disk, if need be after one more
// call, and else an error of Kind Denied.
func (e *evidence) look(ctx context.Context, c *Client) error {
	switch {
	case within(&e.disks, evidenceLasts):
		return nil
	case within(&e.none, blindLasts):
		return &disk.Error{Op: transport.DescribeDisks.Name, Kind: disk.Denied, Err: errBlind}
	}
	reply, err := c.describePage(ctx, checkQuery())
	switch {
	case err != nil:
		return err
	case len(reply.Disks.Disk) > 0:
		return nil
	}
	markNow(&e.none)
	return &disk.Error{Op: transport.DescribeDisks.Name, Kind: disk.Denied, RequestID: reply.RequestId, Err: errBlind}
}

func markNow(at *atomic.Pointer[time.Time]) {
	now := time.Now()
	at.Store(&now)
}

func within(at *atomic.Pointer[time.Time], span time.Duration) bool {
	then := at.Load()
	return then != nil && time.Since(*then) < span
}
