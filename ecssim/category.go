package ecssim

import (
	"cmp"
	"maps"
	"slices"
)

// sizes are the least and the largest size of a data disk in GiB.
type sizes struct{ min, max int }

// categorySpec is what ECS takes for a disk category.
type categorySpec struct {
	sizes
	levels   map[string]sizes // by performance level; nil if it has none
	auto     bool             // takes provisioned IOPS and bursting
	shared   bool             // takes MultiAttach
	regional bool             // is in no zone
	special  bool             // is on offer only where Config.Offers says so
	// ephemeral disks belong to the instance that they were attached to first
	// and go with it.
	ephemeral bool
	instant   bool // its snapshots are Available before they are accomplished
	grouped   bool // snapshot groups take it
	iops      func(size int, level string) int
}

// categories is the table of disk categories that CreateDisk knows.
var categories = map[string]categorySpec{
	"cloud":            {sizes: sizes{5, 2000}, iops: linear(300, 0, 300)},
	"cloud_efficiency": {sizes: sizes{20, 32768}, iops: linear(1800, 8, 5000)},
	"cloud_ssd":        {sizes: sizes{20, 32768}, iops: linear(1800, 30, 25000)},
	"cloud_essd": {sizes: sizes{1, 65536}, shared: true, instant: true, grouped: true, iops: essdIOPS, levels: map[string]sizes{
		"PL0": {1, 65536}, "PL1": {20, 65536}, "PL2": {461, 65536}, "PL3": {1261, 65536},
	}},
	"cloud_auto":                      {sizes: sizes{1, 65536}, auto: true, shared: true, instant: true, grouped: true, iops: autoIOPS},
	"cloud_essd_entry":                {sizes: sizes{10, 32768}, instant: true, grouped: true, iops: linear(1800, 8, 6000)},
	"cloud_regional_disk_auto":        {sizes: sizes{10, 65536}, auto: true, shared: true, regional: true, instant: true, grouped: true, iops: autoIOPS},
	"elastic_ephemeral_disk_standard": {sizes: sizes{64, 8192}, ephemeral: true, iops: linear(1800, 0, 1800)},
	"elastic_ephemeral_disk_premium":  {sizes: sizes{64, 8192}, ephemeral: true, iops: linear(1800, 0, 1800)},
	"cloud_essd_xc0":                  {sizes: sizes{40, 65536}, special: true, instant: true, grouped: true, iops: linear(1800, 12, 10000)},
	"cloud_essd_xc1":                  {sizes: sizes{40, 65536}, special: true, instant: true, grouped: true, iops: linear(1800, 50, 50000)},
}

// localCategories exist, but CreateDisk does not make them.
var localCategories = []string{"ephemeral_ssd", "local_hdd_pro", "local_ssd_pro"}

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

// maxProvisionedIOPS is how many IOPS may be provisioned on top of the baseline.
func maxProvisionedIOPS(size int) int {
	if size < 4 {
		return 0
	}
	return max(0, min(1000*size-autoIOPS(size, ""), 50000))
}

// CategoryNames returns the disk categories of a zone, or of the region, sorted.
func CategoryNames(regional bool) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(categories)) {
		if categories[name].regional == regional {
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
