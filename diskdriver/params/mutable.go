package params

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// asItIs is what becomes of a trait that a change doesn't name.
const asItIs = "stays as it is"

// mutableKeys are the parameters of a VolumeAttributesClass.
var mutableKeys = keyTable[disk.Change]{
	"type": {
		set: parsed(func(c *disk.Change) *disk.Category { return &c.Move.Category }, singleCategory), use: use{
			means:  "The disk type. ECS defines which types a disk can change to, and how long to wait before the next change. A disk can't change between regional and zonal, and one with `multiAttach` can't change its type.",
			values: oneType, without: asItIs, rule: "ModifyDiskSpec, DiskCategory",
		},
	},
	"performanceLevel": {
		set: parsed(func(c *disk.Change) *disk.Level { return &c.Move.Level }, singleLevel), use: use{
			means:  "The level of a `cloud_essd`.",
			values: oneLevel, without: asItIs + "; PL1 for a disk that becomes a `cloud_essd`", rule: "ModifyDiskSpec, PerformanceLevel",
		},
	},
	"provisionedIops": {
		set: parsed(func(c *disk.Change) **int64 { return &c.Move.IOPS }, orNil(count)), use: use{
			means:  "IOPS in addition to those of the size, for types that support them.",
			values: iopsRange, without: asItIs, rule: "ModifyDiskSpec, ProvisionedIops",
		},
	},
	"burstingEnabled": {
		set: parsed(func(c *disk.Change) **bool { return &c.Bursting }, orNil(boolean)), use: use{
			means:  "Lets the disk exceed its IOPS for an extra charge, for types that support it.",
			values: fmt.Sprintf("%s; yes from %d GiB, not with `multiAttach`", yesNo, disk.LeastToBurst), without: asItIs, rule: "ModifyDiskAttribute, BurstingEnabled",
		},
	},
	"diskTags/": {
		under: changeTag, use: use{
			means:  "Sets a tag of the disk.",
			values: tagRules, without: asItIs, rule: "TagResources, Tag",
		},
	},
	"-diskTags/": {
		under: removeTag, use: use{
			means:  "Removes a tag of the disk.",
			values: "any text, or none; not the driver's own tags", without: asItIs, rule: "UntagResources, TagKey",
		},
	},
	"csi.storage.k8s.io/": {
		under: func(*disk.Change, string, string) error { return nil },
		use:   use{means: "Not used.", by: "csi-resizer"},
	},
}

// ParseChange understands the parameters of a VolumeAttributesClass. A bad
// value and an unknown name are Invalid, whatever is done about unknown names
// of a StorageClass, for a change that is asked for must not be left out.
func ParseChange(mutable map[string]string) (disk.Change, error) {
	c, _, err := parseChange(mutable, Refuse)
	return c, err
}

func parseChange(mutable map[string]string, unknown Unknown) (disk.Change, []string, error) {
	c := disk.Change{Tag: disk.Tags{}}
	warnings, err := take(&c, "mutable parameter", mutable, mutableKeys, unknown)
	if err != nil {
		return disk.Change{}, nil, err
	}
	for _, name := range c.Untag {
		if _, both := c.Tag[name]; both {
			return disk.Change{}, nil, disk.Errorf(disk.Invalid, "mutable parameter -diskTags/%s is not allowed beside diskTags/%s: the tag can't both go and stay", name, name)
		}
	}
	return c, warnings, nil
}

func singleCategory(value string) (disk.Category, error) {
	if value == "available" || strings.Contains(value, ",") {
		return "", fmt.Errorf("allowed is one of %s", disk.List(disk.Categories()))
	}
	return category(value)
}

func singleLevel(value string) (disk.Level, error) {
	if strings.Contains(value, ",") {
		return "", fmt.Errorf("allowed is one of PL0, PL1, PL2, PL3")
	}
	return level(value)
}

func changeTag(c *disk.Change, name, value string) error {
	c.Tag[name] = value
	return disk.CheckTag(name, value)
}

func removeTag(c *disk.Change, name, _ string) error {
	if disk.IsDriverTag(name) {
		return fmt.Errorf("the driver itself needs the tag %s", name)
	}
	c.Untag = append(c.Untag, name)
	slices.Sort(c.Untag)
	return nil
}

// overlay puts a change over the parameters of a class.
func (p *Class) overlay(c disk.Change) {
	if c.Move.Category != "" {
		p.categories = []disk.Category{c.Move.Category}
	}
	if c.Move.Level != "" {
		p.levels = []disk.Level{c.Move.Level}
	}
	if c.Move.IOPS != nil {
		p.Disk.ProvisionedIOPS = *c.Move.IOPS
	}
	if c.Bursting != nil {
		p.Disk.Bursting = *c.Bursting
	}
	for _, name := range c.Untag {
		delete(p.Disk.Tags, name)
	}
	maps.Copy(p.Disk.Tags, c.Tag)
}
