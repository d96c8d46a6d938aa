package state

import (
	"cmp"
	"maps"
	"slices"
)

// Sizes are the least and the largest size of a data disk in GiB.
type Sizes struct{ Min, Max int }

// CategorySpec is what ECS takes for a disk category.
type CategorySpec struct {
	Sizes
	Levels   map[string]Sizes // by performance level; nil if it has none
	Auto     bool             // takes provisioned IOPS and bursting
	Shared   bool             // takes MultiAttach
	Regional bool             // is in no zone
	special  bool             // is on offer only where Config.Offers says so
	// Ephemeral disks belong to the instance that they were attached to first
	// and go with it.
	Ephemeral bool
	Instant   bool // its snapshots are Available before they are accomplished
	Grouped   bool // snapshot groups take it
	IOPS      func(size int, level string) int
}

// Categories is the table of disk categories that CreateDisk knows.
var Categories = map[string]CategorySpec{
	"cloud":            {Sizes: Sizes{5, 2000}, IOPS: linear(300, 0, 300)},
	"cloud_efficiency": {Sizes: Sizes{20, 32768}, IOPS: linear(1800, 8, 5000)},
	"cloud_ssd":        {Sizes: Sizes{20, 32768}, IOPS: linear(1800, 30, 25000)},
	"cloud_essd": {Sizes: Sizes{1, 65536}, Shared: true, Instant: true, Grouped: true, IOPS: essdIOPS, Levels: map[string]Sizes{
		"PL0": {1, 65536}, "PL1": {20, 65536}, "PL2": {461, 65536}, "PL3": {1261, 65536},
	}},
	"cloud_auto":                      {Sizes: Sizes{1, 65536}, Auto: true, Shared: true, Instant: true, Grouped: true, IOPS: autoIOPS},
	"cloud_essd_entry":                {Sizes: Sizes{10, 32768}, Instant: true, Grouped: true, IOPS: linear(1800, 8, 6000)},
	"cloud_regional_disk_auto":        {Sizes: Sizes{10, 65536}, Auto: true, Shared: true, Regional: true, Instant: true, Grouped: true, IOPS: autoIOPS},
	"elastic_ephemeral_disk_standard": {Sizes: Sizes{64, 8192}, Ephemeral: true, IOPS: linear(1800, 0, 1800)},
	"elastic_ephemeral_disk_premium":  {Sizes: Sizes{64, 8192}, Ephemeral: true, IOPS: linear(1800, 0, 1800)},
	"cloud_essd_xc0":                  {Sizes: Sizes{40, 65536}, special: true, Instant: true, Grouped: true, IOPS: linear(1800, 12, 10000)},
	"cloud_essd_xc1":                  {Sizes: Sizes{40, 65536}, special: true, Instant: true, Grouped: true, IOPS: linear(1800, 50, 50000)},
}

// LocalCategories exist, but CreateDisk does not make them.
var LocalCategories = []string{"ephemeral_ssd", "local_hdd_pro", "local_ssd_pro"}

func linear(base, perGiB, limit int) func(int, string) int {
	return func(size int, _ string) int { return min(base+perGiB*size, limit) }
}

func essdIOPS(size int, level string) int {
	switch level {
	case "PL0":
		return min(1800+12*size, 10000)
	case "PL2":
		return min(1800+50*size, 100000)
	case "PL3":
		return min(1800+50*size, 1000000)
	}
	return min(1800+50*size, 50000)
}

func autoIOPS(size int, _ string) int { return max(min(1800+50*size, 50000), 3000) }

// MaxProvisionedIOPS is how many IOPS may be provisioned on top of the baseline.
func MaxProvisionedIOPS(size int) int {
	if size < 4 {
		return 0
	}
	return max(0, min(1000*size-autoIOPS(size, ""), 50000))
}

// CategoryNames returns the disk categories of a zone, or of the region, sorted.
func CategoryNames(regional bool) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(Categories)) {
		if Categories[name].Regional == regional {
			names = append(names, name)
		}
	}
	return names
}

// sortCategories puts the common categories first, for replies and people.
func sortCategories(names []string) {
	usual := []string{"cloud_ssd", "cloud_efficiency", "cloud_essd", "cloud_auto", "cloud_essd_entry", "cloud"}
	rank := func(name string) int {
		if i := slices.Index(usual, name); i >= 0 {
			return i
		}
		return len(usual)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}
