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
	if err == nil && req.GetStagingTargetPath() == "" {
		err = disk.Errorf(disk.Blocked, "staging_target_path is missing: a volume is staged before it is published")
	}
	if err == nil {
		u.staging, err = s.kubelet.resolveExisting("staging_target_path", req.GetStagingTargetPath())
	}
	if err == nil {
		u.target, err = s.kubelet.resolve("target_path", req.GetTargetPath())
	}
	if err == nil {
		u.podReads = u.readOnly || req.GetReadonly()
		err = s.withDevice(ctx, u, func(whole device) error {
			d, err := s.stage(ctx, u, whole)
			if err != nil {
				return err
			}
			return s.publish(u, d)
		})
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publish mounts the volume at its target, unless it is there already.
func (s *Server) publish(u volumeUse, d device) error {
	others, err := s.others(u, d)
	if err != nil {
		return err
	}
	if u.singlePod && len(others) > 0 {
		return u.blockedError("the volume is for one Pod at a time and is published already at %v", others)
	}
	done, err := s.isAtTarget(u, d)
	if err != nil || done {
		return err
	}
	if u.block {
		return s.publishBlock(u, d, len(others) > 0)
	}
	return s.publishFileSystem(u)
}

// others returns where other Pods have the volume. The kubelet binds a volume further,
// for the Pod's own subPaths and devices.
func (s *Server) others(u volumeUse, d device) ([]mountPoint, error) {
	uses, err := s.mounts.uses(d.number, u.staging)
	if err != nil {
		return nil, err
	}
	pod := s.kubelet.owner(u.target).pod
	return slices.DeleteFunc(uses, func(use mountPoint) bool {
		return use.MountPoint == u.target || pod != "" && s.kubelet.owner(use.MountPoint).pod == pod
	}), nil
}

// isAtTarget says whether the volume is at its target as asked for. Something
// else there is an error.
func (s *Server) isAtTarget(u volumeUse, d device) (bool, error) {
	m, mounted, err := s.mounts.at(u.target)
	if err != nil || !mounted {
		return false, err
	}
	readOnly := m.isReadOnly()
	if u.block {
		if readOnly, err = d.isReadOnly(); err != nil {
			return false, err
		}
	}
	switch {
	case m.number != d.number || m.device != u.block:
		return false, u.blockedError("something else is mounted at %s; unmount it", u.target)
	case u.podReads && !readOnly && !u.block: // bound, and the process killed before it was mounted again read-only
		return false, s.mounts.unmount(u.target)
	case readOnly != u.podReads:
		return false, u.errorf(disk.Mismatch, "the volume is published at %s with read-only %v; asked for is %v", u.target, readOnly, u.podReads)
	}
	return true, nil
}

// publishFileSystem binds the staged file system to the target.
func (s *Server) publishFileSystem(u volumeUse) error {
	if err := os.Mkdir(u.target, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return hostError("make the target", err)
	}
	if err := s.checkOwn("target_path", u.target, string(u.volume)); err != nil { // its files couldn't be seen, nor the directory be removed
		return err
	}
	var options []string
	if u.podReads {
		options = []string{"ro"}
	}
	return s.bind(u, u.staging, options...)
}

// publishBlock binds the device to the target. Whether it may be written to is
// a property of the device, so all Pods that have it share it.
func (s *Server) publishBlock(u volumeUse, d device, shared bool) error {
	if err := s.checkOwn("target_path", u.target, string(u.volume)); err != nil { // unpublish would remove what is there
		return err
	}
	readOnly, err := d.isReadOnly()
	if err != nil {
		return err
	}
	if shared && readOnly != u.podReads {
		return u.blockedError("another Pod of this node has the block volume with read-only %v; all Pods of a node have it the same way", readOnly)
	}
	if err := d.setReadOnly(u.podReads); err != nil {
		return err
	}
	f, err := os.OpenFile(u.target, os.O_CREATE|os.O_RDONLY, 0o660)
	if err != nil {
		return hostError("make the target", err)
	}
	_ = f.Close()
	return s.bind(u, d.path)
}

// bind binds a path to the target, and takes away what a bind that has failed may have left.
func (s *Server) bind(u volumeUse, from string, options ...string) error {
	err := s.mounts.mounter.Mount(from, u.target, "", append(options, "bind"))
	if err == nil {
		return nil
	}
	err = fmt.Errorf("bind %s to %s: %w", from, u.target, err)
	if left := s.mounts.unmountAndRemove(u.target); left != nil {
		return u.maybeMountedError(errors.Join(err, left))
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
	case mounted && m.device && s.kubelet.isForBlock(path): // it was made of this volume, whose disk has gone, whoever has its number now
		return nil
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
