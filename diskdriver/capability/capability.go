// Package capability says which volume capabilities a disk can have (CSI spec,
// VolumeCapability).
package capability

import (
	"cmp"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// defaultFilesystem is what a volume gets that names none.
const defaultFilesystem = "ext4"

// Check refuses capabilities that no disk has: Invalid.
func Check(capabilities []*csi.VolumeCapability) error {
	if len(capabilities) == 0 {
		return disk.Errorf(disk.Invalid, "volume_capabilities are missing")
	}
	for i, vc := range capabilities {
		mode := vc.GetAccessMode().GetMode()
		switch {
		case vc.GetMount() == nil && vc.GetBlock() == nil:
			return disk.Errorf(disk.Invalid, "volume_capabilities[%d].access_type is missing; allowed are mount and block", i)
		case mode == csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:
			return disk.Errorf(disk.Invalid, "volume_capabilities[%d].access_mode: %s is not allowed, for ECS attaches disks for writing, and nobody can tell that no second node writes; allowed are %s", i, mode, modeNames())
		case !slices.Contains(supportedModes, mode):
			return disk.Errorf(disk.Invalid, "volume_capabilities[%d].access_mode: %s is not allowed; allowed are %s", i, mode, modeNames())
		case vc.GetBlock() == nil && isSharedWriter(mode):
			return disk.Errorf(disk.Invalid, "volume_capabilities[%d].access_mode: %s of a file system is not allowed, for it would be destroyed; it is allowed of a block volume", i, mode)
		}
	}
	return nil
}

// supportedModes are the access modes that a disk can have. How many of one
// node's Pods may write is for the node to keep.
var supportedModes = []csi.VolumeCapability_AccessMode_Mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

func modeNames() string {
	var names []string
	for _, m := range supportedModes {
		names = append(names, m.String())
	}
	return strings.Join(names, ", ")
}

// IsShared says whether a mode lets several nodes have the volume at a time.
func IsShared(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return isSharedWriter(mode) || mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

func isSharedWriter(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}

// Shareable refuses an access mode for several nodes if the disk can be on one
// only: Invalid.
func Shareable(capabilities []*csi.VolumeCapability, multiAttach bool) error {
	for i, vc := range capabilities {
		mode := vc.GetAccessMode().GetMode()
		if IsShared(mode) && !multiAttach {
			return disk.Errorf(disk.Invalid, `volume_capabilities[%d].access_mode: %s is allowed only with parameter multiAttach "true"`, i, mode)
		}
	}
	return nil
}

// Filesystem returns the file system that the volume will carry, empty for a
// block volume. Invalid: two are named, by capabilities or by the class's
// parameter, which may be empty.
func Filesystem(capabilities []*csi.VolumeCapability, parameter string) (string, error) {
	filesystem, mounted := parameter, false
	for i, vc := range capabilities {
		if vc.GetMount() == nil {
			continue
		}
		mounted = true
		named := vc.GetMount().GetFsType()
		switch {
		case named == "":
			continue
		case !slices.Contains(disk.Filesystems(), named):
			return "", disk.Errorf(disk.Invalid, "volume_capabilities[%d].mount.fs_type: %q is not allowed; allowed are %s", i, named, strings.Join(disk.Filesystems(), ", "))
		case filesystem != "" && filesystem != named:
			return "", disk.Errorf(disk.Invalid, "volume_capabilities[%d].mount.fs_type: %q contradicts %q, which the class or another capability says", i, named, filesystem)
		}
		filesystem = named
	}
	if !mounted {
		return "", nil
	}
	return cmp.Or(filesystem, defaultFilesystem), nil
}

// CheckMountOptions refuses mount options that no new volume may have: Invalid. Old volumes are published with theirs; the node
// refuses those that no volume may have.
func CheckMountOptions(capabilities []*csi.VolumeCapability, filesystem string, allowed disk.AllowedOptions) error {
	for i, vc := range capabilities {
		if n := len(vc.GetMount().GetMountFlags()); n > disk.MostMountOptions {
			return disk.Errorf(disk.Invalid, "volume_capabilities[%d].mount.mount_flags, of the class's mountOptions: %d options; at most %d are allowed", i, n, disk.MostMountOptions)
		}
		for j, option := range vc.GetMount().GetMountFlags() {
			if err := disk.CheckMountOption(filesystem, option, allowed); err != nil {
				return disk.Errorf(disk.Invalid, "volume_capabilities[%d].mount.mount_flags[%d], of the class's mountOptions: %w", i, j, err)
			}
		}
	}
	return nil
}
