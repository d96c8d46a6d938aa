package params

import (
	"strconv"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func (p *Class) setArchive(value string) error {
	wanted, err := boolean(value)
	p.archive = &wanted
	return err
}

func (p *Class) setArchiveDays(value string) (err error) {
	p.archiveDays, err = disk.ParseRetention(value)
	return err
}

// checkArchive refuses a lifetime for an archive that is not wanted.
func (p *Class) checkArchive() error {
	if p.archiveDays > 0 && p.archive != nil && !*p.archive {
		return disk.Errorf(disk.Invalid, `parameter volumeDeleteSnapshotRetentionDays: "%d" contradicts archiveOnDelete "false"`, p.archiveDays)
	}
	return nil
}

// archiveTag is what a disk of the class says of its archive; empty for none.
// It is kept on the disk, for a deletion has no parameters and the class may be
// gone by then.
func (p *Class) archiveTag() string {
	switch {
	case p.archiveDays > 0:
		return strconv.FormatInt(p.archiveDays, 10)
	case p.archive != nil && *p.archive:
		return disk.ArchiveForever
	}
	return ""
}
