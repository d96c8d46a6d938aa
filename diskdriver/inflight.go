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
	held map[string]*holders
}

// holders are who works on one volume or snapshot: one operation on all of it,
// or several on their nodes' parts.
type holders struct {
	whole bool
	nodes map[string]bool
}

func newInflight() *inflight { return &inflight{held: make(map[string]*holders)} }

// claim is what an operation works on.
type claim struct {
	what string // a volume or a snapshot by name or by ID, which are never mistaken for each other
	node string // whose part of the volume; empty: all of it
}

// claimOf returns what a request changes; the zero claim if it changes nothing.
//
// Publishes of one volume to several nodes don't disturb one another if each is
// for a volume that nodes share, and neither do unpublishes from a node: what
// they do is done to the node's attachment and the tag of its own. A publish for
// one node alone has to see all that happens to the volume.
func claimOf(req any) claim {
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		return volumeNamed(r.GetName())
	case *csi.DeleteVolumeRequest:
		return claim{what: "volume with ID " + r.GetVolumeId()}
	case *csi.ControllerPublishVolumeRequest:
		c := claim{what: "volume with ID " + r.GetVolumeId()}
		if capability.IsShared(r.GetVolumeCapability().GetAccessMode().GetMode()) {
			c.node = r.GetNodeId()
		}
		return c
	case *csi.ControllerUnpublishVolumeRequest:
		return claim{what: "volume with ID " + r.GetVolumeId(), node: r.GetNodeId()}
	case *csi.ControllerExpandVolumeRequest:
		return claim{what: "volume with ID " + r.GetVolumeId()}
	case *csi.ControllerModifyVolumeRequest:
		return claim{what: "volume with ID " + r.GetVolumeId()}
	case *csi.CreateSnapshotRequest:
		return claim{what: "snapshot named " + r.GetName()}
	case *csi.DeleteSnapshotRequest:
		return claim{what: "snapshot with ID " + r.GetSnapshotId()}
	case *csi.CreateVolumeGroupSnapshotRequest:
		return claim{what: "group snapshot named " + r.GetName()}
	case *csi.DeleteVolumeGroupSnapshotRequest:
		return claim{what: "group snapshot with ID " + r.GetGroupSnapshotId()}
	}
	if r, ok := req.(interface{ GetVolumeId() string }); ok && changesNode(req) {
		return claim{what: "volume on this node with ID " + r.GetVolumeId()}
	}
	return claim{}
}

// changesNode says whether a request changes what a node does with a volume.
func changesNode(req any) bool {
	switch req.(type) {
	case *csi.NodeStageVolumeRequest, *csi.NodeUnstageVolumeRequest, *csi.NodePublishVolumeRequest, *csi.NodeUnpublishVolumeRequest,
		*csi.NodeExpandVolumeRequest:
		return true
	}
	return false
}

func volumeNamed(name string) claim { return claim{what: "volume named " + name} }

// String returns the claim in words.
func (c claim) String() string {
	if c.node == "" {
		return c.what
	}
	return c.what + " for node " + c.node
}

// refuse lets operations work side by side on what doesn't overlap.
func (f *inflight) refuse(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	c := claimOf(req)
	if c == (claim{}) {
		return handler(ctx, req)
	}
	if !f.take(c) {
		return nil, disk.Errorf(disk.Pending, "another operation is working on the %s", c)
	}
	defer f.release(c)
	return handler(ctx, req)
}

func (f *inflight) take(c claim) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.held[c.what]
	switch {
	case h == nil:
		f.held[c.what] = &holders{whole: c.node == "", nodes: map[string]bool{c.node: true}}
		return true
	case h.whole || c.node == "" || h.nodes[c.node]:
		return false
	}
	h.nodes[c.node] = true
	return true
}

func (f *inflight) release(c claim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.held[c.what]
	delete(h.nodes, c.node)
	if len(h.nodes) == 0 {
		delete(f.held, c.what)
	}
}
