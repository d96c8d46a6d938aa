package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
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
	if err == nil {
		u.staging, err = s.kubelet.resolveExisting("staging_target_path", req.GetStagingTargetPath())
	}
	if err == nil {
		err = s.withDevice(ctx, u, func(whole device) error {
			_, err := s.stage(ctx, u, whole)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// withDevice finds the device of a disk, and holds it while it is used: from before it is looked at until it is mounted or bound, the
// kernel gives its name and number to no other disk. What was bound or mounted of a device that turns out not to be the disk's any
// more is taken away again.
func (s *Server) withDevice(ctx context.Context, u volumeUse, use func(whole device) error) error {
	whole, err := s.devices.find(ctx, u.serial)
	if err != nil {
		return err
	}
	held, err := os.Open(whole.path)
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	if err := s.devices.confirm(u.serial, whole); err != nil {
		return err
	}
	if err := use(whole); err != nil {
		if s.devices.isGone(whole.number) {
			err = u.errorf(disk.Pending, "%s left the node while the volume was staged, and is waited for again: %w", whole.path, err)
		}
		return err
	}
	if err := s.devices.confirm(u.serial, whole); err != nil {
		return errors.Join(err, s.mounts.unmount(cmp.Or(u.target, u.staging)))
	}
	return nil
}

// stage makes sure that a volume is staged, and returns its device: the
// partition, if its file system is in one.
func (s *Server) stage(ctx context.Context, u volumeUse, whole device) (device, error) {
	parts, err := s.devices.partitions(whole)
	if err == nil {
		err = whole.checkSize(u.size)
	}
	if err == nil {
		err = s.checkHost(whole, parts)
	}
	switch {
	case err != nil:
		return device{}, err
	case u.block:
		return whole, s.stageBlock(ctx, u, whole)
	}
	d, staged, err := s.staged(ctx, u, append(parts, whole))
	if err == nil && !staged {
		d, err = s.stageFileSystem(ctx, u, whole, parts)
	}
	if err == nil && !u.readOnly {
		err = s.fill(u, d)
	}
	return d, err
}

// stageBlock makes sure that nobody else has the device, and takes the mark of a format off it that was cut short: whoever has the device
// may write to all of it, and what is a license now would be none then.
func (s *Server) stageBlock(ctx context.Context, u volumeUse, d device) error {
	if err := s.blanks.forget(ctx, u.volume, u.serial); err != nil { // a Pod may write from now on to what was read
		return err
	}
	uses, err := s.mounts.uses(d.number, u.staging)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(uses, func(use mountPoint) bool { return !use.device }); at >= 0 {
		return u.errorf(disk.InUse, "the file system of %s is mounted at %s, so no Pod gets the device as a block volume; delete the Pods that use the file system first", d.path, uses[at])
	}
	if len(uses) > 0 {
		return nil
	}
	if err := s.checkUnused(d); err != nil {
		return err
	}
	if err := s.record(u); err != nil {
		return err
	}
	if err := d.setReadOnly(u.readOnly); err != nil || u.readOnly {
		return err
	}
	return s.dropMark(u, d)
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
func (s *Server) staged(ctx context.Context, u volumeUse, devices []device) (device, bool, error) {
	m, mounted, err := s.mounts.at(u.staging)
	if err != nil || !mounted {
		return device{}, false, err
	}
	uses, err := s.mounts.uses(m.number, u.staging)
	if err != nil {
		return device{}, false, err
	}
	at := slices.IndexFunc(devices, func(d device) bool { return !m.device && d.number == m.number })
	broken := fmt.Sprintf("%s is mounted at %s, which is not the volume's device", m.Source, u.staging)
	if at >= 0 {
		measured, err := s.measure(ctx, u.volume, m)
		if err != nil {
			return device{}, false, err
		}
		_, broken = measured.illness(m)
	}
	if broken == "" && m.isReadOnly() && !u.readOnly && len(uses) == 0 { // a try that was cut short
		broken = "the file system is mounted read-only"
	}
	switch {
	case broken != "" && len(uses) > 0:
		return device{}, false, u.brokenError(broken, uses)
	case broken != "":
		klog.InfoS("A mount that nobody uses is unmounted, and the volume mounted again", "volume", u.volume, "why", broken)
		return device{}, false, s.mounts.unmount(u.staging)
	case u.fsType != "" && m.FsType != u.fsType:
		return device{}, false, u.errorf(disk.Mismatch, "the volume is staged as %s; asked for is %s", m.FsType, u.fsType)
	case m.isReadOnly() != u.readOnly:
		return device{}, false, u.errorf(disk.Mismatch, "the volume is staged with read-only %v; asked for is %v", m.isReadOnly(), u.readOnly)
	}
	return devices[at], true, nil
}

// stageFileSystem mounts the file system of a volume, after what it takes, and returns the device that it is on. One that Pods have
// mounted, though it isn't staged any more, is as it should be.
func (s *Server) stageFileSystem(ctx context.Context, u volumeUse, whole device, parts []device) (device, error) {
	d, fsType, err := s.published(ctx, u, append(parts, whole))
	if err == nil && fsType == "" {
		d, fsType, err = s.prepare(ctx, u, whole, parts)
	}
	if err == nil {
		err = s.record(u)
	}
	if err == nil {
		err = s.mountFileSystem(u, d, fsType)
	}
	return d, err
}

// brokenError is the error of a volume that is mounted in a way which is of no use to anybody, and can't be unmounted.
func (u volumeUse) brokenError(broken string, uses []mountPoint) error {
	return u.blockedError("%s, and it is in use still at %v; delete the Pods that use it, and the volume is mounted again", broken, uses)
}

// published returns the device whose file system Pods have mounted, and the file system; nothing if they have none. One that is dead, or
// that a Pod has as a block volume, is an error.
func (s *Server) published(ctx context.Context, u volumeUse, devices []device) (device, string, error) {
	for _, d := range devices {
		uses, err := s.mounts.uses(d.number, u.staging)
		if err != nil {
			return d, "", err
		}
		if at := slices.IndexFunc(uses, func(use mountPoint) bool { return !use.device }); at >= 0 {
			return d, uses[at].FsType, s.checkAlive(ctx, u, uses)
		}
		if len(uses) > 0 {
			return d, "", u.errorf(disk.InUse, "%s is published as a block volume at %v", d.path, uses)
		}
	}
	return device{}, "", nil
}

// checkAlive refuses a file system that is of no use any more to those who have it mounted.
func (s *Server) checkAlive(ctx context.Context, u volumeUse, uses []mountPoint) error {
	for _, use := range uses {
		var m measurement
		if use.device {
			continue
		}
		if use.Root == "/" { // what is mounted of its inside, as for a subPath, may be a file, which can't be read as a directory
			var err error
			if m, err = s.measure(ctx, u.volume, use); err != nil {
				return err
			}
		}
		if _, broken := m.illness(use); broken != "" {
			return u.brokenError(broken, uses)
		}
	}
	return nil
}

// prepare makes a device ready to be mounted that nobody uses, and returns it and its file system: it looks at what is there, decides
// what that and the disk's history call for, and does it.
func (s *Server) prepare(ctx context.Context, u volumeUse, whole device, parts []device) (device, string, error) {
	if err := s.checkUnused(whole); err != nil {
		return whole, "", err
	}
	if err := whole.setReadOnly(u.readOnly); err != nil {
		return whole, "", err
	}
	c, err := s.inspect(ctx, u, whole)
	if err != nil {
		return whole, "", err
	}
	if s.records.has(u.serial) || !s.records.cover(u.attached) {
		u.history = disk.HistoryInUse
	}
	next, err := u.plan(c, len(parts))
	if err != nil {
		return whole, "", err
	}
	d := whole
	switch next {
	case readAll, format:
		if next == readAll {
			err = s.blanks.isBlank(ctx, u, d)
		}
		if err == nil {
			err = s.format(u, d, u.newMark(c))
		}
		return d, u.newFSType(), err
	case partition:
		d = parts[0]
		if c, err = s.inspectPartition(u, d); err != nil {
			return d, "", err
		}
	case keep:
	}
	err = s.repair(u, d, c.super)
	if err == nil && !u.readOnly && c.fsType != "xfs" {
		err = s.tryMount(u, d, c.fsType)
	}
	return d, c.fsType, err
}

// inspectPartition looks at the only partition. It is never formatted: whoever made it knows what it is for.
func (s *Server) inspectPartition(u volumeUse, d device) (content, error) {
	if err := d.setReadOnly(u.readOnly); err != nil {
		return content{}, err
	}
	c, err := look(d)
	if err == nil && !c.isReady() {
		err = u.blockedError("the disk's only partition holds no file system that is allowed but %q; format the partition by hand if it was never used; %s", c.fsType, untouched)
	}
	if err == nil {
		_, err = u.plan(c, 0)
	}
	return c, err
}

// tryMount has the kernel look at a file system while it can't write to the device: what it finds damaged when it mounts one for
// writing it notes on the disk. One whose journal has to be replayed can't be judged that way.
func (s *Server) tryMount(u volumeUse, d device, fsType string) (err error) {
	super, err := d.superblock()
	if err != nil || super.journaled {
		return err
	}
	if err := d.setReadOnly(true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.setReadOnly(false)) }()
	if err := s.mount(u, d, fsType, "ro"); err != nil {
		return err
	}
	if err := s.mounts.unmount(u.staging); err != nil {
		return u.maybeMountedError(err)
	}
	return nil
}

// mountFileSystem mounts a file system as the volume asks for. Two copies of one xfs may be mounted at the same time. A record of growth,
// which licenses a repair that asks for nothing, ends before anybody can write to the file system.
func (s *Server) mountFileSystem(u volumeUse, d device, fsType string) error {
	options := slices.Clone(u.options)
	if u.readOnly {
		options = append(options, "ro")
	} else if err := s.records.endGrowth(u); err != nil {
		return err
	}
	if fsType == "xfs" {
		options = append(options, "nouuid")
	}
	return s.mount(u, d, fsType, options...)
}

// mount mounts a file system at the staging path. What its superblock says of errors can't stop the node: whoever had the disk as a block
// volume has written it.
func (s *Server) mount(u volumeUse, d device, fsType string, options ...string) error {
	super, err := d.superblock()
	if err != nil {
		return err
	}
	if super.panics && !slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "errors=") }) {
		options = append(options, "errors=remount-ro")
	}
	err = s.mounts.mounter.Mount(d.path, u.staging, fsType, options)
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

// maybeMountedError is the error of a volume that may be mounted after a clean-up
// has failed, too: the kubelet forgets a mount after an error that is final.
func (u volumeUse) maybeMountedError(err error) error {
	return u.errorf(disk.Pending, "%w", err)
}
