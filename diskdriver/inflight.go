package diskdriver

import (
	"context"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// inflight is the volumes and snapshots that an operation is working on. The CSI
// specification (Concurrency) leaves it to the plugin what a second operation
// gets; here it is Pending.
type inflight struct {
	mu      sync.Mutex
	volumes map[string]bool
}

func newInflight() *inflight { return &inflight{volumes: make(map[string]bool)} }

// target names the volume or the snapshot that a request changes; empty if it
// changes none. A name is never mistaken for an ID.
func target(req any) string {
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		return volumeNamed(r.GetName())
	case *csi.DeleteVolumeRequest:
		return "volume with ID " + r.GetVolumeId()
	case *csi.ControllerPublishVolumeRequest:
		return "volume with ID " + r.GetVolumeId()
	case *csi.ControllerUnpublishVolumeRequest:
		return "volume with ID " + r.GetVolumeId()
	case *csi.ControllerExpandVolumeRequest:
		return "volume with ID " + r.GetVolumeId()
	case *csi.ControllerModifyVolumeRequest:
		return "volume with ID " + r.GetVolumeId()
	case *csi.CreateSnapshotRequest:
		return "snapshot named " + r.GetName()
	case *csi.DeleteSnapshotRequest:
		return "snapshot with ID " + r.GetSnapshotId()
	case *csi.CreateVolumeGroupSnapshotRequest:
		return "group snapshot named " + r.GetName()
	case *csi.DeleteVolumeGroupSnapshotRequest:
		return "group snapshot with ID " + r.GetGroupSnapshotId()
	}
	return ""
}

func volumeNamed(name string) string { return "volume named " + name }

// refuse lets one operation at a time work on a volume.
func (f *inflight) refuse(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	volume := target(req)
	if volume == "" {
		return handler(ctx, req)
	}
	if !f.take(volume) {
		return nil, disk.Errorf(disk.Pending, "another operation is working on the %s", volume)
	}
	defer f.release(volume)
	return handler(ctx, req)
}

func (f *inflight) take(volume string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.volumes[volume] {
		return false
	}
	f.volumes[volume] = true
	return true
}

func (f *inflight) release(volume string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.volumes, volume)
}
