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

const (
	instantAccess   = "snapshots of ESSD disks can be used at once, without paying for it"
	snapshotterOwn  = "csi-snapshotter, with `--extra-create-metadata`"
	snapshotTagUses = "as `diskTags/<key>` of a StorageClass"
)

// snapshotKeys are the parameters of a VolumeSnapshotClass.
var snapshotKeys = keyTable[SnapshotParameters]{
	"retentionDays": {
		set: (*SnapshotParameters).setRetention, use: use{
			means:  "ECS deletes the snapshot after so many days.",
			values: fmt.Sprintf("1 to %d days", longestRetention), without: "kept until it is deleted", rule: "CreateSnapshot, RetentionDays",
		},
	},
	"resourceGroupId": {
		set: text(func(p *SnapshotParameters) *string { return &p.ResourceGroupID }), use: use{
			means:  "The resource group that the snapshot belongs to.",
			values: "ID of a resource group", without: "the account's default group", rule: "CreateSnapshot, ResourceGroupId",
		},
	},
	"snapshotTags/": {
		under: (*SnapshotParameters).tag, use: use{
			means:  "A tag of the snapshot.",
			values: snapshotTagUses, without: "the driver's own tags alone", rule: "CreateSnapshot, Tag",
		},
	},

	"csi.storage.k8s.io/volumesnapshot/name": {
		set: text(func(p *SnapshotParameters) *string { return &p.Object }),
		use: use{means: "Becomes the tag `" + SnapshotObjectTag + "`.", by: snapshotterOwn},
	},
	"csi.storage.k8s.io/volumesnapshot/namespace": {
		set: text(func(p *SnapshotParameters) *string { return &p.Namespace }),
		use: use{means: "Becomes the tag `" + SnapshotNamespaceTag + "`.", by: snapshotterOwn},
	},
	"csi.storage.k8s.io/volumesnapshotcontent/name": {use: use{means: "Not used: it is made from the snapshot's name.", by: snapshotterOwn}},

	"snapshotType":               {idle: instantAccess},
	"instantAccessRetentionDays": {idle: instantAccess},
}

// groupKeys are the parameters of a VolumeGroupSnapshotClass.
var groupKeys = keyTable[SnapshotParameters]{
	"resourceGroupId": {
		set: snapshotKeys["resourceGroupId"].set, use: use{
			means:  "The resource group that the snapshots belong to.",
			values: "ID of a resource group", without: "the account's default group", rule: "CreateSnapshotGroup, ResourceGroupId",
		},
	},
	"snapshotTags/": {
		under: (*SnapshotParameters).tag, use: use{
			means:  "A tag of the group and its snapshots.",
			values: snapshotTagUses, without: "the driver's own tags alone", rule: "CreateSnapshotGroup, Tag",
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
	if len(p.Tags) > MostUserTags {
		return SnapshotParameters{}, Errorf(Invalid, "parameter snapshotTags: %d tags; at most %d are allowed, for a snapshot has room for %d and the driver needs the rest",
			len(p.Tags), MostUserTags, MostTags)
	}
	return p, nil
}

func (p *SnapshotParameters) setRetention(value string) (err error) {
	p.RetentionDays, err = retention(value)
	return err
}

// retention reads the lifetime of a snapshot in days; 0 with an error.
func retention(value string) (int64, error) {
	n, err := count(value)
	if err != nil || n < 1 || n > longestRetention {
		return 0, fmt.Errorf("allowed is a number of days from 1 to %d", longestRetention)
	}
	return n, nil
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
