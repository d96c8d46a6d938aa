package params

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// SnapshotParameter names the snapshot that the class's disks are made from.
const SnapshotParameter = "csi.alibabacloud.com/disk-snapshot-id"

// The parameters that name the claim, with --extra-create-metadata of the provisioner.
const (
	ClaimName      = "csi.storage.k8s.io/pvc/name"
	ClaimNamespace = "csi.storage.k8s.io/pvc/namespace"
)

const (
	iopsRange = "a whole number from 0 to 50000; from 4 GiB, and with those of the size at most 1000 a GiB"
	someTypes = "types of the table below, separated by commas; or `available`"
	oneType   = "one type of the table below"

	someMkfsOptions = "[options of the list below](#options-of-mkfs), separated by spaces"

	someLevels = "`PL0` to `PL3`, separated by commas"
	oneLevel   = "one of `PL0` to `PL3`"

	tagRules = "key and value of at most 128 characters; neither begins with `acs:` or holds `http://` or `https://`, the key doesn't begin with `aliyun`; not the driver's own tags"

	noCache = "the driver keeps no cache on a node's disks; choose a faster disk type"
	noLimit = "the driver doesn't limit I/O; choose a disk type and level with the limit that you want"

	nodesOwn = "disk-provisioner, with `--extra-create-metadata`"
)

