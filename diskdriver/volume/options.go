package volume

import (
	"cmp"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/capability"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// format returns the file system that a volume will carry, empty for a block volume, and its options of mkfs as the node gets them.
// Options of mkfs or mount that no new volume may have are Invalid.
func (c Config) format(class params.Class, capabilities []*csi.VolumeCapability) (filesystem string, options disk.MkfsOptions, err error) {
	if filesystem, err = capability.Filesystem(capabilities, class.Filesystem); err != nil {
		return "", options, err
	}
	if err := capability.CheckMountOptions(capabilities, filesystem, c.Allowed); err != nil {
		return "", options, err
	}
	options, err = class.MkfsOptionsFor(cmp.Or(filesystem, class.Filesystem), c.Allowed)
	return filesystem, options, err
}
