package disk

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The performance levels of cloud_essd.
const (
	PL0 Level = "PL0"
	PL1 Level = "PL1"
	PL2 Level = "PL2"
	PL3 Level = "PL3"
)

// ESSD is the one category that has levels.
const ESSD Category = "cloud_essd"

// Range is the sizes that something takes, both ends included.
type Range struct {
	Least, Most GiB
}

// String returns the range in words: 20 to 65536 GiB.
func (r Range) String() string { return fmt.Sprintf("%d to %d GiB", r.Least, r.Most) }

// Traits are what ECS documents of a category (CreateDisk, "Size",
// "DiskCategory", "MultiAttach", "ProvisionedIops", "BurstingEnabled").
type Traits struct {
	Size        Range
	Levels      map[Level]Range // sizes by level; nil if the category has none
	Regional    bool            // one disk for all zones of the region
	IOPS        bool            // takes ProvisionedIOPS
	Bursting    bool            // takes Bursting
	MultiAttach bool
	Barred      string // why this driver makes no such disk; empty if it does
}

const (
	oneInstance  = "it lives and dies with one instance, so it can't follow a Pod"
	privateCloud = "it exists in private clouds only"
	localDisk    = "it is part of an instance, and CreateDisk makes none"
)

var categories = map[Category]Traits{
	"cloud":            {Size: Range{5, 2000}},
	"cloud_efficiency": {Size: Range{20, 32768}},
	"cloud_ssd":        {Size: Range{20, 32768}},
	ESSD: {Size: Range{1, 65536}, MultiAttach: true, Levels: map[Level]Range{
		PL0: {1, 65536}, PL1: {20, 65536}, PL2: {461, 65536}, PL3: {1261, 65536},
	}},
	"cloud_essd_entry":         {Size: Range{10, 32768}},
	"cloud_essd_xc0":           {Size: Range{40, 65536}},
	"cloud_essd_xc1":           {Size: Range{40, 65536}},
	"cloud_auto":               {Size: Range{1, 65536}, IOPS: true, Bursting: true, MultiAttach: true},
	"cloud_regional_disk_auto": {Size: Range{10, 65536}, Regional: true, MultiAttach: true},

	"elastic_ephemeral_disk_standard": {Size: Range{64, 8192}, Barred: oneInstance},
	"elastic_ephemeral_disk_premium":  {Size: Range{64, 8192}, Barred: oneInstance},
	"cloud_pperf":                     {Barred: privateCloud},
	"cloud_sperf":                     {Barred: privateCloud},
	"local_ssd_pro":                   {Barred: localDisk},
	"local_hdd_pro":                   {Barred: localDisk},
	"ephemeral_ssd":                   {Barred: localDisk},
}

// leastForIOPS is the smallest disk that takes ProvisionedIOPS.
const leastForIOPS GiB = 4

// mostIOPS returns how many IOPS a disk takes on top of those of its size:
// together 1,000 a GiB, and 50,000 of either (CreateDisk, ProvisionedIops).
func mostIOPS(size GiB) int64 {
	if size < leastForIOPS {
		return 0
	}
	own := max(min(1800+50*int64(size), 50_000), 3_000)
	return max(0, min(1000*int64(size)-own, 50_000))
}

// DefaultCategories returns those that are tried, in this order, for a class that
// names no type.
func DefaultCategories() []Category {
	return []Category{"cloud_ssd", "cloud_efficiency", ESSD, "cloud_auto"}
}

// Traits returns what is known of the category; false if it is unknown.
func (c Category) Traits() (Traits, bool) {
	t, ok := categories[c]
	return t, ok
}

// Regional says whether a disk of the category serves every zone of its region.
func (c Category) Regional() bool { return categories[c].Regional }

// Categories returns the categories that the driver makes, sorted.
func Categories() []Category {
	return slices.DeleteFunc(KnownCategories(), func(c Category) bool { return categories[c].Barred != "" })
}

// KnownCategories returns every category of ECS, sorted.
func KnownCategories() []Category { return slices.Sorted(maps.Keys(categories)) }

// Choice is one kind of disk that a class allows.
type Choice struct {
	Category Category
	Level    Level // cloud_essd only; empty leaves it to ECS, which takes PL1
}

// String returns the choice in words: cloud_essd PL2.
func (c Choice) String() string {
	if c.Level == "" {
		return string(c.Category)
	}
	return string(c.Category) + " " + string(c.Level)
}

// Sizes returns the sizes that ECS takes for the choice.
func (c Choice) Sizes() Range {
	t := categories[c.Category]
	if t.Levels == nil {
		return t.Size
	}
	return t.Levels[c.level()]
}

// level returns the level that ECS gives the disk.
func (c Choice) level() Level {
	if c.Level == "" && c.Category == ESSD {
		return PL1
	}
	return c.Level
}

// List puts values into words for an error message.
func List[T any](values []T) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, ", ")
}

// NodeTypeLabel is the prefix of the Node labels that say which categories a
// node can attach; the category follows.
const NodeTypeLabel = "node.csi.alibabacloud.com/disktype."
