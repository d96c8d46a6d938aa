package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
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
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/topology"
)

const (
	region    = "cn-hangzhou"
	zone      = "cn-hangzhou-h"
	instances = 100
)

// How long the sidecars give an operation, and how long they pause after one that is to be tried again.
const (
	createTime = 150 * time.Second // disk-provisioner
	otherTime  = 60 * time.Second  // the limit that topodisk's chart gives attaches, detaches and resizes
	firstPause = time.Second
	lastPause  = 5 * time.Minute
)

func instance(i int) disk.InstanceID { return disk.InstanceID(fmt.Sprintf("i-%03d", i%instances)) }

// startReplicas starts a simulator with n instances for drivers. What ends it returns the error of the run, and keeps the logs if there is one.
func startReplicas(ctx context.Context, programs, queues string, n int, more ...string) (r *simulator.Replicas, end func(error) error, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, nil, err
	}
	args := append([]string{"--zone=" + zone, "--queues=" + queues, "--calls-kept=1000000"}, more...)
	for i := range n {
		args = append(args, fmt.Sprintf("--instance=%s=%s/ecs.g7.4xlarge", instance(i), zone))
	}
	if r, err = simulator.StartReplicas(ctx, programs, dir, region, args...); r == nil {
		return nil, nil, errors.Join(err, os.Remove(dir))
	}
	end = func(err error) error {
		if err = errors.Join(err, r.Stop()); err != nil {
			return fmt.Errorf("%w (logs in %s)", err, dir)
		}
		return os.RemoveAll(dir)
	}
	if err != nil {
		return nil, nil, end(err)
	}
	return r, end, nil
}

// csiDriver is a driver that is measured: the shipped one, or another program.
type csiDriver struct {
	name string
	path string // empty: the shipped one
	args []string
}

// start starts the driver and returns when it serves.
func (d csiDriver) start(ctx context.Context, r *simulator.Replicas) (*caller, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := error(nil)
	if d.path == "" {
		err = r.StartDriver(ctx, d.name)
	} else {
		err = r.StartProgram(ctx, d.name, d.path, d.args)
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
	return &caller{conn: conn}, nil
}

// caller calls a driver as the sidecars do, and notes how long each operation takes from its first call to its OK.
type caller struct {
	truth        *simulator.Client // what the driver says is held against; nil: it isn't
	longestPause time.Duration     // between two calls; 0: lastPause

	mu    sync.Mutex
	conn  *grpc.ClientConn
	took  map[string][]time.Duration // of calls since, until their OK
	since time.Time
	later int
	wrong []string // answers OK that are not so in ECS
}

func (c *caller) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.Close()
}

// turnTo has the calls from now on go to the driver of another caller, which is used up.
func (c *caller) turnTo(next *caller) {
	c.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = next.conn
}

// controller is the driver.
func (c *caller) controller() csi.ControllerClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	return csi.NewControllerClient(c.conn)
}

// reset forgets what was noted.
func (c *caller) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took, c.later, c.wrong, c.since = map[string][]time.Duration{}, 0, nil, time.Now()
}

// check notes if what the driver has said is not so in ECS: phase is what the disk must be at the instance, empty for
// nothing, and gone says that it must not exist.
func (c *caller) check(ctx context.Context, step, id string, at disk.InstanceID, phase string, gone bool) error {
	if c.truth == nil {
		return nil
	}
	state, err := c.truth.State(ctx)
	if err != nil {
		return err
	}
	is, there := "", false
	for _, d := range state.Disks {
		if d.ID != id {
			continue
		}
		there = true
		for _, a := range d.Attachments {
			is += a.Phase + " at " + a.Instance
		}
	}
	want := phase
	if phase != "" {
		want += " at " + string(at)
	}
	if there == gone || is != want {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wrong = append(c.wrong, fmt.Sprintf("%s of %s was answered OK: in ECS it is there: %v, and attached: %q", step, id, there, is))
	}
	return nil
}

// attached is what ECS calls a disk that an instance has.
const attached = "In_use"

// lifecycle is all that happens to one volume.
func (c *caller) lifecycle(ctx context.Context, name string, at disk.InstanceID) error {
	const gib = 1 << 30
	use := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
	zones := []*csi.Topology{{Segments: map[string]string{topology.ZoneKey: zone}}}
	var volume *csi.Volume
	asked := false
	steps := []struct {
		name  string
		limit time.Duration
		phase string // of the attachment when it is done
		call  func(context.Context) error
	}{
		{"create", createTime, "", func(ctx context.Context) error {
			if !asked {
				asked = true
				ctx = metadata.AppendToOutgoingContext(ctx, "topodisk-first-call", "true") // as disk-provisioner says; other drivers pass it over
			}
			r, err := c.controller().CreateVolume(ctx, &csi.CreateVolumeRequest{
				Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib}, VolumeCapabilities: []*csi.VolumeCapability{use},
				Parameters:                map[string]string{"type": "cloud_essd", "performanceLevel": "PL1"},
				AccessibilityRequirements: &csi.TopologyRequirement{Requisite: zones, Preferred: zones},
			})
			volume = r.GetVolume()
			return err
		}},
		{"publish", otherTime, attached, func(ctx context.Context) error {
			_, err := c.controller().ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
				VolumeId: volume.GetVolumeId(), NodeId: string(at), VolumeCapability: use, VolumeContext: volume.GetVolumeContext(),
			})
			return err
		}},
		{"expand", otherTime, attached, func(ctx context.Context) error {
			_, err := c.controller().ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
				VolumeId: volume.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 30 * gib}, VolumeCapability: use,
			})
			return err
		}},
		{"unpublish", otherTime, "", func(ctx context.Context) error {
			_, err := c.controller().ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volume.GetVolumeId(), NodeId: string(at)})
			return err
		}},
		{"delete", otherTime, "", func(ctx context.Context) error {
			_, err := c.controller().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume.GetVolumeId()})
			return err
		}},
	}
	for _, step := range steps {
		if err := c.insist(ctx, step.name, step.limit, step.call); err != nil {
			return fmt.Errorf("%s of %s: %w", step.name, name, err)
		}
		if err := c.check(ctx, step.name, volume.GetVolumeId(), at, step.phase, step.name == "delete"); err != nil {
			return err
		}
	}
	return nil
}

// final are the codes that no repetition mends.
var final = []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists,
	codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.OutOfRange}

// insist repeats a call with the pauses of a sidecar until it is OK.
func (c *caller) insist(ctx context.Context, name string, limit time.Duration, call func(context.Context) error) error {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, cmp.Or(c.longestPause, lastPause)) {
		one, cancel := context.WithTimeout(ctx, limit)
		err := call(one)
		cancel()
		if err == nil || slices.Contains(final, status.Code(err)) || ctx.Err() != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.took != nil && err == nil && !began.Before(c.since) {
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
