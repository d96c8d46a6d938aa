package params

import (
	"fmt"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// SnapshotClass is the parameters of a VolumeSnapshotClass or of a
// VolumeGroupSnapshotClass, as understood.
type SnapshotClass struct {
	RetentionDays   int64 // 0: until it is deleted
	ResourceGroupID string
	Tags            disk.Tags // the user's
	Object          string    // the VolumeSnapshot that the snapshot is for, if the snapshotter says so
	Namespace       string    // and its namespace
	Warnings        []string
}

const (
	instantAccess   = "snapshots of ESSD disks can be used at once, without paying for it"
	snapshotterOwn  = "csi-snapshotter, with `--extra-create-metadata`"
	snapshotTagUses = "as `diskTags/<key>` of a StorageClass"
)

// snapshotKeys are the parameters of a VolumeSnapshotClass.
var snapshotKeys = keyTable[SnapshotClass]{
	"retentionDays": {
		set: parsed(func(p *SnapshotClass) *int64 { return &p.RetentionDays }, disk.ParseRetention), use: use{
			means:  "ECS deletes the snapshot after this number of days.",
			values: fmt.Sprintf("1 to %d days", disk.LongestRetention), without: "kept until it is deleted", rule: "CreateSnapshot, RetentionDays",
		},
	},
	"resourceGroupId": {
		set: text(func(p *SnapshotClass) *string { return &p.ResourceGroupID }), use: use{
			means:  "The resource group that the snapshot belongs to.",
			values: "ID of a resource group", without: "the account's default group", rule: "CreateSnapshot, ResourceGroupId",
		},
	},
	"snapshotTags/": {
		under: (*SnapshotClass).tag, use: use{
			means:  "A tag of the snapshot.",
			values: snapshotTagUses, without: "only the driver's own tags", rule: "CreateSnapshot, Tag",
		},
	},

	"csi.storage.k8s.io/volumesnapshot/name": {
		set: text(func(p *SnapshotClass) *string { return &p.Object }),
		use: use{means: "Becomes the tag `" + disk.SnapshotObjectTag + "`.", by: snapshotterOwn},
	},
	"csi.storage.k8s.io/volumesnapshot/namespace": {
		set: text(func(p *SnapshotClass) *string { return &p.Namespace }),
		use: use{means: "Becomes the tag `" + disk.SnapshotNamespaceTag + "`.", by: snapshotterOwn},
	},
	"csi.storage.k8s.io/volumesnapshotcontent/name": {use: use{means: "Not used: it is derived from the snapshot's name.", by: snapshotterOwn}},

	"snapshotType":               {idle: instantAccess},
	"instantAccessRetentionDays": {idle: instantAccess},
}

// groupKeys are the parameters of a VolumeGroupSnapshotClass.
var groupKeys = keyTable[SnapshotClass]{
	"resourceGroupId": {
		set: snapshotKeys["resourceGroupId"].set, use: use{
			means:  "The resource group that the snapshots belong to.",
			values: "ID of a resource group", without: "the account's default group", rule: "CreateSnapshotGroup, ResourceGroupId",
		},
	},
	"snapshotTags/": {
		under: (*SnapshotClass).tag, use: use{
			means:  "A tag of the group and its snapshots.",
			values: snapshotTagUses, without: "only the driver's own tags", rule: "CreateSnapshotGroup, Tag",
		},
	},

	"csi.storage.k8s.io/volumegroupsnapshot/name":        snapshotKeys["csi.storage.k8s.io/volumesnapshot/name"],
	"csi.storage.k8s.io/volumegroupsnapshot/namespace":   snapshotKeys["csi.storage.k8s.io/volumesnapshot/namespace"],
	"csi.storage.k8s.io/volumegroupsnapshotcontent/name": snapshotKeys["csi.storage.k8s.io/volumesnapshotcontent/name"],

	"snapshotType":               {idle: instantAccess},
	"instantAccessRetentionDays": {idle: instantAccess},
	"deletionPolicy":             {idle: "the class's own field of that name counts; Kubernetes' tests of storage set both"},

	"retentionDays": {barred: "ECS keeps a snapshot group until it is deleted"},
}

// ParseSnapshotClass understands the parameters of a VolumeSnapshotClass, as Parse
// does those of a StorageClass.
func ParseSnapshotClass(class map[string]string, unknown Unknown) (SnapshotClass, error) {
	return parseSnapshotClass(class, snapshotKeys, unknown)
}

// ParseGroupClass understands the parameters of a VolumeGroupSnapshotClass, as Parse
// does those of a StorageClass.
func ParseGroupClass(class map[string]string, unknown Unknown) (SnapshotClass, error) {
	return parseSnapshotClass(class, groupKeys, unknown)
}

func parseSnapshotClass(class map[string]string, keys keyTable[SnapshotClass], unknown Unknown) (SnapshotClass, error) {
	p := SnapshotClass{Tags: disk.Tags{}}
	var err error
	if p.Warnings, err = take(&p, "parameter", class, keys, unknown); err != nil {
		return SnapshotClass{}, err
	}
	return p, disk.CheckRoom("snapshotTags", p.Tags, nil)
}

func (p *SnapshotClass) tag(name, value string) error {
	p.Tags[name] = value
	return disk.CheckTag(name, value)
}

// Snapshot returns the snapshot that the class asks for under a snapshot's name.
func (p SnapshotClass) Snapshot(name, cluster string, source disk.ID) disk.SnapshotSpec {
	marks := disk.Tags{disk.ClusterTag: cluster, disk.SnapshotNameTag: name}
	return disk.SnapshotSpec{Name: name, Source: source, RetentionDays: p.RetentionDays, ResourceGroupID: p.ResourceGroupID,
		Marks: marks, Tags: p.allTags(marks)}
}

// Group returns the group that the class asks for under a group's name.
func (p SnapshotClass) Group(name, cluster string, sources []disk.ID) disk.GroupSpec {
	marks := disk.Tags{disk.ClusterTag: cluster, disk.GroupNameTag: name}
	return disk.GroupSpec{Name: name, Sources: sources, ResourceGroupID: p.ResourceGroupID, Marks: marks, Tags: p.allTags(marks)}
}

func (p SnapshotClass) allTags(marks disk.Tags) disk.Tags {
	all := disk.SnapshotTags(p.Tags, marks)
	all.SetCut(disk.SnapshotObjectTag, p.Object)
	all.SetCut(disk.SnapshotNamespaceTag, p.Namespace)
	return all
}
