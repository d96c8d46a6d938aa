package attachment

import (
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// marking is what a publish does to the tag disk.HistoryTag of a disk before it is attached.
type marking int

const (
	leave  marking = iota
	mark           // set it to disk.InUseMark with a nonce of its own
	unmark         // remove it: the disk is in use for good
)

// marks decides that, going by a look at the disk and by what this process has marked it with (Table.marked).
//
// A disk is marked once in its life, when it is new; and again if it wasn't attached then and another process may have had calls since. For
// a read proves that an attachment is the first only if it is later than a mark of the process that made it: one that lags behind may
// show an attachment that was the first and is over. A disk that is new and not free was attached by somebody else, who may have written
// to it. That can't be told from a first attachment of the driver's later on, so it loses the tag.
func marks(d disk.Disk, own string) marking {
	switch {
	case own != "":
	case isNew(d) && d.State == disk.Available, isInUse(d) && d.Released == "" && !d.MultiAttach && !d.Category.Regional():
		return mark
	case isNew(d):
		return unmark
	}
	return leave
}

func isNew(d disk.Disk) bool { return d.Tags[disk.HistoryTag] == string(disk.HistoryNew) }

func isInUse(d disk.Disk) bool {
	return strings.HasPrefix(d.Tags[disk.HistoryTag], string(disk.HistoryInUse))
}

// hides says whether a look may be older than the mark that this process has set. Others may mark a disk for several instances meanwhile.
func hides(d disk.Disk, own string) bool {
	return own != "" && d.Tags[disk.HistoryTag] != own && (!d.MultiAttach || isNew(d))
}