// classKeys are the parameters of a StorageClass: every name that the driver
// before topodisk honoured, and categoryAffinity.
var classKeys = keyTable[Class]{
	"type": {
		set: parsed(func(p *Class) *[]disk.Category { return &p.categories }, categories), use: use{
			means:  "Disk types, tried in this order within a zone; the next type only if the one before is sold out.",
			values: someTypes, without: disk.List(disk.DefaultCategories()), rule: "CreateDisk, DiskCategory",
		},
	},
	"performanceLevel": {
		set: parsed(func(p *Class) *[]disk.Level { return &p.levels }, listOf(level)), use: use{
			means:  "Levels of `cloud_essd`, tried in this order; other types ignore it.",
			values: someLevels, without: "`PL1`, the default of ECS", rule: "CreateDisk, PerformanceLevel",
		},
	},
	"zoneId": {
		set: (*Class).setZones, use: use{
			means:  "Limits the zones that the claim allows. If it has no zone in common with them, no disk is created.",
			values: "zones, separated by commas", without: "every zone that the claim allows", rule: "CreateDisk, ZoneId; CSI, accessibility_requirements",
		},
	},
	"zoneid": {same: "zoneId"},
	"regionId": {
		set: text(func(p *Class) *string { return &p.Region }), use: use{
			means:  "The region. It is only compared with the driver's.",
			values: "the driver's region", without: "the driver's region", rule: "CreateDisk, RegionId",
		},
	},
	"csi.storage.k8s.io/fstype": {
		set: (*Class).setFilesystem, use: use{
			means:  "File system. Use only one of the names.",
			values: strings.Join(disk.Filesystems(), ", "), without: "ext4 (disk-provisioner's `--default-fstype`)", rule: "Kubernetes, csi-provisioner",
		},
	},
	"fsType": {same: "csi.storage.k8s.io/fstype"},
	"fstype": {same: "csi.storage.k8s.io/fstype"},
	"mkfsOptions": {
		set: text(func(p *Class) *string { return &p.MkfsOptions }), use: use{
			means:  "Options of mkfs, passed to the node in the volume's attributes.",
			values: someMkfsOptions, without: "none", rule: "CSI, volume_context",
		},
	},
	"xfsFeatures": {
		set: parsed(func(p *Class) *disk.XFSFeatures { return &p.XFSFeatures }, disk.ParseXFSFeatures), use: use{
			means: "Features of a new xfs file system: `lts_4.19` are those that Linux mounts since 4.19 (Alibaba Cloud Linux 2), " +
				"`latest` those that mkfs.xfs has by default: reflink, and dates after 2038, which need Linux 5.10. `mkfsOptions` overrides it.",
			values: strings.Join(disk.AllXFSFeatures(), ", "), without: "lts_4.19", rule: "CSI, volume_context",
		},
	},
	"omitfsck": {
		set: parsed(func(p *Class) *bool { return &p.Unchecked }, boolean), use: use{
			means:  "Mounts an ext3 or ext4 file system without checking it first.",
			values: yesNo, without: "no: it is checked before it is mounted for writing", rule: "CSI, volume_context",
		},
	},
	"categoryAffinity": {
		set: parsed(func(p *Class) *bool { return &p.CategoryAffinity }, boolean), use: use{
			means:  "The PersistentVolume also requires a node that can attach the disk's type: one with the label `" + disk.NodeTypeLabel + "<type>=available`.",
			values: yesNo, without: "no: it requires only the zone", rule: "CSI, accessible_topology",
		},
	},
	"volumeSizeAutoAvailable": {
		set: parsed(func(p *Class) *bool { return &p.AtLeast20 }, boolean), use: use{
			means:  "Raises a claim of less than 20 GiB to 20 GiB.",
			values: yesNo, without: "no: a type that doesn't support the size is skipped", rule: "CreateDisk, Size",
		},
	},
	"encrypted": {
		set: parsed(func(p *Class) *bool { return &p.Disk.Encrypted }, boolean), use: use{
			means:  "Encrypts the disk, with the account's service key unless `kmsKeyId` names another.",
			values: yesNo, without: "no, unless the account encrypts all disks", rule: "CreateDisk, Encrypted",
		},
	},
	"kmsKeyId": {
		set: text(func(p *Class) *string { return &p.Disk.KMSKeyID }), use: use{
			means:  "The KMS key to encrypt with. Needs `encrypted`.",
			values: "ID of an enabled, symmetric key", without: "the account's service key", rule: "CreateDisk, KMSKeyId",
		},
	},
	"alibabacloud.com/kms-key-id": {same: "kmsKeyId"},
	"multiAttach": {
		set: parsed(func(p *Class) *bool { return &p.Disk.MultiAttach }, boolean), use: use{
			means:  "The disk can be attached to up to 16 instances of a kind that ECS allows (NVMe). Needed for access modes of several nodes; only block volumes may be written by several.",
			values: yesNo, without: "no", rule: "CreateDisk, MultiAttach",
		},
	},
	"provisionedIops": {
		set: parsed(func(p *Class) *int64 { return &p.Disk.ProvisionedIOPS }, count), use: use{
			means:  "IOPS in addition to those of the size, for types that support them.",
			values: iopsRange, without: "0", rule: "CreateDisk, ProvisionedIops",
		},
	},
	"burstingEnabled": {
		set: parsed(func(p *Class) *bool { return &p.Disk.Bursting }, boolean), use: use{
			means:  "Lets the disk exceed its IOPS for an extra charge, for types that support it. Not with `multiAttach`.",
			values: yesNo, without: "no", rule: "CreateDisk, BurstingEnabled",
		},
	},
	"resourceGroupId": {
		set: text(func(p *Class) *string { return &p.Disk.ResourceGroupID }), use: use{
			means:  "The resource group that the disk belongs to.",
			values: "ID of a resource group", without: "the account's default group", rule: "CreateDisk, ResourceGroupId",
		},
	},
	"storageClusterId": {
		set: text(func(p *Class) *string { return &p.Disk.StorageClusterID }), use: use{
			means:  "The dedicated storage cluster that holds the disk. Needs `performanceLevel`.",
			values: "ID of a storage cluster", without: "none", rule: "CreateDisk, StorageClusterId",
		},
	},
	"diskTags": {
		set: (*Class).setTags, use: use{
			means:  "Tags of the disk.",
			values: fmt.Sprintf("`team:web,stage:test`; with `diskTags/<key>` at most %d", disk.MostUserTags), without: "only the driver's own tags", rule: "CreateDisk, Tag",
		},
	},
	"diskTags/": {
		under: (*Class).tag, use: use{
			means:  "One tag of the disk, which overrides `diskTags`.",
			values: tagRules, without: "as `diskTags`", rule: "CreateDisk, Tag",
		},
	},
	SnapshotParameter: {
		set: text(func(p *Class) *disk.SnapshotID { return &p.SnapshotID }), use: use{
			means:  "The disk is created from this snapshot, whosever it is. It is refused unless disk-driver has `--allow-snapshot-parameter`. Prefer a claim's `dataSource`.",
			values: "ID of a snapshot", without: "the claim's `dataSource`, or an empty disk", rule: "CreateDisk, SnapshotId",
		},
	},
	"archiveOnDelete": {
		set: parsed(func(p *Class) **bool { return &p.archive }, orNil(boolean)), use: use{
			means:  "Takes a snapshot of the disk, `archived-<namespace>-<claim>-<disk>`, and waits for it before it deletes the disk. A disk that was never attached is deleted without a snapshot.",
			values: yesNo, without: "no", rule: "CreateSnapshot",
		},
	},
	"volumeDeleteSnapshotRetentionDays": {
		set: parsed(func(p *Class) *int64 { return &p.archiveDays }, disk.ParseRetention), use: use{
			means:  "As `archiveOnDelete`; ECS deletes the snapshot after this number of days. Not with `archiveOnDelete` no.",
			values: fmt.Sprintf("days, 1 to %d", disk.LongestRetention), without: "the snapshot stays until somebody deletes it",
			rule: "CreateSnapshot, RetentionDays",
		},
	},

	ClaimName: {
		use: use{means: "Becomes the tag `" + disk.ClaimNameTag + "`.", by: nodesOwn},
		set: text(func(p *Class) *string { return &p.ClaimName }),
	},
	ClaimNamespace: {
		use: use{means: "Becomes the tag `" + disk.ClaimNamespaceTag + "`.", by: nodesOwn},
		set: text(func(p *Class) *string { return &p.ClaimNamespace }),
	},
	"csi.storage.k8s.io/pv/name": {use: use{means: "Not used: the PersistentVolume is named after the disk.", by: nodesOwn}},

	"readOnly":                           {idle: "mount the volume read-only in the Pod", set: idleTruth},
	"restrictToHpnZone":                  {idle: "volumes of Lingjun zones are not supported", set: (*Class).setHPN},
	"volumeExpandAutoSnapshot":           {idle: "it is obsolete"},
	"volume.kubernetes.io/selected-node": {idle: "the topology requirement says where the disk goes"},
	"topodisk.io/strict-topology":        {idle: "disk-provisioner keeps it to itself; with csi-provisioner its flag --strict-topology counts", set: idleTruth},

	"alibabacloud.com/createdisk-arn": {barred: "the driver takes on no other role to create a disk; let its own create them"},
	"volume.alibabacloud.com/disk-id": {barred: "a class gives every claim a disk of its own; make a PersistentVolume by hand for a disk that exists"},
	"sysConfig":                       {barred: "the driver leaves the node's block devices as they are; set their attributes on the node"},
	"dataCacheSize":                   {barred: noCache},
	"dataCacheMode":                   {barred: noCache},
	"readIOPS":                        {barred: noLimit},
	"writeIOPS":                       {barred: noLimit},
	"readBPS":                         {barred: noLimit},
	"writeBPS":                        {barred: noLimit},
}

