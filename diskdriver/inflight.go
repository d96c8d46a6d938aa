package diskdriver

import (
	"context"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/topodisk/topodisk/diskdriver/capability"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// inflight is what operations are working on: volumes, snapshots, and of a
// volume for several nodes perhaps one node's part alone. The CSI specification
// (Concurrency) leaves it to the plugin what a second operation gets; here it is
// Pending.
type inflight struct {
	mu   sync.Mutex
	held map[string]map[string]bool // by what it is and by node; the empty node is all of it
}

func newInflight() *inflight { return &inflight{held: make(map[string]map[string]bool)} }

// target is what an operation works on.
type target struct {
	what string // a volume or a snapshot by name or by ID, which are never mistaken for each other
	node string // whose part of the volume; empty: all of it
}

// targetOf returns what a request changes; the zero target if it changes nothing.
//
// Publishes of one volume to several nodes don't disturb one another if each is
// for a volume that nodes share, and neither do unpublishes from a node: what
// they do is done to the node's attachment and the tag of its own. A publish for
// one node alone has to see all that happens to the volume.
func targetOf(req any) target {
	const volumeWithID = "volume with ID "
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		return volumeNamed(r.GetName())
	case *csi.ControllerPublishVolumeRequest:
		if !capability.IsShared(r.GetVolumeCapability().GetAccessMode().GetMode()) {
			return target{what: volumeWithID + r.GetVolumeId()}
		}
		return target{what: volumeWithID + r.GetVolumeId(), node: r.GetNodeId()}
	case *csi.ControllerUnpublishVolumeRequest:
		return target{what: volumeWithID + r.GetVolumeId(), node: r.GetNodeId()}
	case *csi.DeleteVolumeRequest, *csi.ControllerExpandVolumeRequest, *csi.ControllerModifyVolumeRequest:
		return target{what: volumeWithID + volumeOf(req, nil)}
	case *csi.CreateSnapshotRequest:
		return target{what: "snapshot named " + r.GetName()}
	case *csi.DeleteSnapshotRequest:
		return target{what: "snapshot with ID " + r.GetSnapshotId()}
	case *csi.CreateVolumeGroupSnapshotRequest:
		return target{what: "group snapshot named " + r.GetName()}
	case *csi.DeleteVolumeGroupSnapshotRequest:
		return target{what: "group snapshot with ID " + r.GetGroupSnapshotId()}
	case *csi.NodeStageVolumeRequest, *csi.NodeUnstageVolumeRequest, *csi.NodePublishVolumeRequest, *csi.NodeUnpublishVolumeRequest,
		*csi.NodeExpandVolumeRequest:
		return target{what: "volume on this node with ID " + volumeOf(req, nil)}
	}
	return target{}
}

func volumeNamed(name string) target { return target{what: "volume named " + name} }

// String returns the target in words.
func (t target) String() string {
	if t.node == "" {
		return t.what
	}
	return t.what + " for node " + t.node
}

// refuse lets operations work side by side on what doesn't overlap.
func (f *inflight) refuse(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	t := targetOf(req)
	if t == (target{}) {
		return handler(ctx, req)
	}
	if !f.take(t) {
		return nil, disk.Errorf(disk.Pending, "another operation is working on the %s", t)
	}
	defer f.release(t)
	return handler(ctx, req)
}

func (f *inflight) take(t target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes := f.held[t.what]
	switch {
	case nodes == nil:
		f.held[t.what] = map[string]bool{t.node: true}
		return true
	case nodes[""] || t.node == "" || nodes[t.node]:
		return false
	}
	nodes[t.node] = true
	return true
}

func (f *inflight) release(t target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held[t.what], t.node)
	if len(f.held[t.what]) == 0 {
		delete(f.held, t.what)
	}
}
