package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// NodeStageVolume finds the device of a disk and, unless it is a block volume,
// mounts its file system, which it makes if the disk is provably blank (CSI
// spec, NodeStageVolume).
func (s *Server) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	u, err := parseVolumeUse(req, s.allowed)
	if err != nil {
		return nil, err
	}
	staging, err := s.kubelet.resolveExisting("staging_target_path", req.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	err = s.withDevice(ctx, u, staging, func(whole device) error {
		_, err := s.stage(ctx, u, whole, staging)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// withDevice finds the device of a disk, and holds it while it is used: from before it is looked at until it is mounted or bound at a
// path, the kernel gives its name and number to no other disk. What was bound or mounted of a device that turns out not to be the
// disk's any more is taken away again.
func (s *Server) withDevice(ctx context.Context, u volumeUse, at string, use func(whole device) error) error {
	whole, err := s.devices.find(ctx, u.serial)
	if err != nil {
		return err
	}
	hold, err := s.devices.hold(u.serial, whole)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Close() }()
	if err = use(whole); err != nil {
		if s.devices.isGone(whole.number) {
			err = u.errorf(disk.Pending, "%s left the node while the volume was staged, and is waited for again: %w", whole.path, err)
		}
		return err
	}
	if err := s.devices.confirm(u.serial, whole); err != nil {
		return errors.Join(err, s.mounts.unmount(at))
	}
	return nil
}

// stage makes sure that a volume is staged, and returns its device: the
// partition, if its file system is in one.
func (s *Server) stage(ctx context.Context, u volumeUse, whole device, staging string) (device, error) {
	parts, err := s.devices.partitions(whole)
	if err == nil {
		err = whole.checkSize(u.size)
	}
	if err == nil {
		err = s.devices.checkHost(whole, parts, string(s.kubelet))
	}
	switch {
	case err != nil:
		return device{}, err
	case u.block:
		return whole, s.stageBlock(u, whole, staging)
	}
	d, staged, err := s.staged(ctx, u, append(parts, whole), staging)
	switch {
	case err != nil:
		return d, err
	case staged:
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
	if err := s.checkUnused(d); err != nil {
		return err
	}
	if err := s.record(u); err != nil {
		return err
	}
	return d.setReadOnly(u.readOnly)
}

// record records that a new disk is used from now on. Of any other the CO says so.
func (s *Server) record(u volumeUse) error {
	if u.history != disk.HistoryNew || u.readOnly {
		return nil
	}
	return s.records.note(u.serial)
}

// staged says whether the volume is staged, and with which of its devices. A dead mount, or one of a device that isn't the volume's,
// is unmounted if nobody uses it, for nobody could.
func (s *Server) staged(ctx context.Context, u volumeUse, devices []device, staging string) (device, bool, error) {
	m, mounted, err := s.mounts.at(staging)
	if err != nil || !mounted {
		return device{}, false, err
	}
	at := slices.IndexFunc(devices, func(d device) bool { return !m.device && d.number == m.number })
	broken := fmt.Sprintf("%s is mounted at %s, which is not the volume's device", m.Source, staging)
	if at >= 0 {
		if broken, err = s.broken(ctx, u.volume, m); err != nil {
			return device{}, false, err
		}
	}
	readOnly := m.isReadOnly()
	if broken == "" && readOnly && !u.readOnly { // a try that was cut short
		uses, err := s.mounts.uses(m.number, staging)
		if err != nil {
			return device{}, false, err
		}
		if len(uses) == 0 {
			broken = "the file system is mounted read-only"
		}
	}
	switch {
	case broken != "":
		return device{}, false, s.clear(u, m, broken)
	case u.fsType != "" && m.FsType != u.fsType:
		return device{}, false, u.errorf(disk.Mismatch, "the volume is staged as %s; asked for is %s", m.FsType, u.fsType)
	case readOnly != u.readOnly:
		return device{}, false, u.errorf(disk.Mismatch, "the volume is staged with read-only %v; asked for is %v", readOnly, u.readOnly)
	}
	return devices[at], true, nil
}

// broken says what is wrong with a mounted file system, so that it is of no use to anybody; empty if nothing is.
func (s *Server) broken(ctx context.Context, volume disk.ID, m mountPoint) (string, error) {
	if why := turnedReadOnlyBy(m); why != "" {
		return fmt.Sprintf("the file system at %s %s", m.MountPoint, why), nil
	}
	measured, err := s.probes.measure(ctx, volume, m)
	if err != nil || measured.complaint() == "" {
		return "", err
	}
	return fmt.Sprintf("the file system at %s %s", m.MountPoint, measured.complaint()), nil
}

// clear unmounts what is broken, unless a Pod has the volume.
func (s *Server) clear(u volumeUse, m mountPoint, why string) error {
	uses, err := s.mounts.uses(m.number, m.MountPoint)
	switch {
	case err != nil:
		return err
	case len(uses) > 0:
		return u.blockedError("%s, and it is in use still at %v; delete the Pods that use it, and the volume is mounted again", why, uses)
	}
	klog.InfoS("A mount that nobody uses is unmounted, and the volume mounted again", "volume", u.volume, "why", why)
	return s.mounts.unmount(m.MountPoint)
}

// stageFileSystem mounts the file system of a volume, after what it takes.
func (s *Server) stageFileSystem(ctx context.Context, u volumeUse, whole device, parts []device, staging string) (device, error) {
	d, fsType, err := s.prepare(ctx, u, whole, parts, staging)
	if err == nil {
		err = s.record(u)
	}
	if err != nil {
		return d, err
	}
	if err := s.mountFileSystem(u, d, fsType, staging); err != nil {
		return d, err
	}
	return d, s.growStaged(ctx, u, d, staging)
}

// growStaged lets the file system of a staged volume fill its disk: what was restored
// from a smaller disk is as small, and a call before this one may have been cut short
// between the mount and the growth. One that can't grow stays mounted as it is.
//
// Not every kernel lets a mounted file system grow, so one that nobody uses yet is
// unmounted for it.
func (s *Server) growStaged(ctx context.Context, u volumeUse, d device, staging string) error {
	if u.readOnly {
		return nil
	}
	e, short := s.grow(ctx, u.volume, d.number, staging)
	if short != nil && s.mayUnmount(u, e, staging) {
		var err error
		if short, err = s.growUnmounted(ctx, u, e, staging); err != nil {
			s.ungrown.remove(u.volume)
			return err
		}
	}
	s.noteGrowth(u, e, short)
	return nil
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
			c, err := look(ctx, d)
			return d, c.fsType, err
		}
		if len(uses) > 0 {
			return d, "", u.errorf(disk.InUse, "%s is published as a block volume at %v", d.path, uses)
		}
	}
	if err := s.checkUnused(whole); err != nil {
		return whole, "", err
	}
	if err := whole.setReadOnly(u.readOnly); err != nil {
		return whole, "", err
	}
	return s.choose(ctx, u, whole, parts, staging)
}

// choose looks at what is on the device, and takes the step that this calls for.
func (s *Server) choose(ctx context.Context, u volumeUse, d device, parts []device, staging string) (device, string, error) {
	c, err := s.inspect(ctx, u, d)
	if err != nil {
		return d, "", err
	}
	if s.records.has(u.serial) || !s.records.cover(u.attached) {
		u.history = disk.HistoryInUse
	}
	next, err := u.plan(c, len(parts))
	if err == nil && next == readAll {
		err = s.blanks.isBlank(ctx, u, d)
		next = format
	}
	switch {
	case err != nil:
		return d, "", err
	case next == partition:
		return s.choosePartition(ctx, u, parts[0])
	case next == format:
		return d, u.newFSType(), s.format(ctx, u, d, staging)
	}
	return d, c.fsType, s.repair(ctx, u, d, c.super)
}

// choosePartition takes the file system of the only partition. A partition is
// never formatted: whoever made it knows what it is for.
func (s *Server) choosePartition(ctx context.Context, u volumeUse, d device) (device, string, error) {
	if err := d.setReadOnly(u.readOnly); err != nil {
		return d, "", err
	}
	c, err := look(ctx, d)
	if err != nil {
		return d, "", err
	}
	if !c.isReady() {
		return d, "", u.blockedError("the disk's only partition holds no file system that is allowed but %q; format the partition by hand if it was never used; %s", c.fsType, untouched)
	}
	if _, err := u.plan(c, 0); err != nil {
		return d, "", err
	}
	return d, c.fsType, s.repair(ctx, u, d, c.super)
}

// tryMount has the kernel look at an ext file system while it can't write to the device: what it finds damaged when it mounts one for
// writing it notes on the disk. One whose journal has to be replayed can't be judged that way.
func (s *Server) tryMount(u volumeUse, d device, fsType, staging string) (err error) {
	head, err := d.read(0)
	if err != nil || u.readOnly || fsType == "xfs" || parseSuperblock(head).journaled {
		return err
	}
	if err := d.setReadOnly(true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.setReadOnly(false)) }()
	if err := s.mounts.mounter.Mount(d.path, staging, fsType, []string{"ro"}); err != nil {
		return err
	}
	return s.mounts.unmount(staging)
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
	err := s.tryMount(u, d, fsType, staging)
	if err == nil {
		err = s.mounts.mounter.Mount(d.path, staging, fsType, options)
	}
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), unix.EIO.Error()), d.isUnreadable():
		return u.blockedError("mount %s: %w; parts of the disk can't be read. That is an I/O error of the disk or of the way to it; see the kernel's log (dmesg) and the disk's events in ECS", d.path, err)
	case u.readOnly:
		return u.blockedError("mount %s read-only: %w; if its journal has to be replayed, use the volume for writing once", d.path, err)
	}
	return u.blockedError("mount %s: %w; the kernel's log (dmesg) says what it finds wrong with the file system. Take a snapshot of the disk, then repair it by hand (e2fsck, xfs_repair), or restore a snapshot", d.path, err)
}
