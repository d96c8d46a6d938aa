package disk

import "fmt"

// SnapshotParameters are the parameters of a VolumeSnapshotClass or of a
// VolumeGroupSnapshotClass, as understood.
type SnapshotParameters struct {
	RetentionDays   int64 // 0: until it is deleted
	ResourceGroupID string
	Tags            Tags   // the user's
	Object          string // the VolumeSnapshot that the snapshot is for, if the snapshotter says so
	Namespace       string // and its namespace
	Warnings        []string
}

// longestRetention is ECS's limit for RetentionDays (CreateSnapshot).
const longestRetention = 65536

const instantAccess = "snapshots of ESSD disks can be used at once, without paying for it"

// snapshotKeys are the parameters of a VolumeSnapshotClass.
var snapshotKeys = keyTable[SnapshotParameters]{
	"retentionDays":   {set: (*SnapshotParameters).setRetention},
	"resourceGroupId": text(func(p *SnapshotParameters) *string { return &p.ResourceGroupID }),
	"snapshotTags/":   {under: (*SnapshotParameters).tag},

	"csi.storage.k8s.io/volumesnapshot/name":        text(func(p *SnapshotParameters) *string { return &p.Object }),
	"csi.storage.k8s.io/volumesnapshot/namespace":   text(func(p *SnapshotParameters) *string { return &p.Namespace }),
	"csi.storage.k8s.io/volumesnapshotcontent/name": {}, // it is made from the snapshot's name

	"snapshotType":               {idle: instantAccess},
	"instantAccessRetentionDays": {idle: instantAccess},
}

// groupKeys are the parameters of a VolumeGroupSnapshotClass.
var groupKeys = keyTable[SnapshotParameters]{
	"resourceGroupId": snapshotKeys["resourceGroupId"],
	"snapshotTags/":   snapshotKeys["snapshotTags/"],

	"csi.storage.k8s.io/volumegroupsnapshot/name":        snapshotKeys["csi.storage.k8s.io/volumesnapshot/name"],
	"csi.storage.k8s.io/volumegroupsnapshot/namespace":   snapshotKeys["csi.storage.k8s.io/volumesnapshot/namespace"],
	"csi.storage.k8s.io/volumegroupsnapshotcontent/name": {},

	"snapshotType":               {idle: instantAccess},
	"instantAccessRetentionDays": {idle: instantAccess},

	"retentionDays": {barred: "ECS keeps a snapshot group until it is deleted"},
}

// ParseSnapshot understands the parameters of a VolumeSnapshotClass, as Parse
// does those of a StorageClass.
func ParseSnapshot(class map[string]string, unknown Unknown) (SnapshotParameters, error) {
	return parseSnapshot(class, snapshotKeys, unknown)
}

// ParseGroup understands the parameters of a VolumeGroupSnapshotClass, as Parse
// does those of a StorageClass.
func ParseGroup(class map[string]string, unknown Unknown) (SnapshotParameters, error) {
	return parseSnapshot(class, groupKeys, unknown)
}

func parseSnapshot(class map[string]string, keys keyTable[SnapshotParameters], unknown Unknown) (SnapshotParameters, error) {
	p := SnapshotParameters{Tags: Tags{}}
	var err error
	if p.Warnings, err = take(&p, "parameter", class, keys, unknown); err != nil {
		return SnapshotParameters{}, err
	}
	if len(p.Tags) > mostUserTags {
		return SnapshotParameters{}, Errorf(Invalid, "parameter snapshotTags: %d tags; at most %d are allowed, for a snapshot has room for %d and the driver needs the rest",
			len(p.Tags), mostUserTags, mostTags)
	}
	return p, nil
}

func (p *SnapshotParameters) setRetention(value string) error {
	n, err := count(value)
	if err != nil || n < 1 || n > longestRetention {
		return fmt.Errorf("allowed is a number of days from 1 to %d", longestRetention)
	}
	p.RetentionDays = n
	return nil
}

func (p *SnapshotParameters) tag(name, value string) error {
	p.Tags[name] = value
	return checkTag(name, value)
}

// Snapshot returns the snapshot that the class asks for under a snapshot's name.
func (p SnapshotParameters) Snapshot(name, cluster string, source ID) SnapshotSpec {
	marks := Tags{ClusterTag: cluster, SnapshotNameTag: name}
	return SnapshotSpec{Name: name, Source: source, RetentionDays: p.RetentionDays, ResourceGroupID: p.ResourceGroupID, Marks: marks, Tags: p.allTags(marks)}
}

// Group returns the group that the class asks for under a group's name.
func (p SnapshotParameters) Group(name, cluster string, sources []ID) GroupSpec {
	marks := Tags{ClusterTag: cluster, GroupNameTag: name}
	return GroupSpec{Name: name, Sources: sources, ResourceGroupID: p.ResourceGroupID, Marks: marks, Tags: p.allTags(marks)}
}

func (p SnapshotParameters) allTags(marks Tags) Tags {
	all := snapshotTags(p.Tags, marks)
	all.setCut(SnapshotObjectTag, p.Object)
	all.setCut(SnapshotNamespaceTag, p.Namespace)
	return all
}

// Temporary returns the snapshot through which a volume becomes a copy of
// another. It carries the volume's name, and goes when the copy is there.
func Temporary(volume, cluster string, source ID) SnapshotSpec {
	marks := TemporaryTags(cluster)
	marks[VolumeNameTag] = volume
	return SnapshotSpec{Name: volume, Source: source, Marks: marks, Tags: snapshotTags(nil, marks)}
}

// TemporaryTags are what the temporary snapshots of a cluster have in common.
func TemporaryTags(cluster string) Tags {
	return Tags{ClusterTag: cluster, TemporaryTag: TemporaryForClone}
}
