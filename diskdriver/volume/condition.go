package volume

import (
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// condition is one thing that is wrong with a disk (CSI spec, VolumeHealthEntry).
type condition struct {
	status  csi.VolumeHealthErrorType
	reason  string // CamelCase, for machines; each cause has its own
	message string // for people
}

const (
	degraded     = csi.VolumeHealthErrorType_DEGRADED
	inaccessible = csi.VolumeHealthErrorType_INACCESSIBLE
)

// conditions says what is wrong with a disk by what ECS shows of it, of how long it
// has been seen in its state, and of what the zones have to give; nil if that
// isn't known. Each reason comes once.
func conditions(d disk.Disk, lasting time.Duration, zones disk.Offers) []condition {
	return slices.Concat(locksOf(d), delayOf(d, lasting), troubleOf(d, zones))
}

// locks are the reasons for which ECS locks a disk (DescribeDisks,
// OperationLocks). Of a disk that is on no instance a security lock says nothing.
var locks = map[string]condition{
	"financial":              {inaccessible, "LockedForPayment", "ECS has locked the disk for a payment that is due; no node can attach it before the account has paid"},
	"dedicatedhostfinancial": {inaccessible, "LockedForHostPayment", "ECS has locked the disk for a payment that is due for the dedicated host of its instance"},
	"security":               {inaccessible, "LockedForSecurity", "ECS has locked the disk for security reasons, as it says in the console's security events of the instance"},
	"recycling":              {inaccessible, "LockedForRelease", "ECS has locked the disk because it is about to release its instance"},
}

// locksOf tells of the locks on a disk.
func locksOf(d disk.Disk) []condition {
	var all []condition
	for _, lock := range slices.Compact(slices.Sorted(slices.Values(d.Locks))) {
		a, known := locks[lock]
		switch {
		case lock == "security" && d.State != disk.Attached:
			continue
		case !known:
			a = condition{inaccessible, "LockedByECS", fmt.Sprintf("ECS has locked the disk, and gives %q for the reason", lock)}
		}
		if !slices.ContainsFunc(all, func(other condition) bool { return other.reason == a.reason }) {
			all = append(all, a)
		}
	}
	return all
}

// passing are the states that end by themselves, and when that takes too long.
// ECS gives no limits; each is several times what it takes as a rule.
var passing = map[disk.State]struct {
	limit  time.Duration
	status csi.VolumeHealthErrorType
	reason string
}{
	disk.Creating:  {10 * time.Minute, inaccessible, "CreatingTooLong"},
	disk.Attaching: {5 * time.Minute, inaccessible, "AttachingTooLong"},
	disk.Detaching: {5 * time.Minute, inaccessible, "DetachingTooLong"},
	disk.Modifying: {3 * time.Hour, degraded, "ModifyingTooLong"}, // a large disk takes more than half an hour
	disk.ReIniting: {0, inaccessible, "Reinitializing"},           // its data are being replaced
}

// delayOf tells of a state that doesn't end.
func delayOf(d disk.Disk, lasting time.Duration) []condition {
	slow, ok := passing[d.State]
	if !ok || lasting < slow.limit {
		return nil
	}
	text := fmt.Sprintf("ECS shows the disk %s", d.State)
	if slow.limit > 0 {
		text = fmt.Sprintf("ECS has been showing the disk %s for %s", d.State, lasting.Round(time.Second))
	}
	if holders := d.Holders(); len(holders) > 0 {
		text += ", with " + disk.List(holders)
	}
	return []condition{{slow.status, slow.reason, text}}
}

// troubleOf tells of a zone that has nothing to give any more: the disk works,
// but it can't be moved to another type, nor have a new disk or a copy beside it.
func troubleOf(d disk.Disk, zones disk.Offers) []condition {
	offered, listed := zones[d.Zone]
	switch {
	case d.Zone == "" || len(zones) == 0:
		return nil
	case !listed:
		return []condition{{degraded, "ZoneNotListed", fmt.Sprintf("ECS lists the region's zones without the disk's, %s", d.Zone)}}
	case len(offered) == 0:
		return []condition{{degraded, "ZoneWithoutStock", fmt.Sprintf("ECS has no disk of any type to give in the disk's zone, %s", d.Zone)}}
	}
	return nil
}
