package ecs

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

func TestInstancesAreReadAHundredWithACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []disk.InstanceID
		sim, c := simulate(t, func(config *ecssim.Config) {
			for n := range 250 {
				id := fmt.Sprintf("i-%d", n)
				ids = append(ids, disk.InstanceID(id))
				config.Instances = append(config.Instances, ecssim.Instance{ID: id, Zone: []string{zoneH, zoneI}[n%2], Type: "ecs.g6.large"})
			}
		})
		found, err := c.Instances(t.Context(), append(ids, "i-gone"))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 250 || found["i-7"].Type != "ecs.g6.large" || found["i-7"].Zone != zoneI {
			t.Errorf("got %d instances, and i-7 as %+v", len(found), found["i-7"])
		}
		if n := calls(sim, "DescribeInstances"); n != 3 {
			t.Errorf("%d calls, want 3", n)
		}
	})
}

func TestTypesAreReadTenWithACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var types []disk.InstanceType
		sim, c := simulate(t, func(config *ecssim.Config) {
			for n := range 21 {
				name := fmt.Sprintf("ecs.t%d.large", n)
				types = append(types, disk.InstanceType(name))
				config.InstanceTypes = append(config.InstanceTypes, ecssim.InstanceType{ID: name, DiskQuantity: n + 1, NVMe: "supported"})
			}
		})
		limits, err := c.DataDisks(t.Context(), append(types, "ecs.unheard.of"))
		if err != nil {
			t.Fatal(err)
		}
		if len(limits) != 21 || limits["ecs.t16.large"] != 16 || limits["ecs.t0.large"] != 0 {
			t.Errorf("got %v", limits)
		}
		if n := calls(sim, "DescribeInstanceTypes"); n != 3 {
			t.Errorf("%d calls, want 3", n)
		}
	})
}

func TestCategoriesAreThoseOfTheTypeAlsoIfSoldOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, func(config *ecssim.Config) {
			config.Offers = map[string][]string{zoneH: {"cloud_essd", "cloud_efficiency"}, zoneI: {"cloud_essd"}, "": {"cloud_regional_disk_auto"}}
			config.InstanceTypes = []ecssim.InstanceType{
				{ID: "ecs.old.large", DiskQuantity: 5, NVMe: "unsupported", Categories: []string{"cloud_efficiency"}},
				{ID: "ecs.new.large", DiskQuantity: 17, NVMe: "required", Categories: []string{"cloud_essd", "cloud_regional_disk_auto"}},
			}
		})
		if err := sim.SetStock(zoneH, "cloud_essd", 0); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			instance disk.InstanceType
			regional bool
			want     map[disk.Zone][]disk.Category
		}{
			{"", false, map[disk.Zone][]disk.Category{zoneH: {"cloud_efficiency", "cloud_essd"}, zoneI: {"cloud_essd"}}},
			{"ecs.old.large", false, map[disk.Zone][]disk.Category{zoneH: {"cloud_efficiency"}}},
			{"ecs.new.large", false, map[disk.Zone][]disk.Category{zoneH: {"cloud_essd"}, zoneI: {"cloud_essd"}}},
			{"ecs.new.large", true, map[disk.Zone][]disk.Category{"": {"cloud_regional_disk_auto"}}},
			{"ecs.old.large", true, map[disk.Zone][]disk.Category{}},
		} {
			got, err := c.Categories(t.Context(), test.instance, test.regional)
			if err != nil {
				t.Fatal(err)
			}
			for _, list := range got {
				slices.Sort(list)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("type %q, regional %v (-want +got):\n%s", test.instance, test.regional, diff)
			}
		}
		_, err := c.Categories(t.Context(), "ecs.unheard.of", false)
		wantKind(t, err, disk.NotFound)
	})
}

func TestAnAnswerWithoutItsListIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, nil)
		for action, ask := range map[string]func() error{
			"DescribeInstances":     func() error { _, err := c.Instances(t.Context(), []disk.InstanceID{"i-1"}); return err },
			"DescribeInstanceTypes": func() error { _, err := c.DataDisks(t.Context(), []disk.InstanceType{"ecs.g6.large"}); return err },
		} {
			if err := sim.AddFault(ecssim.Fault{Action: action, Do: ecssim.FaultEmpty, Count: 1}); err != nil {
				t.Fatal(err)
			}
			if err := ask(); err == nil {
				t.Errorf("%s: an empty reply is taken for an answer", action)
			}
		}
	})
}
