package ecssim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

func TestNewNamesWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*ecssim.Config)
		field   string
		value   string
		allowed string
	}{
		{"no region", func(c *ecssim.Config) { c.Region = "" }, "Region", "", "cn-hangzhou"},
		{"two regions", func(c *ecssim.Config) { c.Region = "cn-hangzhou,cn-beijing" }, "Region", "cn-hangzhou,cn-beijing", "one region"},
		{"no zone", func(c *ecssim.Config) { c.Zones = nil }, "Zones", "", "one zone"},
		{"a zone of another region", func(c *ecssim.Config) { c.Zones = []string{"cn-beijing-a"} }, "Zones", "cn-beijing-a", region},
		{"the region for a zone", func(c *ecssim.Config) { c.Zones = []string{region} }, "Zones", region, "cn-hangzhou-h"},
		{"a zone twice", func(c *ecssim.Config) { c.Zones = []string{zoneH, zoneH} }, "Zones", zoneH, "once"},
		{"an offer in an unknown zone", func(c *ecssim.Config) { c.Offers = map[string][]string{"x": nil} }, "Offers", "x", zoneH},
		{"an unknown offer", func(c *ecssim.Config) { c.Offers = map[string][]string{zoneH: {"cloud_fast"}} }, "Offers", "cloud_fast", "cloud_ssd"},
		{"an unknown code", func(c *ecssim.Config) { c.SoldOutCode = "Gone" }, "SoldOutCode", "Gone", "Zone.NotOnSale"},
		{"an instance of no form", func(c *ecssim.Config) { c.Instances[0].ID = "x" }, "Instances", "x", "i-"},
		{"an instance twice", func(c *ecssim.Config) { c.Instances[1].ID = "i-1" }, "Instances", "i-1", "once"},
		{"an instance in an unknown zone", func(c *ecssim.Config) { c.Instances[0].Zone = "x" }, "Instances", "x", zoneH},
		{"an instance of no type", func(c *ecssim.Config) { c.Instances[0].Type = "large" }, "Instances", "large", "ecs.g7.large"},
		{"an instance of an unknown type", func(c *ecssim.Config) { c.Instances[0].Type = "ecs.g7.lagre" }, "Instances", "ecs.g7.lagre", "did you mean ecs.g7.large?"},
		{"a type twice", func(c *ecssim.Config) {
			c.InstanceTypes = slices.Repeat([]ecssim.InstanceType{{ID: "ecs.a.b", DiskQuantity: 1, NVMe: "required"}}, 2)
		}, "InstanceTypes", "ecs.a.b", "once"},
		{"a type of no family", func(c *ecssim.Config) {
			c.InstanceTypes = []ecssim.InstanceType{{ID: "ecs.a.b", Family: "a", DiskQuantity: 1, NVMe: "required"}}
		}, "InstanceTypes", "a", "ecs.g7"},
		{"a type without categories", func(c *ecssim.Config) {
			c.InstanceTypes = []ecssim.InstanceType{{ID: "ecs.a.b", DiskQuantity: 1, NVMe: "required", Categories: []string{}}}
		}, "InstanceTypes", "ecs.a.b", "Categories"},
		{"a type without disks", func(c *ecssim.Config) {
			c.InstanceTypes = []ecssim.InstanceType{{ID: "ecs.a.b", NVMe: "required"}}
		}, "InstanceTypes", "ecs.a.b", "DiskQuantity"},
		{"a type of unknown NVMe", func(c *ecssim.Config) {
			c.InstanceTypes = []ecssim.InstanceType{{ID: "ecs.a.b", DiskQuantity: 1, NVMe: "yes"}}
		}, "InstanceTypes", "yes", "required"},
		{"a type of unknown disks", func(c *ecssim.Config) {
			c.InstanceTypes = []ecssim.InstanceType{{ID: "ecs.a.b", DiskQuantity: 1, NVMe: "required", Categories: []string{"floppy"}}}
		}, "InstanceTypes", "floppy", "cloud_essd"},
		{"a key without a secret", func(c *ecssim.Config) { c.AccessKeys = map[string]string{"id": ""} }, "AccessKeys", "id", "secret"},
		{"the latency of an unknown action", func(c *ecssim.Config) { c.Latency.API = map[string]time.Duration{"MakeDisk": 1} }, "Latency.API", "MakeDisk", "CreateDisk"},
		{"a negative latency", func(c *ecssim.Config) { c.Latency.Available = -time.Second }, "Latency.Available", "-1s", "zero or more"},
		{"a negative token life", func(c *ecssim.Config) { c.TokenLife = -time.Second }, "TokenLife", "-1s", "above zero"},
		{"a negative ledger", func(c *ecssim.Config) { c.LedgerSize = -1 }, "LedgerSize", "-1", "above zero"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := ecssim.Config{Region: region, Zones: []string{zoneH}, Instances: []ecssim.Instance{
				{ID: "i-1", Zone: zoneH, Type: "ecs.g6.large"}, {ID: "i-2", Zone: zoneH, Type: "ecs.g6.large"},
			}}
			tt.change(&config)
			_, err := ecssim.New(config)
			var wrong *ecssim.ConfigError
			if !errors.As(err, &wrong) || wrong.Field != tt.field || wrong.Value != tt.value || !strings.Contains(wrong.Allowed, tt.allowed) {
				t.Errorf("error %v, want one that names %s %q and allows %s", err, tt.field, tt.value, tt.allowed)
			}
		})
	}
}

func TestZonesOfRegionsThatAddALetter(t *testing.T) {
	s, err := ecssim.New(ecssim.Config{Region: "ap-southeast-1", Zones: []string{"ap-southeast-1a", "ap-southeast-1b"}})
	if err != nil {
		t.Fatal(err)
	}
	if zones := s.State().Zones; len(zones) != 2 {
		t.Errorf("zones %v, want 2", zones)
	}
}

func TestSeedsMakeDifferentDisks(t *testing.T) {
	ids := map[string]bool{}
	for _, seed := range []uint32{0, 0, 1, 1<<32 - 1} {
		s := newServer(t, func(c *ecssim.Config) { c.Seed = seed })
		id := create(t, newClient(t, s), nil)
		if len(id) != len("d-")+20 {
			t.Errorf("ID %q of seed %d, want d- and 20 characters", id, seed)
		}
		ids[id] = true
	}
	if len(ids) != 3 {
		t.Errorf("IDs %v of three seeds, one of them twice, want three", ids)
	}
}

func TestProfiles(t *testing.T) {
	for _, name := range ecssim.Profiles {
		if _, err := ecssim.Profile(name); err != nil {
			t.Error(err)
		}
	}
	_, err := ecssim.Profile("slow")
	var wrong *ecssim.ConfigError
	if !errors.As(err, &wrong) || wrong.Value != "slow" || !strings.Contains(wrong.Allowed, "zero, fast, real") {
		t.Errorf("error %v, want one that allows zero, fast, real", err)
	}
}
