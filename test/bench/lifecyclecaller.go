package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/topology"
)

// csiDriver is a driver that is measured: the shipped one, or another program.
type csiDriver struct {
	name string
	path string // empty: the shipped one
	args []string
}

// start starts the driver and returns when it serves.
func (d csiDriver) start(ctx context.Context, r *lab.Replicas) (*caller, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := error(nil)
	if d.path == "" {
		err = r.StartDriver(ctx, d.name, region)
	} else {
		err = r.StartProgram(ctx, d.name, region, d.path, d.args, nil)
	}
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix://"+r.Socket(d.name), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	if _, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		return nil, err
	}
	return &caller{conn: conn, controller: csi.NewControllerClient(conn)}, nil
}

// caller calls a driver as the sidecars do, and notes how long each operation takes from its first call to its OK.
type caller struct {
	conn       *grpc.ClientConn
	controller csi.ControllerClient

	mu    sync.Mutex
	took  map[string][]time.Duration
	later int
}

func (c *caller) close() { _ = c.conn.Close() }

// reset forgets what was noted.
func (c *caller) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took, c.later = map[string][]time.Duration{}, 0
}

// lifecycle is all that happens to one volume.
func (c *caller) lifecycle(ctx context.Context, name string, at disk.InstanceID) error {
	const gib = 1 << 30
	use := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
	zones := []*csi.Topology{{Segments: map[string]string{topology.ZoneKey: zone}}}
	var volume *csi.Volume
	steps := []struct {
		name  string
		limit time.Duration
		call  func(context.Context) error
	}{
		{"create", createTime, func(ctx context.Context) error {
			ctx = metadata.AppendToOutgoingContext(ctx, "topodisk-first-call", "true") // as disk-provisioner says; other drivers pass it over
			r, err := c.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
				Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib}, VolumeCapabilities: []*csi.VolumeCapability{use},
				Parameters: map[string]string{"type": "cloud_essd", "performanceLevel": "PL1"}, AccessibilityRequirements: &csi.TopologyRequirement{Requisite: zones, Preferred: zones},
			})
			volume = r.GetVolume()
			return err
		}},
		{"publish", otherTime, func(ctx context.Context) error {
			_, err := c.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
				VolumeId: volume.GetVolumeId(), NodeId: string(at), VolumeCapability: use, VolumeContext: volume.GetVolumeContext(),
			})
			return err
		}},
		{"expand", otherTime, func(ctx context.Context) error {
			_, err := c.controller.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
				VolumeId: volume.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 30 * gib}, VolumeCapability: use,
			})
			return err
		}},
		{"unpublish", otherTime, func(ctx context.Context) error {
			_, err := c.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volume.GetVolumeId(), NodeId: string(at)})
			return err
		}},
		{"delete", otherTime, func(ctx context.Context) error {
			_, err := c.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume.GetVolumeId()})
			return err
		}},
	}
	for _, step := range steps {
		if err := c.insist(ctx, step.name, step.limit, step.call); err != nil {
			return fmt.Errorf("%s of %s: %w", step.name, name, err)
		}
	}
	return nil
}

// final are the codes that no repetition mends.
var final = []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.OutOfRange}

// insist repeats a call with the pauses of a sidecar until it is OK.
func (c *caller) insist(ctx context.Context, name string, limit time.Duration, call func(context.Context) error) error {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		one, cancel := context.WithTimeout(ctx, limit)
		err := call(one)
		cancel()
		if err == nil || slices.Contains(final, status.Code(err)) || ctx.Err() != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.took != nil {
				c.took[name] = append(c.took[name], time.Since(began))
			}
			return err
		}
		c.mu.Lock()
		c.later++
		c.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
