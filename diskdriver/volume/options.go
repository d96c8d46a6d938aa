package volume

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/capability"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// withOptions returns a class with its options of mkfs as the node gets them. Options of mkfs or mount that no new volume may have
// are Invalid.
func (c Config) withOptions(class params.Class, capabilities []*csi.VolumeCapability) (params.Class, error) {
	filesystem, err := capability.Filesystem(capabilities, class.Filesystem)
	if err != nil {
		return class, err
	}
	if err := capability.CheckMountOptions(capabilities, filesystem, c.Allowed); err != nil {
		return class, err
	}
	if filesystem == "" {
		filesystem = class.Filesystem
	}
	options, err := class.MkfsOptionsFor(filesystem, c.Allowed)
	class.MkfsOptions = options.String()
	return class, err
}
