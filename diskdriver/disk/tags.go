package disk

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// The tags that the driver puts on every disk it makes.
const (
	ManagedTag        = "k8s.aliyun.com"                          // "true": the disk belongs to a Kubernetes cluster
	ClusterTag        = "ack.aliyun.com"                          // the cluster's ID
	CreatedByTag      = "createdby"                               // the program that made the disk
	VolumeNameTag     = "csi.alibabacloud.com/volume-name"        // the CSI volume name, by which the disk is found again
	ClaimNameTag      = "kubernetes.io/created-for/pvc/name"      // the claim that the disk was made for
	ClaimNamespaceTag = "kubernetes.io/created-for/pvc/namespace" // and its namespace
	CloneTag          = "csi.alibabacloud.com/clone-of"           // the disk that the disk is a copy of
	ArchiveTag        = "csi.alibabacloud.com/archive-on-delete"  // forever, or the days for which the disk is kept as a snapshot when it goes
	HistoryTag        = "topodisk.io/state"                       // HistoryNew, InUseMark or UsedMark
	OwnerTag          = "topodisk.io/cluster"                     // the ID of the cluster that may change, attach and delete it; see Owner
	Creator           = "topodisk"                                // the value of CreatedByTag
	NeverSetTag       = "csi.alibabacloud.com/never-set"          // on nothing: to remove it asks ECS whether it knows a disk or snapshot
)

// The tags of a snapshot, besides ManagedTag, ClusterTag and CreatedByTag.
const (
	SnapshotNameTag      = "csi.alibabacloud.com/snapshot-name"      // the CSI name of the snapshot, by which it is found again
	GroupNameTag         = "csi.alibabacloud.com/group-snapshot"     // the CSI name of the group, by which it is found again
	SnapshotObjectTag    = "csi.alibabacloud.com/snapshot/name"      // the VolumeSnapshot that it was made for
	SnapshotNamespaceTag = "csi.alibabacloud.com/snapshot/namespace" // and its namespace
	TemporaryTag         = "csi.alibabacloud.com/temporary"          // TemporaryForClone: it is to go when the clone is there
	TemporaryForClone    = "clone"                                   // the value of TemporaryTag
	ArchiveOfTag         = "csi.alibabacloud.com/archive-of"         // the disk that it is the archive of
	ArchiveStateTag      = "csi.alibabacloud.com/archive-state"      // when that disk was let go last
)

// oldArchiveTag is ArchiveTag on disks of the driver before topodisk: the days.
const oldArchiveTag = "csi.alibabacloud.com/volume-delete-autosnapshot-retentiondays"

// driverTags are the keys that the driver itself sets, on disks or snapshots.
var driverTags = []string{
	ManagedTag, ClusterTag, CreatedByTag, VolumeNameTag, ClaimNameTag, ClaimNamespaceTag, CloneTag, HistoryTag, OwnerTag,
	ArchiveTag, oldArchiveTag, SnapshotNameTag, GroupNameTag, SnapshotObjectTag, SnapshotNamespaceTag, TemporaryTag, ArchiveOfTag, ArchiveStateTag,
}

// IsDriverTag says whether a key is one that the driver itself sets.
func IsDriverTag(key string) bool {
	return slices.Contains(driverTags, key) || strings.HasPrefix(key, ReadOnlyTag(""))
}

// CheckExtra says whether the tags can be put on every disk and snapshot: ECS
// takes them, and none is one of the driver's own.
func CheckExtra(tags Tags) error {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if err := CheckTag(key, tags[key]); err != nil {
			return fmt.Errorf("%s=%s is not allowed: %w", key, tags[key], err)
		}
	}
	if len(tags) > MostUserTags {
		return fmt.Errorf("%d tags; at most %d are allowed, for a disk has room for %d and the driver needs the rest", len(tags), MostUserTags, MostTags)
	}
	return nil
}

// CheckRoom refuses more tags of a class and of --extra-tags together than a disk
// or snapshot has room for beside the driver's own.
func CheckRoom(parameter string, user, extra Tags) error {
	n := len(user.And(extra))
	if n <= MostUserTags {
		return nil
	}
	more := ""
	if n > len(user) {
		more = fmt.Sprintf(", and %d more of --extra-tags", n-len(user))
	}
	return Errorf(Invalid, "parameter %s: %d tags%s; at most %d are allowed, for there is room for %d and the driver needs the rest",
		parameter, len(user), more, MostUserTags, MostTags)
}

// And returns the tags, and of the others those whose keys they don't have.
func (t Tags) And(others Tags) Tags {
	all := maps.Clone(others)
	if all == nil {
		all = Tags{}
	}
	maps.Copy(all, t)
	return all
}

// longestTag is ECS's limit for a tag (TagResources): characters of a key or a
// value.
const longestTag = 128

const (
	// MostTags is how many tags one disk takes, ECS's own not counted.
	MostTags = 20
	// MostUserTags is how many of them are the user's: the driver needs the rest.
	MostUserTags = MostTags - 10
)

// Room returns how many more tags the disk takes.
func (t Tags) Room() int { return max(0, MostTags-t.counted()) }

// counted returns how many of the tags count: all but ECS's own.
func (t Tags) counted() int {
	n := 0
	for key := range t {
		if !strings.HasPrefix(key, "acs:") && !strings.HasPrefix(key, "aliyun") {
			n++
		}
	}
	return n
}

// VolumeTags returns the driver's tags and the user's. A claim's name that is too
// long for a tag is cut: it is for people, nothing is found by it.
func VolumeTags(user Tags, volume, cluster, claim, namespace string) Tags {
	all := Tags{ManagedTag: "true", ClusterTag: cluster, OwnerTag: cluster, CreatedByTag: Creator, VolumeNameTag: volume}.And(user)
	all.SetCut(ClaimNameTag, claim)
	all.SetCut(ClaimNamespaceTag, namespace)
	return all
}

// SnapshotTags returns the marks of a snapshot or a group, the driver's other
// tags and the user's. The marks have the cluster's ID. They don't have OwnerTag,
// so that what was made before there was one is found, too.
func SnapshotTags(user, marks Tags) Tags {
	return marks.And(Tags{ManagedTag: "true", OwnerTag: marks[ClusterTag], CreatedByTag: Creator}).And(user)
}

// SetCut sets a tag to a text that may be too long for one; empty sets none.
// It is for people: nothing is found by it.
func (t Tags) SetCut(key, text string) {
	for utf8.RuneCountInString(text) > longestTag {
		text = text[:len(text)-1]
	}
	if text != "" {
		t[key] = text
	}
}

// Have says whether all of the tags are among these.
func (t Tags) Have(tags Tags) bool {
	for key, value := range tags {
		if has, ok := t[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// CheckTag says whether ECS takes a tag and the driver doesn't need its key.
func CheckTag(key, value string) error {
	switch {
	case key == "":
		return fmt.Errorf("a tag's key is empty")
	case IsDriverTag(key):
		return fmt.Errorf("the driver itself sets the tag %s", key)
	case utf8.RuneCountInString(key) > longestTag || utf8.RuneCountInString(value) > longestTag:
		return fmt.Errorf("a tag's key and value have at most %d characters", longestTag)
	case strings.HasPrefix(key, "aliyun") || !taggable(key) || !taggable(value):
		return fmt.Errorf("a tag can't start with acs:, its key not with aliyun either, and neither can hold http:// or https://")
	}
	return nil
}

// taggable says whether ECS takes the text as a tag's value.
func taggable(text string) bool {
	return !strings.HasPrefix(text, "acs:") && !strings.Contains(text, "http://") && !strings.Contains(text, "https://")
}
