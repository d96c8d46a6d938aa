package disk

import (
	"cmp"
	"errors"
	"strings"
)

// ErrBlank is in the chain of an error if ECS makes no snapshot of a disk for
// nobody has ever written to it.
var ErrBlank = errors.New("nobody has ever written to the disk")

// ArchiveForever is the value of ArchiveTag for an archive without an end;
// another value is its lifetime in days.
const ArchiveForever = "true"

// Archive returns the snapshot that a disk is to be kept as when it is deleted;
// false if it isn't. A disk that nobody has written to has nothing to keep. A tag
// that somebody has garbled asks for an archive without an end.
func (d Disk) Archive(cluster string) (SnapshotSpec, bool) {
	days, wanted := archiveDays(d.Tags)
	if !wanted || d.Unwritten() {
		return SnapshotSpec{}, false
	}
	marks := Tags{ClusterTag: cluster, ArchiveOfTag: string(d.ID), ArchiveStateTag: d.state()}
	tags := SnapshotTags(nil, marks)
	for _, key := range []string{VolumeNameTag, ClaimNameTag, ClaimNamespaceTag} {
		tags.SetCut(key, d.Tags[key])
	}
	return SnapshotSpec{
		Name: d.archiveName(), Source: d.ID, RetentionDays: days, ResourceGroupID: d.ResourceGroupID, Marks: marks, Tags: tags,
	}, true
}

// archiveDays reads a disk's tags: ours, or that of the driver before topodisk.
func archiveDays(tags Tags) (days int64, wanted bool) {
	value := cmp.Or(tags[ArchiveTag], tags[oldArchiveTag])
	if value == "" || value == "false" {
		return 0, false
	}
	days, _ = ParseRetention(value) // anything else is without an end
	return days, true
}

// state tells apart the archives of a disk that was attached again after one
// was made: whatever was written then is not in it.
func (d Disk) state() string { return cmp.Or(d.Released, "attached") }

// archiveName is archived-<namespace>-<claim>-<disk>, in the form and the length
// that ECS allows (CreateSnapshot, SnapshotName). What is too long is cut in the
// middle, so that the disk stays whole.
func (d Disk) archiveName() string {
	words := []string{"archived"}
	for _, key := range []string{ClaimNamespaceTag, ClaimNameTag} {
		if text := d.Tags[key]; text != "" {
			words = append(words, strings.Map(nameable, text))
		}
	}
	name, suffix := strings.Join(words, "-"), "-"+string(d.ID)
	return name[:min(len(name), longestTag-len(suffix))] + suffix
}

// nameable turns what ECS takes in no name into a dash.
func nameable(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
		return r
	}
	return '-'
}
