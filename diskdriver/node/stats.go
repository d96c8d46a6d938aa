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
	if req.GetVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	at, err := s.volumeAt("volume_path", req.GetVolumePath(), req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if _, block := blockAt(at); block {
		size, err := sizeOf(at)
		if err != nil {
			return nil, fmt.Errorf("measure the block volume: %w", err)
		}
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}}}, nil
	}
	m, _, err := s.mounts.at(at)
	if err != nil {
		return nil, err
	}
	measured, err := s.probes.measure(ctx, disk.ID(req.GetVolumeId()), numberOf(m), at)
	if err == nil {
		err = measured.numbers
	}
	if err != nil {
		return nil, fmt.Errorf("measure the file system at %s: %w", at, err)
	}
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
