package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// NodeUnstageVolume unmounts the file system of a volume (CSI spec,
// NodeUnstageVolume). It is OK when nothing on the node holds the device any
// more, for the disk is detached next. What isn't staged is OK.
func (s *Server) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := checkVolumeID(req.GetVolumeId()); err != nil {
		return nil, err
	}
	volume := disk.ID(req.GetVolumeId())
	if err := s.blanks.forget(ctx, volume, serialOf(volume)); err != nil {
		return nil, err
	}
	staging, err := s.kubelet.resolveIfPresent("staging_target_path", req.GetStagingTargetPath())
	if err == nil && staging != "" {
		err = s.unstage(volume, staging)
	}
	if err == nil {
		s.ungrown.Delete(volume)
		err = s.awaitRelease(ctx, volume, req.GetStagingTargetPath())
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// unstage unmounts a volume that no Pod has any more.
func (s *Server) unstage(volume disk.ID, staging string) error {
	m, mounted, err := s.mounts.at(staging)
	if err != nil {
		return err
	}
	if !mounted {
		return s.unstageBlock(volume, staging)
	}
	if s.devices.isOther(m.number, volume) {
		return disk.Errorf(disk.Invalid, "staging_target_path %q has another disk than %s: nothing was unmounted", staging, volume)
	}
	if err := s.checkUnpublished(volume, m.number, staging, false); err != nil {
		return err
	}
	return s.mounts.unmount(staging)
}

// unstageBlock takes away what another driver, whose place this one has taken,
// bound when it staged a block volume. The kubelet removes the staging path
// next, which has to be empty. What isn't that bind is left alone.
func (s *Server) unstageBlock(volume disk.ID, staging string) error {
	if d, found, err := s.devices.findOnce(serialOf(volume)); err != nil {
		return err
	} else if found {
		if err := s.checkUnpublished(volume, d.number, staging, true); err != nil {
			return err
		}
	}
	at := filepath.Join(staging, string(volume))
	for {
		m, mounted, err := s.mounts.at(at)
		if err != nil {
			return err
		}
		if !mounted {
			return removeEmpty(at)
		}
		if !m.device {
			return nil
		}
		if err := s.checkUnpublished(volume, m.number, staging, true); err != nil {
			return err
		}
		if err := s.mounts.mounter.Unmount(at); err != nil {
			return fmt.Errorf("unmount %s: %w", at, err)
		}
	}
}

// checkUnpublished refuses to unstage a volume that a Pod has. The number of a device that is bound may be another disk's by now.
func (s *Server) checkUnpublished(volume disk.ID, number uint64, staging string, block bool) error {
	uses, err := s.mounts.uses(number, staging)
	if err != nil {
		return err
	}
	if block {
		own := s.kubelet.owner(staging)
		uses = slices.DeleteFunc(uses, func(use mountPoint) bool {
			other := s.kubelet.owner(use.MountPoint)
			return !use.device || other.volume != "" && own.volume != "" && other.volume != own.volume
		})
	}
	if len(uses) > 0 {
		return volumeErrorf(volume, disk.InUse, "the volume is published still at %v", uses)
	}
	return nil
}

// removeEmpty removes the file that a bind was on before the node booted, and
// nothing that has content.
func removeEmpty(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() > 0) {
		return nil
	}
	return errors.Join(err, remove(path))
}

// awaitRelease returns when nobody holds the device of a volume any more: another mount namespace may still have the mount, as of a
// container that was made while it was there. A block volume is the Pod's, and the host may have made something of it. Held too long is
// an error, and the next call waits again.
func (s *Server) awaitRelease(ctx context.Context, volume disk.ID, staging string) error {
	if s.kubelet.owner(staging).staged {
		return nil
	}
	return poll(ctx, findTimeout, func() (bool, error) {
		paths, _ := s.devices.withSerial(serialOf(volume))
		for _, path := range paths {
			d, err := open(path)
			if err == nil {
				err = s.checkUnused(d)
			}
			if disk.KindOf(err) == disk.InUse {
				return false, err
			} // else it is free, or has left the node
		}
		return true, nil
	})
}
