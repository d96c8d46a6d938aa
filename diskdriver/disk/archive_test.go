package disk

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestADisksTagsSayWhetherItIsArchived(t *testing.T) {
	for name, test := range map[string]struct {
		disk Disk
		days int64
		want bool
	}{
		"no tag":                             {Disk{}, 0, false},
		"forever":                            {Disk{Tags: Tags{ArchiveTag: "true"}}, 0, true},
		"for days":                           {Disk{Tags: Tags{ArchiveTag: "30"}}, 30, true},
		"of the driver before topodisk":      {Disk{Tags: Tags{oldArchiveTag: "7"}}, 7, true},
		"ours goes before":                   {Disk{Tags: Tags{oldArchiveTag: "7", ArchiveTag: "true"}}, 0, true},
		"switched off by hand":               {Disk{Tags: Tags{ArchiveTag: "false"}}, 0, false},
		"garbled":                            {Disk{Tags: Tags{ArchiveTag: "treu"}}, 0, true},
		"no days":                            {Disk{Tags: Tags{ArchiveTag: "0"}}, 0, true},
		"too many days":                      {Disk{Tags: Tags{ArchiveTag: "65537"}}, 0, true},
		"never attached":                     {Disk{Tags: Tags{ArchiveTag: "true"}, NeverAttached: true}, 0, false},
		"for several instances, times unset": {Disk{Tags: Tags{ArchiveTag: "true"}, NeverAttached: true, MultiAttach: true}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			spec, wanted := test.disk.Archive("c1")
			if wanted != test.want || spec.RetentionDays != test.days {
				t.Errorf("archive %v for %d days, want %v for %d", wanted, spec.RetentionDays, test.want, test.days)
			}
		})
	}
}

func TestAnArchiveTellsWhatItIsOf(t *testing.T) {
	d := Disk{
		ID: "d-1", ResourceGroupID: "rg-1", Released: "2026-01-02T03:04:05Z",
		Tags: Tags{ArchiveTag: "true", ClaimNameTag: "data", ClaimNamespaceTag: "shop", VolumeNameTag: "pvc-1", "team": "web"},
	}
	got, _ := d.Archive("c1")
	marks := Tags{ClusterTag: "c1", ArchiveOfTag: "d-1", ArchiveStateTag: d.Released}
	want := SnapshotSpec{Name: "archived-shop-data-d-1", Source: "d-1", ResourceGroupID: "rg-1", Marks: marks, Tags: Tags{
		ManagedTag: "true", CreatedByTag: Creator, ClusterTag: "c1", OwnerTag: "c1", ArchiveOfTag: "d-1", ArchiveStateTag: d.Released,
		VolumeNameTag: "pvc-1", ClaimNameTag: "data", ClaimNamespaceTag: "shop",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	d.Released = "2026-01-02T03:04:06Z"
	if later, _ := d.Archive("c1"); later.Marks.Have(got.Marks) {
		t.Error("the archive of a disk that was attached again is not told from the one before")
	}
}

// FuzzArchiveNamesAreNamesOfECS: whatever people make of a disk's tags, the
// archive has a name that ECS takes and that ends in the disk's ID.
func FuzzArchiveNamesAreNamesOfECS(f *testing.F) {
	f.Add("shop", "data")
	f.Add("", "")
	f.Add(strings.Repeat("n", 63), strings.Repeat("c", 253))
	f.Add("http://x", "schön und gut\x00")
	f.Fuzz(func(t *testing.T, namespace, claim string) {
		d := Disk{ID: "d-bp1a2b3c4d5e6f7g8h9i", Tags: Tags{ArchiveTag: "true", ClaimNameTag: claim, ClaimNamespaceTag: namespace}}
		spec, _ := d.Archive("c1")
		if DisplayName(spec.Name) != spec.Name || !strings.HasPrefix(spec.Name, "archived-") || !strings.HasSuffix(spec.Name, "-"+string(d.ID)) {
			t.Errorf("name %q", spec.Name)
		}
	})
}
