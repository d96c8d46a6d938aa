package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// NodePublishVolume gives a staged volume to a Pod (CSI spec,
// NodePublishVolume). A staging mount that was lost is made again.
func (s *Server) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	u, err := parseVolumeUse(req, s.allowed)
	if err != nil {
		return nil, err
	}
	if req.GetStagingTargetPath() == "" {
		return nil, disk.Errorf(disk.Blocked, "staging_target_path is missing: a volume is staged before it is published")
	}
	staging, err := s.kubelet.resolveExisting("staging_target_path", req.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	target, err := s.kubelet.resolve("target_path", req.GetTargetPath())
	if err != nil {
		return nil, err
	}
	err = s.withDevice(ctx, u, target, func(whole device) error {
		d, err := s.stage(ctx, u, whole, staging)
		if err != nil {
			return err
		}
		return s.publish(publication{volumeUse: u, device: d, staging: staging, target: target, readOnly: u.readOnly || req.GetReadonly()})
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publication is a volume's place in one Pod.
type publication struct {
	volumeUse
	device          device
	staging, target string
	readOnly        bool // for this Pod
}

// publish mounts the volume at its target, unless it is there already.
func (s *Server) publish(p publication) error {
	others, err := s.others(p)
	if err != nil {
		return err
	}
	if p.singlePod && len(others) > 0 {
		return p.blockedError("the volume is for one Pod at a time and is published already at %v", others)
	}
	done, err := s.published(p)
	if err != nil || done {
		return err
	}
	if p.block {
		return s.publishBlock(p, len(others) > 0)
	}
	return s.publishFileSystem(p)
}

// others returns where other Pods have the volume. The kubelet binds a volume further,
// for the Pod's own subPaths and devices.
func (s *Server) others(p publication) ([]mountPoint, error) {
	uses, err := s.mounts.uses(p.device.number, p.staging)
	if err != nil {
		return nil, err
	}
	pod := s.kubelet.owner(p.target).pod
	return slices.DeleteFunc(uses, func(use mountPoint) bool {
		return use.MountPoint == p.target || pod != "" && s.kubelet.owner(use.MountPoint).pod == pod
	}), nil
}

// published says whether the volume is at its target as asked for. Something
// else there is an error.
func (s *Server) published(p publication) (bool, error) {
	m, mounted, err := s.mounts.at(p.target)
	if err != nil || !mounted {
		return false, err
	}
	readOnly := m.isReadOnly()
	if p.block {
		if readOnly, err = p.device.isReadOnly(); err != nil {
			return false, err
		}
	}
	switch {
	case m.number != p.device.number || m.device != p.block:
		return false, p.blockedError("something else is mounted at %s; unmount it", p.target)
	case p.readOnly && !readOnly && !p.block: // bound, and the process killed before it was mounted again read-only
		return false, s.mounts.unmount(p.target)
	case readOnly != p.readOnly:
		return false, p.errorf(disk.Mismatch, "the volume is published at %s with read-only %v; asked for is %v", p.target, readOnly, p.readOnly)
	}
	return true, nil
}

// publishFileSystem binds the staged file system to the target.
func (s *Server) publishFileSystem(p publication) error {
	if err := os.Mkdir(p.target, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return hostError("make the target", err)
	}
	if err := s.checkOwn("target_path", p.target, string(p.volume)); err != nil { // its files couldn't be seen, nor the directory be removed
		return err
	}
	options := []string{"bind"}
	if p.readOnly {
		options = append(options, "ro")
	}
	if err := s.mounts.mounter.Mount(p.staging, p.target, "", options); err != nil {
		return s.undoBind(p, fmt.Errorf("bind %s to %s: %w", p.staging, p.target, err))
	}
	return nil
}

// publishBlock binds the device to the target. Whether it may be written to is
// a property of the device, so all Pods that have it share it.
func (s *Server) publishBlock(p publication, shared bool) error {
	readOnly, err := p.device.isReadOnly()
	if err != nil {
		return err
	}
	if shared && readOnly != p.readOnly {
		return p.blockedError("another Pod of this node has the block volume with read-only %v; all Pods of a node have it the same way", readOnly)
	}
	if err := p.device.setReadOnly(p.readOnly); err != nil {
		return err
	}
	f, err := os.OpenFile(p.target, os.O_CREATE|os.O_RDONLY, 0o660)
	if err != nil {
		return hostError("make the target", err)
	}
	_ = f.Close()
	if err := s.mounts.mounter.Mount(p.device.path, p.target, "", []string{"bind"}); err != nil {
		return s.undoBind(p, fmt.Errorf("bind %s to %s: %w", p.device.path, p.target, err))
	}
	return nil
}

// undoBind takes away what a bind that has failed may have left.
func (s *Server) undoBind(p publication, err error) error {
	if left := s.mounts.unmountAndRemove(p.target); left != nil {
		return p.maybeMountedError(err, left)
	}
	return err
}

// NodeUnpublishVolume takes a volume away from a Pod (CSI spec,
// NodeUnpublishVolume). What isn't published is success.
func (s *Server) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := checkVolumeID(req.GetVolumeId()); err != nil {
		return nil, err
	}
	target, err := s.kubelet.resolveIfPresent("target_path", req.GetTargetPath())
	if err == nil && target != "" {
		err = s.checkOwn("target_path", target, req.GetVolumeId())
	}
	if err == nil && target != "" {
		err = s.mounts.unmountAndRemove(target)
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// checkOwn refuses to take away what this driver has not made of a volume: another volume's mount, a directory with files, a file with
// content.
func (s *Server) checkOwn(field, path, volume string) error {
	m, mounted, err := s.mounts.at(path)
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case mounted && s.devices.isOther(m.number, disk.ID(volume)):
		return disk.Errorf(disk.Invalid, "%s %q has another disk than %s: nothing was unmounted", field, path, volume)
	case mounted, errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at %s: %w", field, err)
	case info.Mode().IsRegular() && info.Size() == 0:
		return nil
	case !info.IsDir():
		return disk.Errorf(disk.Blocked, "%s %q is a file that the driver didn't make; it is left there", field, path)
	}
	files, err := os.ReadDir(path)
	if err == nil && len(files) > 0 {
		return disk.Errorf(disk.Blocked, "%s %q is a directory that nothing is mounted at, and holds %d files; it is left there: move them elsewhere", field, path, len(files))
	}
	return err
}
