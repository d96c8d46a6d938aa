package node

import (
	"context"
	"errors"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// NodeExpandVolume lets a file system fill the device it is on, after the node
// has seen the device at its new size (CSI spec, NodeExpandVolume). A block
// volume needs no more than that. capacity_bytes is the size of the device.
func (s *Server) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	at, err := s.ownVolumeAt("volume_path", req.GetVolumePath(), req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	whole, d, err := s.devices.byNumber(at.number)
	if err != nil {
		return nil, err
	}
	size, err := whole.awaitSize(ctx, req.GetCapacityRange().GetRequiredBytes())
	if err == nil && !at.device {
		err = s.expand(disk.ID(req.GetVolumeId()), d, s.stagedAt(at, req.GetStagingTargetPath()))
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// ownVolumeAt is volumeAt, and refuses another disk than the volume's.
func (s *Server) ownVolumeAt(field, path, volume string) (mountPoint, error) {
	at, err := s.volumeAt(field, path, volume)
	if err == nil && s.devices.isOther(at.number, disk.ID(volume)) {
		err = volumeErrorf(disk.ID(volume), disk.Blocked, "%s %q has another disk than %s; delete the Pods that use it, and the volume is mounted again", field, path, volume)
	}
	return at, err
}

// volumeAt looks at the path of a published or staged volume. That there is none is
// NotFound: what is below the path belongs to the host.
func (s *Server) volumeAt(field, path, volume string) (mountPoint, error) {
	if volume == "" {
		return mountPoint{}, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	nothing := volumeErrorf(disk.ID(volume), disk.NotFound, "%s %q: no volume is there", field, path)
	if _, err := os.Lstat(path); path != "" && errors.Is(err, os.ErrNotExist) {
		return mountPoint{}, nothing
	}
	real, err := s.kubelet.resolve(field, path)
	if err != nil {
		return mountPoint{}, err
	}
	m, mounted, err := s.mounts.at(real)
	if err == nil && !mounted {
		err = nothing
	}
	return m, err
}

// stagedAt returns where a published volume is staged, which may be written to where a
// Pod's mount is for reading; its own path if it is staged elsewhere.
func (s *Server) stagedAt(at mountPoint, staging string) string {
	if real, err := s.kubelet.resolve("staging_target_path", staging); err == nil {
		if m, mounted, err := s.mounts.at(real); err == nil && mounted && m.number == at.number {
			return real
		}
	}
	return at.MountPoint
}

// awaitSize waits until the node sees the device at a size, and returns its size.
func (d device) awaitSize(ctx context.Context, required int64) (size int64, err error) {
	err = poll(ctx, findTimeout, func() (bool, error) {
		d, err = open(d.path)
		if err != nil || d.size >= required {
			return true, err
		}
		return false, disk.Errorf(disk.Pending, "%s has %d bytes; asked for are %d, which the node doesn't see yet", d.path, d.size, required)
	})
	return d.size, err
}

// expand lets the file system that is mounted at a path fill its disk. One of a disk
// that is for reading is left as it is.
func (s *Server) expand(volume disk.ID, d device, at string) error {
	if readOnly, err := d.isReadOnly(); err != nil || readOnly {
		return err
	}
	e, err, _ := s.grow(volumeUse{volume: volume}, d.number, at)
	s.noteGrowth(volume, e, err)
	if err == nil {
		return nil
	}
	// At FailedPrecondition the kubelet lets the Pod start, and asks again when the volume is mounted next.
	return volumeErrorf(volume, disk.Blocked, "the volume is used at its old size: %w", err)
}
