package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// NodeGetVolumeStats measures a volume: the file system in bytes and inodes, or
// the size of a block volume (CSI spec, NodeGetVolumeStats). Where no volume is
// mounted it is NotFound, and not the host's own numbers; where its device has
// left the node it is Unreachable, and not the kernel's last numbers.
func (s *Server) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	at, err := s.ownVolumeAt("volume_path", req.GetVolumePath(), req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if s.devices.isGone(at.number) {
		return nil, volumeErrorf(disk.ID(req.GetVolumeId()), disk.Unreachable, "the device at %s has left the node", at)
	}
	if at.device {
		d, err := open(at.MountPoint)
		if err != nil {
			return nil, fmt.Errorf("measure the block volume: %w", err)
		}
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: d.size}}}, nil
	}
	measured, err := s.measure(ctx, disk.ID(req.GetVolumeId()), at)
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

// answersWithin is how long a file system may take to say how it is. One that
// is sound answers in microseconds.
const answersWithin = 5 * time.Second

// measurement is what a mounted file system says of itself.
type measurement struct {
	stat     unix.Statfs_t
	numbers  error // of the numbers in stat
	contents error // of reading one entry of its root directory
	extent   extent
	extents  error // of the extent
}

// measure measures a mounted file system. No answer in time is Unreachable.
//
// The kernel keeps the thread that asks one whose disk hangs for as long as it hangs, so each is asked by one thread at a time, and
// whoever asks meanwhile waits for the same answer.
func (s *Server) measure(ctx context.Context, volume disk.ID, at mountPoint) (measurement, error) {
	answer := s.measuring.DoChan(fmt.Sprintf("%s %d", volume, at.number), func() (any, error) {
		m := measureFileSystem(at.MountPoint)
		if m.extents = errors.Join(m.numbers, m.contents); m.extents == nil {
			m.extent, m.extents = s.devices.extent(at.number, at.MountPoint)
		}
		return m, nil
	})
	limit := time.NewTimer(answersWithin)
	defer limit.Stop()
	select {
	case result := <-answer:
		m, ok := result.Val.(measurement)
		if !ok {
			return m, fmt.Errorf("measure the file system at %s: %w", at, result.Err)
		}
		return m, nil
	case <-ctx.Done():
		return measurement{}, ctx.Err()
	case <-limit.C:
		return measurement{}, volumeErrorf(volume, disk.Unreachable, "the file system at %s doesn't answer within %s; its disk may hang", at, answersWithin)
	}
}

// measureFileSystem asks a file system how it is, and waits as long as it takes.
func measureFileSystem(at string) (m measurement) {
	m.numbers = unix.Statfs(at, &m.stat)
	dir, err := os.Open(at)
	if err != nil {
		m.contents = err
		return m
	}
	defer func() { _ = dir.Close() }()
	if _, err := dir.Readdirnames(1); !errors.Is(err, io.EOF) {
		m.contents = err
	}
	return m
}
