package node

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// NodeGetVolumeStats measures a volume: the file system in bytes and inodes, or
// the size of a block volume (CSI spec, NodeGetVolumeStats). Where no volume is
// mounted it is NotFound, and not the host's own numbers.
func (s *Server) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	at, err := s.volumeAt("volume_path", req.GetVolumePath(), req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if at.device {
		size, err := sizeOf(at.MountPoint)
		if err != nil {
			return nil, fmt.Errorf("measure the block volume: %w", err)
		}
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}}}, nil
	}
	measured, err := s.probes.measure(ctx, disk.ID(req.GetVolumeId()), at)
	if err == nil {
		err = measured.numbers
	}
	if err != nil {
		return nil, fmt.Errorf("measure the file system at %s: %w", at.MountPoint, err)
	}
	s.isShort(disk.ID(req.GetVolumeId()), at, measured)
	stat := measured.stat
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit:      csi.VolumeUsage_BYTES,
			Total:     int64(stat.Blocks) * stat.Bsize,
			Available: int64(stat.Bavail) * stat.Bsize,
			Used:      int64(stat.Blocks-stat.Bfree) * stat.Bsize,
		},
		{
			Unit:      csi.VolumeUsage_INODES,
			Total:     int64(stat.Files),
			Available: int64(stat.Ffree),
			Used:      int64(stat.Files - stat.Ffree),
		},
	}}, nil
}
