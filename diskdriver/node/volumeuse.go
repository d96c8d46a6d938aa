package node

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// volumeUse is how a volume is to be used on the node, fully understood.
type volumeUse struct {
	volume    disk.ID
	serial    string
	attached  string // when the disk was attached; empty if that wasn't said
	size      int64  // bytes that the disk had when it was attached; 0 if that wasn't said
	readOnly  bool   // the node must not write to the device
	staging   string // where it is staged
	target    string // where one Pod has it; empty: it is only staged
	podReads  bool   // and it only reads
	singlePod bool   // one Pod at a time may have it
	block     bool
	fsType    string // the file system asked for; empty: the one that is there, or ext4
	options   []string
	mkfs      string // options of mkfs, as the volume's class had them
	features  disk.XFSFeatures
	unchecked bool // no file system check before it is mounted
	origin    disk.Origin
	history   disk.History
}

// volumeRequest is what the requests to stage and to publish have in common.
type volumeRequest interface {
	GetVolumeId() string
	GetPublishContext() map[string]string
	GetVolumeContext() map[string]string
	GetVolumeCapability() *csi.VolumeCapability
}

// parseVolumeUse reads a request; its error names the field that is wrong.
func parseVolumeUse(req volumeRequest, allowed disk.AllowedOptions) (volumeUse, error) {
	capability, publish, context := req.GetVolumeCapability(), req.GetPublishContext(), req.GetVolumeContext()
	mode, options := capability.GetAccessMode().GetMode(), capability.GetMount().GetMountFlags()
	u := volumeUse{
		volume:    disk.ID(req.GetVolumeId()),
		serial:    publish[disk.SerialKey],
		attached:  publish[disk.AttachedKey],
		readOnly:  publish[disk.ReadOnlyKey] == "true" || isReader(mode) || slices.Contains(options, "ro"),
		singlePod: mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		block:     capability.GetBlock() != nil,
		fsType:    cmp.Or(capability.GetMount().GetFsType(), context[disk.FilesystemKey]),
		options:   options,
		mkfs:      context[disk.MkfsOptionsKey],
		unchecked: context[disk.UncheckedKey] == "true",
		origin:    disk.Origin(context[disk.OriginKey]),
		history:   disk.History(publish[disk.HistoryKey]),
	}
	of, named := publish[disk.VolumeKey]
	if err := checkVolumeID(req.GetVolumeId()); err != nil {
		return u, err
	}
	switch {
	case capability == nil:
		return u, disk.Errorf(disk.Invalid, "volume_capability is missing")
	case capability.GetBlock() == nil && capability.GetMount() == nil:
		return u, disk.Errorf(disk.Invalid, "volume_capability.access_type is missing; allowed are mount and block")
	case mode == csi.VolumeCapability_AccessMode_UNKNOWN:
		return u, disk.Errorf(disk.Invalid, "volume_capability.access_mode is missing")
	case !u.block && isSharedWriter(mode):
		return u, disk.Errorf(disk.Invalid, "volume_capability.access_mode: %s of a file system is not allowed, for it would be destroyed; it is allowed of a block volume", mode)
	case u.serial == "":
		return u, disk.Errorf(disk.Invalid, "publish_context[%q] is missing, so the device of the disk can't be told from others; the driver's controller sets it when it attaches the disk", disk.SerialKey)
	case strings.ContainsAny(u.serial, "/*?[") || u.serial == "." || u.serial == ".." || len(u.serial) > 64:
		return u, disk.Errorf(disk.Invalid, "publish_context[%q]: %q is no serial number", disk.SerialKey, u.serial)
	case named && of != req.GetVolumeId():
		return u, disk.Errorf(disk.Invalid, "publish_context[%q] is %q, and volume_id is %q: the context is of another volume, as of a VolumeAttachment that outlived its PersistentVolume; delete the Pod, and the next one gets the volume that its claim has now", disk.VolumeKey, of, u.volume)
	case u.serial != serialOf(u.volume): // by which an unpublish and an unstage, which have no context, know the disk
		return u, disk.Errorf(disk.Invalid, "publish_context[%q] is %q, and the serial number of disk %s is %q: the context is of another volume; delete the Pod, and the next one gets the volume that its claim has now", disk.SerialKey, u.serial, u.volume, serialOf(u.volume))
	case u.fsType != "" && !slices.Contains(disk.Filesystems(), u.fsType):
		return u, disk.Errorf(disk.Invalid, "volume_capability.mount.fs_type: %q is not allowed; allowed are %s", u.fsType, strings.Join(disk.Filesystems(), ", "))
	}
	var err error
	if u.features, err = disk.ParseXFSFeatures(context[disk.XFSFeaturesKey]); err != nil {
		return u, disk.Errorf(disk.Invalid, "volume_context[%q]: %q is not allowed; %w", disk.XFSFeaturesKey, context[disk.XFSFeaturesKey], err)
	}
	if u.size, err = strconv.ParseInt(cmp.Or(publish[disk.SizeKey], "0"), 10, 64); err != nil || u.size < 0 {
		return u, disk.Errorf(disk.Invalid, "publish_context[%q]: %q is no number of bytes", disk.SizeKey, publish[disk.SizeKey])
	}
	return u, u.checkOptions(allowed)
}

