package diskdriver

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// defaultFilesystem is what a volume gets that names none.
const defaultFilesystem = "ext4"

// ValidateVolumeCapabilities confirms what it has held against the disk as it
// is: the capabilities and, if given, the parameters. What doesn't hold is no
// error but a message (CSI spec, ValidateVolumeCapabilities).
func (c *controller) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	switch {
	case req.GetVolumeId() == "":
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	case len(req.GetVolumeCapabilities()) == 0:
		return nil, disk.Errorf(disk.Invalid, "volume_capabilities are missing")
	}
	d, err := c.disks.Get(ctx, disk.ID(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	if err := c.holds(req, d); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // CSI: what is not confirmed is told in the message
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
		MutableParameters:  req.GetMutableParameters(),
	}}, nil
}

// holds says whether a disk is what the request says of it.
func (c *controller) holds(req *csi.ValidateVolumeCapabilitiesRequest, d disk.Disk) error {
	capabilities := req.GetVolumeCapabilities()
	if err := checkCapabilities(capabilities); err != nil {
		return err
	}
	if err := shareable(capabilities, d.MultiAttach); err != nil {
		return err
	}
	if len(req.GetParameters())+len(req.GetMutableParameters()) == 0 {
		_, err := filesystemOf(capabilities, "")
		return err
	}
	class, err := params.Parse(req.GetParameters(), req.GetMutableParameters(), c.config.Unknown)
	if err != nil {
		return err
	}
	if _, err := filesystemOf(capabilities, class.Filesystem); err != nil {
		return err
	}
	spec := class.Spec(d.Name, c.config.ClusterID)
	spec.SnapshotID, spec.CloneOf = d.SnapshotID, disk.ID(d.Tags[disk.CloneTag]) // no request names the source here
	if err := spec.Matches(d); err != nil {
		return err
	}
	return disk.OneOf(class.Choices, d)
}

// checkCapabilities refuses capabilities that no disk has.
func checkCapabilities(capabilities []*csi.VolumeCapability) error {
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

// isShared says whether a mode lets several nodes have the volume at a time.
func isShared(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return isSharedWriter(mode) || mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

func isSharedWriter(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}

// shareable refuses an access mode for several nodes if the disk can be on one
// only.
func shareable(capabilities []*csi.VolumeCapability, multiAttach bool) error {
	for i, vc := range capabilities {
		mode := vc.GetAccessMode().GetMode()
		if isShared(mode) && !multiAttach {
			return disk.Errorf(disk.Invalid, `volume_capabilities[%d].access_mode: %s is allowed only with parameter multiAttach "true"`, i, mode)
		}
	}
	return nil
}

// filesystemOf returns the file system that the volume will carry, empty for a
// block volume. Whoever names one must name the same.
func filesystemOf(capabilities []*csi.VolumeCapability, parameter string) (string, error) {
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
