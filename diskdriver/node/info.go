package node

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Facts tells what only others than the node's Linux know.
type Facts interface {
	// Node returns who and where the node is and how many disks of the driver
	// it takes besides those that it sees and that are not the driver's, given
	// the serial numbers of the disks that the node sees. As long as something
	// isn't known, the error says what, and who knows it.
	Node(ctx context.Context, serials []string) (disk.Node, error)
}

// NodeGetInfo says who and where the node is and how many volumes it takes (CSI
// spec, NodeGetInfo). Until all of it is known it is an error, so that no node
// is taken for one without a limit.
func (s *Server) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	serials, err := s.devices.serials(string(s.kubelet))
	if err != nil {
		return nil, err
	}
	about, err := s.facts.Node(ctx, serials)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetInfoResponse{
		NodeId:             string(about.ID),
		MaxVolumesPerNode:  about.MaxVolumes,
		AccessibleTopology: &csi.Topology{Segments: about.Segments},
	}, nil
}
