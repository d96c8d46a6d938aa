package state

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestInstanceFamiliesAreWellFormed(t *testing.T) {
	date := regexp.MustCompile(`^20[0-9]{2}-(0[1-9]|1[0-2])$`)
	for i, row := range instanceFamilies {
		if i > 0 && row.name <= instanceFamilies[i-1].name {
			t.Errorf("%s comes after %s", row.name, instanceFamilies[i-1].name)
		}
		if len(row.from) == 0 {
			t.Errorf("%s is from no page", row.name)
		}
		for _, from := range row.from {
			if u, err := url.Parse(from.url); err != nil || u.Scheme != "https" || u.Host == "" || u.Path == "" || !date.MatchString(from.date) {
				t.Errorf("%s is from %+v, want the address of a page and a month", row.name, from)
			}
		}
		if takes := strings.Fields(row.takes); !slices.IsSorted(takes) || len(slices.Compact(slices.Clone(takes))) != len(takes) {
			t.Errorf("%s takes %v, want each once and sorted", row.name, takes)
		}
		for n, sizes := range row.types {
			if n > 0 && sizes.disks <= row.types[n-1].disks {
				t.Errorf("%s: %d disks come after %d", row.name, sizes.disks, row.types[n-1].disks)
			}
		}
	}
}

func TestInstanceTypesOfTheTable(t *testing.T) {
	list := InstanceTypes()
	seen, families := map[string]bool{}, map[string]bool{}
	for _, kind := range list {
		if err := kind.check(); err != nil {
			t.Errorf("%s: %v", kind.ID, err)
		}
		if seen[kind.ID] {
			t.Errorf("%s comes twice", kind.ID)
		}
		seen[kind.ID], families[kind.Family] = true, true
		if kind.DiskQuantity < 2 || kind.DiskQuantity > 65 {
			t.Errorf("%s takes %d disks", kind.ID, kind.DiskQuantity)
		}
		old := []string{"cloud", "cloud_efficiency", "cloud_ssd"}
		if kind.NVMe == "required" && slices.ContainsFunc(old, kind.Takes) {
			t.Errorf("%s has NVMe and takes %v", kind.ID, kind.Categories)
		}
		if kind.Takes("cloud_essd_entry") != (kind.Family == "ecs.u1") {
			t.Errorf("%s takes %v: cloud_essd_entry is for u1 and e", kind.ID, kind.Categories)
		}
		if !kind.Takes(kind.systemCategory()) {
			t.Errorf("%s has a system disk of %s and takes %v", kind.ID, kind.systemCategory(), kind.Categories)
		}
	}
	if len(list) < 60 || len(families) < 20 {
		t.Errorf("%d types of %d families", len(list), len(families))
	}
	for _, want := range []string{"ecs.c7.large", "ecs.d2s.5xlarge", "ecs.ebmg6.26xlarge", "ecs.g5.large", "ecs.gn8is.2xlarge", "ecs.i2.xlarge", "ecs.r6.26xlarge", "ecs.u1-c1m4.xlarge"} {
		if !seen[want] {
			t.Errorf("%s is missing", want)
		}
	}
	t.Logf("%d types of %d families", len(list), len(families))
}

func TestFamilyOfATypeThatIsDeclared(t *testing.T) {
	for _, tt := range []struct {
		kind  InstanceType
		want  string
		entry bool
	}{
		{InstanceType{ID: "ecs.g8i.large"}, "ecs.g8i", false},
		{InstanceType{ID: "ecs.u1-c1m2.large"}, "ecs.u1", true},
		{InstanceType{ID: "ecs.u1.large"}, "ecs.u1", true},
		{InstanceType{ID: "ecs.u2i-c1m2.large"}, "ecs.u2i", false},
		{InstanceType{ID: "ecs.e-c1m1.large"}, "ecs.e", true},
		{InstanceType{ID: "ecs.ebmg6e.26xlarge"}, "ecs.ebmg6e", false},
		{InstanceType{ID: "ecs.gn7i-c8g1.2xlarge"}, "ecs.gn7i", false},
		{InstanceType{ID: "ecs.vgn7i-vws-m4.xlarge", Family: "ecs.vgn7i-vws"}, "ecs.vgn7i-vws", false},
	} {
		if got := tt.kind.FamilyName(); got != tt.want {
			t.Errorf("family of %s: %s, want %s", tt.kind.ID, got, tt.want)
		}
		if got := tt.kind.Takes("cloud_essd_entry"); got != tt.entry {
			t.Errorf("%s takes cloud_essd_entry: %v, want %v", tt.kind.ID, got, tt.entry)
		}
	}
}
