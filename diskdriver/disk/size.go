package disk

import (
	"fmt"
	"math"
)

// anySize is the limit of a request that has none.
const anySize GiB = math.MaxInt64

// Wanted is the capacity asked for, in whole GiB.
type Wanted struct {
	Least GiB // 0: the smallest disk that the category takes with the settings asked for
	Most  GiB
}

// String returns the request in words.
func (w Wanted) String() string {
	switch {
	case w == Wanted{Most: anySize}:
		return "any size"
	case w.Most == anySize:
		return fmt.Sprintf("%d GiB or more", w.Least)
	}
	return fmt.Sprintf("%d to %d GiB", w.Least, w.Most)
}

// leastBytes is the smallest device that mkfs accepts. mkfs.xfs refuses less
// than 300 MiB; mkfs.ext4 and mkfs.ext3 need 2 MiB to hold a journal.
var leastBytes = map[string]int64{
	"xfs":  300 << 20,
	"ext4": 2 << 20,
	"ext3": 2 << 20,
}

// most32 is the size from which on 32 bits can't count a file system's blocks of 4 KiB. mkfs refuses it, and resize2fs leaves out its last
// block.
const most32 GiB = 1 << 32 * 4096 / BytesPerGiB

// CheckFormat refuses a size that a file system can't be made with: OutOfRange.
func CheckFormat(size GiB, filesystem string, options MkfsOptions) error {
	switch {
	case size < most32:
	case filesystem == "ext3":
		return Errorf(OutOfRange, "capacity_range: %d GiB is not allowed for ext3; allowed are up to %d GiB", size, most32-1)
	case filesystem == "ext4" && options.has("-O", "^64bit"):
		return Errorf(OutOfRange, "capacity_range: %d GiB is not allowed for ext4 without the feature 64bit, which parameter mkfsOptions turns off; allowed are up to %d GiB", size, most32-1)
	}
	return nil
}

// CheckGrowth refuses a size that a file system can't grow to, as far as its name tells: OutOfRange.
func CheckGrowth(size GiB, filesystem string) error {
	if filesystem == "ext3" && size > most32 {
		return Errorf(OutOfRange, "capacity_range: %d GiB is not allowed for ext3; allowed are up to %d GiB", size, most32)
	}
	return nil
}

// Filesystems returns the file systems that a disk can be formatted with.
func Filesystems() []string { return []string{"ext3", "ext4", "xfs"} }

// roundUp returns the smallest whole number of GiB that holds the bytes.
func roundUp(bytes int64) GiB {
	whole := GiB(bytes / BytesPerGiB)
	if bytes%BytesPerGiB > 0 {
		whole++
	}
	return whole
}

// Want turns a CSI capacity_range (bytes; 0 is unset) into whole GiB: the
// requirement rounded up, the limit rounded down. Nothing is raised beyond
// that. The file system is empty for a raw block volume. A range that holds no
// whole GiB, or a limit that mkfs would refuse, is OutOfRange.
func Want(requiredBytes, limitBytes int64, filesystem string) (Wanted, error) {
	switch {
	case requiredBytes < 0:
		return Wanted{}, Errorf(Invalid, "capacity_range: required_bytes %d is negative", requiredBytes)
	case limitBytes < 0:
		return Wanted{}, Errorf(Invalid, "capacity_range: limit_bytes %d is negative", limitBytes)
	case limitBytes == 0:
		return Wanted{Least: roundUp(requiredBytes), Most: anySize}, nil
	case limitBytes < requiredBytes:
		return Wanted{}, Errorf(Invalid, "capacity_range: limit_bytes %d is below required_bytes %d", limitBytes, requiredBytes)
	case limitBytes < leastBytes[filesystem]:
		return Wanted{}, Errorf(OutOfRange, "capacity_range: limit_bytes %d is below the %d bytes that mkfs.%s needs", limitBytes, leastBytes[filesystem], filesystem)
	}
	w := Wanted{Least: roundUp(requiredBytes), Most: GiB(limitBytes / BytesPerGiB)}
	if w.Most < max(w.Least, 1) {
		return Wanted{}, Errorf(OutOfRange,
			"capacity_range: there is no whole number of GiB from required_bytes %d to limit_bytes %d; disks come in whole GiB", requiredBytes, limitBytes)
	}
	return w, nil
}

// Holds says whether a disk of that size serves the request.
func (w Wanted) Holds(size GiB) bool { return w.Least <= size && size <= w.Most }

// Grown returns the size that a disk must have to serve the request: its own if
// that is enough, for disks don't shrink. OutOfRange: it is too large already,
// or its type doesn't come so large.
func (w Wanted) Grown(d Disk) (GiB, error) {
	kind := Choice{d.Category, d.PerformanceLevel}
	switch most := kind.Sizes().Most; {
	case d.Size > w.Most:
		return 0, &Error{Disk: d.ID, Kind: OutOfRange, Err: fmt.Errorf("capacity_range: the disk has %d GiB and can't shrink; asked for is %s", d.Size, w)}
	case d.Size >= w.Least:
		return d.Size, nil
	case w.Least > most && most > 0:
		return 0, &Error{Disk: d.ID, Kind: OutOfRange, Err: fmt.Errorf("capacity_range: a disk of type %s has at most %d GiB; asked for is %s", kind, most, w)}
	}
	return w.Least, nil
}

// within returns the smallest size that serves the request and that the range
// takes. A requirement below the range is not raised: it doesn't fit.
func (w Wanted) within(r Range) (GiB, bool) {
	size := w.Least
	if size == 0 {
		size = r.Least
	}
	return size, r.Least <= size && size <= r.Most && size <= w.Most
}