// categories reads a list of disk types.
func categories(value string) ([]disk.Category, error) {
	if value == "available" {
		return disk.DefaultCategories(), nil
	}
	return listOf(category)(value)
}

// category reads one disk type that the driver makes.
func category(word string) (disk.Category, error) {
	traits, known := disk.Category(word).Traits()
	switch {
	case !known:
		return "", fmt.Errorf("%s is no disk type; allowed are %s", word, disk.List(disk.Categories()))
	case traits.Barred != "":
		return "", fmt.Errorf("%s is not for volumes, as %s; allowed are %s", word, traits.Barred, disk.List(disk.Categories()))
	}
	return disk.Category(word), nil
}

// level reads one performance level.
func level(word string) (disk.Level, error) {
	if traits, _ := disk.ESSD.Traits(); traits.Levels[disk.Level(word)] == (disk.Range{}) {
		return "", fmt.Errorf("%s is no performance level; allowed are PL0, PL1, PL2, PL3", word)
	}
	return disk.Level(word), nil
}

// zoneForm is the form of a zone's ID: cn-hangzhou-h, ap-southeast-1a.
var zoneForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

func zone(word string) (disk.Zone, error) {
	if !zoneForm.MatchString(word) {
		return "", fmt.Errorf("%q is no zone; allowed is a list such as cn-hangzhou-h,cn-hangzhou-i", word)
	}
	return disk.Zone(word), nil
}

func (p *Class) setZones(value string) error {
	zones, err := listOf(zone)(value)
	if err != nil {
		return err
	}
	if p.Zones != nil && !slices.Equal(p.Zones, zones) {
		return fmt.Errorf("another name of the same parameter says %q", disk.List(p.Zones))
	}
	p.Zones = zones
	return nil
}

func (p *Class) setFilesystem(value string) error {
	if !slices.Contains(disk.Filesystems(), value) {
		return fmt.Errorf("allowed are %s", strings.Join(disk.Filesystems(), ", "))
	}
	return text(func(p *Class) *string { return &p.Filesystem })(p, value)
}

func (p *Class) setHPN(value string) error {
	if value != "never" {
		return fmt.Errorf("allowed is never: volumes of Lingjun zones are not supported")
	}
	return nil
}

func (p *Class) setTags(value string) error {
	words, err := elements(value)
	if err != nil {
		return err
	}
	for _, word := range words {
		name, content, ok := strings.Cut(word, ":")
		if !ok {
			return fmt.Errorf("%q has no colon; allowed is a list such as team:web,stage:test", word)
		}
		if err := p.tag(name, content); err != nil {
			return err
		}
	}
	return nil
}

func (p *Class) tag(name, value string) error {
	if err := disk.CheckTag(name, value); err != nil {
		return err
	}
	p.Disk.Tags[name] = value
	return nil
}
