package disk

import (
	"strings"
	"testing"
)

func TestMatchesNamesTheFirstDifference(t *testing.T) {
	asked := Spec{Encrypted: true, KMSKeyID: "key-1", MultiAttach: true, ProvisionedIOPS: 100, Bursting: true, ResourceGroupID: "rg-1", StorageClusterID: "sc-1", SnapshotID: "s-1", Tags: Tags{"team": "web"}}
	same := Disk{
		ID: "d-1", Category: "cloud_auto", Encrypted: true, KMSKeyID: "key-1", MultiAttach: true, ProvisionedIOPS: 100, Bursting: true,
		ResourceGroupID: "rg-1", StorageClusterID: "sc-1", SnapshotID: "s-1", Tags: Tags{"team": "db"},
	}
	for name, row := range map[string]struct {
		change func(*Disk)
		want   string
	}{
		"nothing":                 {func(*Disk) {}, ""},
		"encryption":              {func(d *Disk) { d.Encrypted = false }, "d-1: the disk has encrypted false; asked for is true"},
		"key":                     {func(d *Disk) { d.KMSKeyID = "key-2" }, "KMS key key-2; asked for is key-1"},
		"multi-attach":            {func(d *Disk) { d.MultiAttach = false }, "multi-attach false"},
		"IOPS":                    {func(d *Disk) { d.ProvisionedIOPS = 0 }, "provisioned IOPS 0"},
		"bursting":                {func(d *Disk) { d.Bursting = false }, "bursting false"},
		"IOPS of what takes none": {func(d *Disk) { d.Category, d.ProvisionedIOPS, d.Bursting = "cloud_ssd", 0, false }, ""},
		"resource group":          {func(d *Disk) { d.ResourceGroupID = "rg-2" }, "resource group rg-2"},
		"storage cluster":         {func(d *Disk) { d.StorageClusterID = "" }, "storage cluster"},
		"snapshot":                {func(d *Disk) { d.SnapshotID = "" }, "source snapshot"},
	} {
		d := same
		row.change(&d)
		checkMatch(t, name, asked.Matches(d), row.want)
	}
	filled := Disk{Category: "cloud_ssd", Encrypted: true, KMSKeyID: "default", ResourceGroupID: "rg-default", StorageClusterID: "sc"}
	checkMatch(t, "what ECS fills in", Spec{}.Matches(filled), "")
}

func TestAmongNamesZoneTypeAndSize(t *testing.T) {
	plan := []Attempt{
		{"a", "cloud_essd", "", 20},
		{"a", "cloud_essd", "PL2", 20},
		{"a", "cloud_ssd", "", 20},
		{"b", "cloud_auto", "", 20},
	}
	want := Wanted{20, 30}
	for name, row := range map[string]struct {
		disk Disk
		want string
	}{
		"no level is PL1":       {Disk{Zone: "a", Category: "cloud_essd", PerformanceLevel: "PL1", Size: 20}, ""},
		"level asked for":       {Disk{Zone: "a", Category: "cloud_essd", PerformanceLevel: "PL2", Size: 30}, ""},
		"other level":           {Disk{Zone: "a", Category: "cloud_essd", PerformanceLevel: "PL3", Size: 20}, "type cloud_essd PL3; asked for is cloud_essd, cloud_essd PL2, cloud_ssd"},
		"other zone":            {Disk{ID: "d-1", Zone: "c", Category: "cloud_ssd", Size: 20}, "d-1: the disk has zone c; asked for is a, b"},
		"type of another zone":  {Disk{Zone: "b", Category: "cloud_ssd", Size: 20}, "type cloud_ssd; asked for is cloud_auto"},
		"regional, not planned": {Disk{Category: "cloud_regional_disk_auto", Size: 20}, "zone the whole region; asked for is a, b"},
		"too small":             {Disk{Zone: "a", Category: "cloud_ssd", Size: 19}, "size 19 GiB; asked for is 20 to 30 GiB"},
		"beyond the limit":      {Disk{Zone: "a", Category: "cloud_ssd", Size: 31}, "size 31 GiB"},
	} {
		checkMatch(t, name, Among(plan, want, row.disk), row.want)
	}
	regional := []Attempt{{"", "cloud_regional_disk_auto", "", 20}}
	checkMatch(t, "regional", Among(regional, want, Disk{Category: "cloud_regional_disk_auto", Size: 20}), "")
}

func checkMatch(t *testing.T, name string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case want != "" && (err == nil || KindOf(err) != Mismatch || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: got %v, want a Mismatch that holds %q", name, err, want)
	}
}
