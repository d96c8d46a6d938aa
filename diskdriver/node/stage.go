package node

import (
	"context"
	"errors"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// NodeStageVolume finds the device of a disk and, unless it is a block volume,
// mounts its file system, which it makes if the disk is provably blank (CSI
// spec, NodeStageVolume).
func (s *Server) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	u, err := parseVolumeUse(req)
	if err != nil {
		return nil, err
	}
	staging, err := s.paths.resolveExisting("staging_target_path", req.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	if _, err := s.stage(ctx, u, staging); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// stage makes sure that a volume is staged, and returns its device: the
// partition, if its file system is in one.
func (s *Server) stage(ctx context.Context, u volumeUse, staging string) (device, error) {
	whole, err := s.devices.find(ctx, u.serial)
	if err != nil {
		return device{}, err
	}
	parts, err := s.devices.partitions(whole)
	if err == nil {
		err = whole.checkSize(u.size)
	}
	if err == nil {
		err = s.devices.checkHost(whole, parts, s.paths.kubelet)
	}
	if err != nil {
		return device{}, err
	}
	d, err := s.stageDevice(ctx, u, whole, parts, staging)
	if err != nil && whole.isGone() {
		err = u.errorf(disk.Pending, "%s left the node while the volume was staged, and is waited for again: %w", whole.path, err)
	}
	return d, err
}

// stageDevice makes sure that a volume is staged with a device that is its own.
func (s *Server) stageDevice(ctx context.Context, u volumeUse, whole device, parts []device, staging string) (device, error) {
	if u.block {
		return whole, s.stageBlock(u, whole, staging)
	}
	if d, staged, err := s.staged(u, append(parts, whole), staging); err != nil {
		return d, err
	} else if staged {
		return d, s.growStaged(ctx, u, d, staging)
	}
	return s.stageFileSystem(ctx, u, whole, parts, staging)
}

// stageBlock has nothing to do but to make sure that nobody else has the
// device.
func (s *Server) stageBlock(u volumeUse, d device, staging string) error {
	uses, err := s.mounts.uses(d.number, staging)
	if err != nil || len(uses) > 0 {
		return err
	}
	if err := d.checkUnused(); err != nil {
		return err
	}
	return d.setReadOnly(u.readOnly)
}

// staged says whether the volume is staged, and with which of its devices.
// Another device at that place is an error.
func (s *Server) staged(u volumeUse, devices []device, staging string) (device, bool, error) {
	m, mounted, err := s.mounts.at(staging)
	if err != nil || !mounted {
		return device{}, false, err
	}
	at := slices.IndexFunc(devices, func(d device) bool { return d.number == numberOf(m) })
	if at < 0 {
		return device{}, false, u.blockedError("%s is mounted at %s, which is not the volume's device; unmount it", m.Source, staging)
	}
	readOnly := slices.Contains(m.MountOptions, "ro")
	switch {
	case u.fsType != "" && m.FsType != u.fsType:
		return device{}, false, u.errorf(disk.Mismatch, "the volume is staged as %s; asked for is %s", m.FsType, u.fsType)
	case readOnly != u.readOnly:
		return device{}, false, u.errorf(disk.Mismatch, "the volume is staged with read-only %v; asked for is %v", readOnly, u.readOnly)
	}
	return devices[at], true, nil
}

// stageFileSystem mounts the file system of a volume, after what it takes.
func (s *Server) stageFileSystem(ctx context.Context, u volumeUse, whole device, parts []device, staging string) (device, error) {
	d, fsType, err := s.prepare(ctx, u, whole, parts, staging)
	if err != nil {
		return d, err
	}
	if err := s.mountFileSystem(u, d, fsType, staging); err != nil {
		return d, err
	}
	return d, s.growStaged(ctx, u, d, staging)
}

// growStaged lets the file system of a staged volume fill its device: what was
// restored from a smaller disk is as small. A call before this one may have been
// cut short between the mount and the growth.
//
// Not every kernel lets a mounted file system grow. One that Pods have is left as it
// is: they can work, and NodeExpandVolume says why it doesn't grow.
func (s *Server) growStaged(ctx context.Context, u volumeUse, d device, staging string) error {
	if u.readOnly {
		return nil
	}
	if filled, err := d.isFilled(); err != nil || filled {
		return err
	}
	online := s.growFileSystem(u.volume, d, staging)
	if online == nil {
		return nil
	}
	uses, err := s.mounts.uses(d.number, staging)
	if err != nil {
		return u.maybeMountedError(online, err)
	}
	if len(uses) > 0 {
		klog.ErrorS(online, "The file system is smaller than its device and can't grow while Pods have it", "volume", u.volume, "at", uses)
		return nil
	}
	m, _, err := s.mounts.at(staging)
	if err == nil {
		err = s.mounts.unmount(staging)
	}
	if err != nil {
		return u.maybeMountedError(online, err)
	}
	if err := growOffline(ctx, u, d, m.FsType); err != nil {
		return errors.Join(online, err)
	}
	return s.mountFileSystem(u, d, m.FsType, staging)
}

// maybeMountedError is the error of a volume that may be mounted after a clean-up
// has failed, too: the kubelet forgets a mount after an error that is final.
func (u volumeUse) maybeMountedError(err, cleanUp error) error {
	return &disk.Error{Disk: u.volume, Kind: disk.Pending, Err: errors.Join(err, cleanUp)}
}

// prepare returns the device to mount with a file system on it. One that is
// mounted below the kubelet's directory is as it should be.
func (s *Server) prepare(ctx context.Context, u volumeUse, whole device, parts []device, staging string) (device, string, error) {
	for _, d := range append(parts, whole) {
		uses, err := s.mounts.uses(d.number, staging)
		if err != nil {
			return d, "", err
		}
		if slices.ContainsFunc(uses, func(p mountPoint) bool { return !p.device }) {
			c, err := probe(ctx, d.path)
			return d, c.fsType, err
		}
		if len(uses) > 0 {
			return d, "", u.errorf(disk.InUse, "%s is published as a block volume at %v", d.path, uses)
		}
	}
	if err := whole.checkUnused(); err != nil {
		return whole, "", err
	}
	if err := whole.setReadOnly(u.readOnly); err != nil {
		return whole, "", err
	}
	return s.choose(ctx, u, whole, parts)
}

// choose looks at what is on the device, and takes the step that this calls for.
func (s *Server) choose(ctx context.Context, u volumeUse, d device, parts []device) (device, string, error) {
	hold, err := s.devices.hold(u.serial, d)
	if err != nil {
		return d, "", err
	}
	defer func() { _ = hold.Close() }()
	c, err := inspect(ctx, d)
	if err != nil {
		return d, "", err
	}
	next, err := u.plan(c, len(parts), s.marks.isSet(u))
	switch {
	case err != nil:
		return d, "", err
	case next == partition:
		return s.choosePartition(ctx, u, parts[0])
	case next == format:
		fsType, err := s.format(ctx, u, d)
		return d, fsType, err
	}
	if err := s.marks.clear(u.serial); err != nil {
		return d, "", err
	}
	return d, c.fsType, check(ctx, u, d, c.fsType)
}

// choosePartition takes the file system of the only partition. A partition is
// never formatted: whoever made it knows what it is for.
func (s *Server) choosePartition(ctx context.Context, u volumeUse, d device) (device, string, error) {
	if err := d.setReadOnly(u.readOnly); err != nil {
		return d, "", err
	}
	c, err := probe(ctx, d.path)
	if err != nil {
		return d, "", err
	}
	if !slices.Contains(disk.Filesystems(), c.fsType) {
		return d, "", u.blockedError("the disk's only partition holds no file system that is allowed but %q; format it by hand, or wipe the disk if nothing on it is needed", c.fsType)
	}
	if _, err := u.plan(c, 0, false); err != nil {
		return d, "", err
	}
	return d, c.fsType, check(ctx, u, d, c.fsType)
}

// mountFileSystem mounts a file system at the staging path. Two copies of one xfs
// may be mounted at the same time.
func (s *Server) mountFileSystem(u volumeUse, d device, fsType, staging string) error {
	options := slices.Clone(u.options)
	if u.readOnly && !slices.Contains(options, "ro") {
		options = append(options, "ro")
	}
	if fsType == "xfs" && !slices.Contains(options, "nouuid") {
		options = append(options, "nouuid")
	}
	err := s.mounts.mounter.Mount(d.path, staging, fsType, options)
	if err == nil {
		return nil
	}
	if u.readOnly {
		return u.blockedError("mount %s read-only: %w; if its journal has to be replayed, use the volume for writing once", d.path, err)
	}
	return u.blockedError("mount %s: %w; if its file system is damaged, repair it by hand (e2fsck, xfs_repair), or restore a snapshot", d.path, err)
}
