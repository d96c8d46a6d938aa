package params

import "github.com/topodisk/topodisk/diskdriver/disk"

// MkfsOptionsFor understands parameter mkfsOptions for the file system of a volume; what is wrong is Invalid. For a volume without a
// file system, options are right that some file system takes: its class may be for other volumes, too.
func (p Class) MkfsOptionsFor(filesystem string, allowed disk.AllowedOptions) (options disk.MkfsOptions, err error) {
	filesystems := []string{filesystem}
	if filesystem == "" {
		filesystems = []string{"ext4", "ext3", "xfs"}
	}
	for i, of := range filesystems {
		o, refused := disk.ParseMkfsOptions(of, p.MkfsOptions, allowed)
		if refused == nil {
			return o, nil
		}
		if i == 0 {
			err = disk.Errorf(disk.Invalid, "parameter mkfsOptions: %w", refused)
		}
	}
	return options, err
}
