package actions

import (
	"fmt"

	"github.com/topodisk/topodisk/ecssim/config"
)

// Limits are how many of a thing there may be. Zero takes the default.
type Limits struct {
	// SnapshotsPerDisk is of the snapshots that a disk has; default 256. More
	// are refused with QuotaExceed.Snapshot.
	SnapshotsPerDisk int
	// SnapshotsAtOnce is of the snapshots of a disk that are progressing;
	// default 10, which is a guess. Disks that are not of the ESSD family have
	// one at a time in any case. More are refused with
	// IncorrectDiskStatus.TooManyCreatingSnapshots.
	SnapshotsAtOnce int
	// CategoryChanges is of the disks whose category is being changed; default
	// 50. More are refused with ModifyingDiskCategoryLimitExceed.
	CategoryChanges int
}

// counts lists all of them with their defaults.
func (l *Limits) counts() []struct {
	name     string
	n        *int
	fallback int
} {
	return []struct {
		name     string
		n        *int
		fallback int
	}{
		{"SnapshotsPerDisk", &l.SnapshotsPerDisk, 256},
		{"SnapshotsAtOnce", &l.SnapshotsAtOnce, 10},
		{"CategoryChanges", &l.CategoryChanges, 50},
	}
}

// Check refuses limits below zero. The error is a *config.Error.
func (l Limits) Check() error {
	for _, c := range l.counts() {
		if *c.n < 0 {
			return config.Invalid("Limits."+c.name, fmt.Sprint(*c.n), fmt.Sprintf("a number above zero, or zero for %d", c.fallback))
		}
	}
	return nil
}

// Complete fills in the defaults.
func (l Limits) Complete() Limits {
	for _, c := range l.counts() {
		if *c.n == 0 {
			*c.n = c.fallback
		}
	}
	return l
}