// blockedError is the error of a disk whose state somebody has to change.
func (u volumeUse) blockedError(text string, args ...any) error {
	return u.errorf(disk.Blocked, text, args...)
}

// errorf is an error of the volume.
func (u volumeUse) errorf(kind disk.Kind, text string, args ...any) error {
	return volumeErrorf(u.volume, kind, text, args...)
}

// volumeErrorf is an error of a volume.
func volumeErrorf(volume disk.ID, kind disk.Kind, text string, args ...any) error {
	return &disk.Error{Disk: volume, Kind: kind, Err: fmt.Errorf(text, args...)}
}

// serialOf returns the serial number that ECS gives a disk: its ID without d- (ECS, DescribeDisks, SerialNumber).
func serialOf(id disk.ID) string { return strings.TrimPrefix(string(id), "d-") }

// checkVolumeID refuses what can't be a disk's ID, and would be part of a path.
func checkVolumeID(id string) error {
	switch {
	case id == "":
		return disk.Errorf(disk.Invalid, "volume_id is missing")
	case strings.Contains(id, "/") || id == "." || id == "..":
		return disk.Errorf(disk.Invalid, "volume_id: %q is not allowed: allowed is the ID of a disk, such as d-bp1a2b3c4d5e6f7g8h9i", id)
	}
	return nil
}

// isReader says whether a mode lets nobody write.
func isReader(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY || mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

// isSharedWriter says whether a mode lets several nodes write.
func isSharedWriter(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return mode == csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER || mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}

// checkOptions refuses mount options that no volume may have, and warns of those that no new volume may have.
func (u volumeUse) checkOptions(allowed disk.AllowedOptions) error {
	for i, option := range u.options {
		if err := disk.BarMountOption(option, allowed); err != nil {
			return disk.Errorf(disk.Invalid, "volume_capability.mount.mount_flags[%d]: %w", i, err)
		}
		if err := disk.CheckMountOption(u.fsType, option, allowed); err != nil {
			klog.InfoS("A volume has a mount option that new volumes may not have", "volume", u.volume, "index", i, "reason", err)
		}
	}
	return nil
}

// mkfsArgs are the options of mkfs that the volume asks for, and those that every format has. It refuses what names a file or a
// device, and warns of options that no new volume may have.
func (u volumeUse) mkfsArgs(fsType string, d device, allowed disk.AllowedOptions) ([]string, error) {
	options, unlisted, err := disk.ReadMkfsOptions(fsType, u.mkfs, allowed)
	if err != nil {
		return nil, disk.Errorf(disk.Invalid, "volume_context[%q]: %w", disk.MkfsOptionsKey, err)
	}
	for _, err := range unlisted {
		klog.InfoS("A volume has an option of mkfs that new volumes may not have", "volume", u.volume, "reason", err)
	}
	if fsType == "xfs" {
		physical, logical, err := d.sectors()
		if err != nil {
			return nil, err
		}
		options = options.WithFeatures(u.features).WithSectors(physical, logical)
	}
	return options.WithoutDiscard().Words(), nil
}
