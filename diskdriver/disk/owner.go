package disk

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/internal/shell"
)

// Owner is the cluster that a driver works for. It decides what is the cluster's own: only that is changed, attached and deleted.
//
// A disk, snapshot or snapshot group is the cluster's if its tag OwnerTag says so, which it has from the call that made it. What has no such
// tag is the cluster's if it was made before there was one, by a program of Adopted, for this cluster. Nothing else makes it so: not a
// PersistentVolume, and not ClusterTag, which ACK puts on the disks of nodes, too.
type Owner struct {
	Region  string
	Cluster string
	// Adopted are values of CreatedByTag: what these programs made for the cluster is its own without OwnerTag, too.
	Adopted []string
	// Sources are other clusters whose snapshots may be restored in this one.
	Sources []string
}

// CheckDisk returns nil if a disk may be changed, attached and deleted. Invalid: it is a system disk. Denied: it isn't this cluster's; the
// error names the command that makes it so, unless it is another's.
func (o Owner) CheckDisk(d Disk) error {
	if d.System {
		return &Error{Disk: d.ID, Kind: Invalid, Err: errSystem}
	}
	if err := o.check(diskResource, string(d.ID), d.Tags); err != nil {
		return &Error{Disk: d.ID, Kind: Denied, Err: err}
	}
	return nil
}

var errSystem = errors.New("it is the system disk of an instance; allowed is a data disk")

// CheckNotOthers returns nil unless a disk is another cluster's, Denied, or a system disk, Invalid.
func (o Owner) CheckNotOthers(d Disk) error {
	if d.System || o.IsOthers(d.Tags) {
		return o.CheckDisk(d)
	}
	return nil
}

// CheckSnapshot returns nil if a snapshot may be deleted; else Denied, as CheckDisk.
func (o Owner) CheckSnapshot(s Snapshot) error {
	if err := o.check(snapshotResource, string(s.ID), s.Tags); err != nil {
		return Errorf(Denied, "snapshot %s: %w", s.ID, err)
	}
	return nil
}

// CheckGroup returns nil if a snapshot group may be deleted; else Denied, as CheckDisk.
func (o Owner) CheckGroup(g Group) error {
	if err := o.check(groupResource, string(g.ID), g.Tags); err != nil {
		return Errorf(Denied, "snapshot group %s: %w", g.ID, err)
	}
	return nil
}

// CheckRestore returns nil if a volume may be made from a snapshot: it is this cluster's, or of one of the Sources; else Denied.
func (o Owner) CheckRestore(s Snapshot) error {
	for _, cluster := range append([]string{o.Cluster}, o.Sources...) {
		if (Owner{Cluster: cluster, Adopted: o.Adopted}).owns(s.Tags) {
			return nil
		}
	}
	err := o.CheckSnapshot(s)
	if o.IsOthers(s.Tags) {
		err = fmt.Errorf("%w. To restore that cluster's snapshots here, name it in --restore-from-clusters and in the RAM policy", err)
	}
	return err
}

// Tag is the tag that makes something the cluster's.
func (o Owner) Tag() Tags { return Tags{OwnerTag: o.Cluster} }

// IsOthers says whether the tags are those of something that is another cluster's.
func (o Owner) IsOthers(tags Tags) bool {
	of, tagged := tags[OwnerTag]
	return tagged && of != o.Cluster
}

// Lacks says whether something is the cluster's and has no OwnerTag yet.
func (o Owner) Lacks(tags Tags) bool {
	_, tagged := tags[OwnerTag]
	return !tagged && o.owns(tags)
}

// owns says whether the tags are those of something that is the cluster's. This is where ownership is decided.
func (o Owner) owns(tags Tags) bool {
	if of, tagged := tags[OwnerTag]; tagged {
		return of == o.Cluster
	}
	// A disk that was made with HistoryTag was made with OwnerTag, too, so somebody has removed that. UsedMark may be later.
	history, since := tags[HistoryTag]
	return (!since || strings.HasPrefix(history, UsedMark(""))) && tags[ClusterTag] == o.Cluster && slices.Contains(o.Adopted, tags[CreatedByTag])
}

// check is owns with an error that says what is to be done.
func (o Owner) check(resource, id string, tags Tags) error {
	switch {
	case o.owns(tags):
		return nil
	case o.IsOthers(tags):
		return fmt.Errorf("it belongs to cluster %q by its tag %s; this is cluster %q", tags[OwnerTag], OwnerTag, o.Cluster)
	}
	return fmt.Errorf("it has no tag %s, and without one nothing is changed, attached, restored or deleted. %s", OwnerTag, o.advice(resource, id, tags))
}

// advice says how something without a tag becomes the cluster's.
func (o Owner) advice(resource, id string, tags Tags) string {
	room := ""
	if tags.Room() == 0 {
		room = fmt.Sprintf("remove one of its %d tags, for ECS allows no more, and ", MostTags)
	}
	return fmt.Sprintf("If it is this cluster's, %stag it with keys of your own: %s", room, TagCommands(o.Region, resource, o.Cluster, id)[0])
}

// Refused adds to ECS's refusal of a call for a disk what may have led to it: somebody has removed its tag.
func (o Owner) Refused(d Disk, err error) error {
	if _, tagged := d.Tags[OwnerTag]; tagged || KindOf(err) != Denied {
		return err
	}
	return fmt.Errorf("%w; the disk has no tag %s. %s", err, OwnerTag, o.advice(diskResource, string(d.ID), d.Tags))
}

// The types of resources, as TagResources has them.
const (
	diskResource     = "disk"
	snapshotResource = "snapshot"
	groupResource    = "snapshotgroup"
)

// MostTagged is how many resources one TagResources takes.
const MostTagged = 50

// TagCommands returns the commands by which an operator makes disks or snapshots (resource: disk, snapshot or snapshotgroup) a cluster's, each
// for MostTagged of them at most.
func TagCommands(region, resource, cluster string, ids ...string) (commands []shell.Command) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	for some := range slices.Chunk(ids, MostTagged) {
		words := []string{"aliyun", "ecs", "TagResources", "--RegionId", region, "--ResourceType", resource}
		for n, id := range some {
			words = append(words, fmt.Sprintf("--ResourceId.%d", n+1), id)
		}
		commands = append(commands, shell.New(append(words, "--Tag.1.Key", OwnerTag, "--Tag.1.Value", cluster)...))
	}
	return commands
}
