package ecssim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// available returns "zone category status" for what DescribeAvailableResource shows.
func available(t *testing.T, c *ecs.Client, change func(*ecs.DescribeAvailableResourceRequest)) []string {
	t.Helper()
	r := ecs.CreateDescribeAvailableResourceRequest()
	r.ResourceType, r.DestinationResource = "disk", "DataDisk"
	if change != nil {
		change(r)
	}
	reply, err := c.DescribeAvailableResource(r)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, z := range reply.AvailableZones.AvailableZone {
		for _, a := range z.AvailableResources.AvailableResource {
			for _, v := range a.SupportedResources.SupportedResource {
				list = append(list, strings.Join([]string{z.ZoneId, v.Value, v.Status, v.StatusCategory}, " "))
			}
		}
	}
	return list
}

func TestStockIsSoldUnitByUnit(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	if err := s.SetStock(zoneH, "cloud_essd", 2); err != nil {
		t.Fatal(err)
	}
	first := create(t, c, token)
	create(t, c, nil)
	_, err := c.CreateDisk(newCreate(nil))
	wantCode(t, err, 400, "InvalidDataDiskCategory.NotSupported")
	if again := create(t, c, token); again != first {
		t.Errorf("a token used before gives %s, want %s whatever the stock", again, first)
	}
	if err := remove(c, first); err != nil {
		t.Fatal(err)
	}
	_, err = c.CreateDisk(newCreate(nil))
	wantCode(t, err, 400, "InvalidDataDiskCategory.NotSupported")
	create(t, c, func(r *ecs.CreateDiskRequest) { r.ZoneId = zoneI })
	if err := s.SetStock(zoneH, "cloud_essd", ecssim.Unlimited); err != nil {
		t.Fatal(err)
	}
	create(t, c, nil)
}

func TestSoldOutCodes(t *testing.T) {
	status := map[string]int{"InvalidDataDiskCategory.NotSupported": 400, "OperationDenied.NoStock": 403, "Zone.NotOnSale": 403}
	for _, code := range ecssim.SoldOutCodes {
		for how, prepare := range map[string]func(*ecssim.Config){
			"by the Config": func(c *ecssim.Config) { c.SoldOutCode = code },
			"by SellOut":    nil,
		} {
			t.Run(code+" "+how, func(t *testing.T) {
				s := newServer(t, prepare)
				sell := func() error { return s.SetStock(zoneH, "cloud_essd", 0) }
				if prepare == nil {
					sell = func() error { return s.SellOut(zoneH, "cloud_essd", code) }
				}
				if err := sell(); err != nil {
					t.Fatal(err)
				}
				_, err := newClient(t, s).CreateDisk(newCreate(nil))
				wantCode(t, err, status[code], code)
			})
		}
	}
}

func TestAvailableResourceSaysWhatCreateDiskDoes(t *testing.T) {
	s := newServer(t, func(c *ecssim.Config) {
		c.Offers = map[string][]string{zoneH: {"cloud_ssd", "cloud_essd"}, zoneI: {"cloud_essd", "cloud_essd_entry"}}
		c.Instances = append(c.Instances, ecssim.Instance{ID: "i-3", Zone: zoneI, Type: "ecs.u1-c1m4.xlarge"})
	})
	if err := s.SetStock(zoneH, "cloud_ssd", 0); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, s)
	soldOut, inStock := " SoldOut WithoutStock", " Available WithStock"
	for _, tt := range []struct {
		name   string
		change func(*ecs.DescribeAvailableResourceRequest)
		want   []string
	}{
		{"all zones", nil, []string{zoneH + " cloud_ssd" + soldOut, zoneH + " cloud_essd" + inStock, zoneI + " cloud_essd" + inStock, zoneI + " cloud_essd_entry" + inStock}},
		{"one zone", func(r *ecs.DescribeAvailableResourceRequest) { r.ZoneId = zoneH }, []string{zoneH + " cloud_ssd" + soldOut, zoneH + " cloud_essd" + inStock}},
		{"one category", func(r *ecs.DescribeAvailableResourceRequest) { r.DataDiskCategory = "cloud_ssd" }, []string{zoneH + " cloud_ssd" + soldOut}},
		{"a type that does not take entry disks", func(r *ecs.DescribeAvailableResourceRequest) { r.ZoneId, r.InstanceType = zoneI, "ecs.g6.large" }, []string{zoneI + " cloud_essd" + inStock}},
		{"the region", func(r *ecs.DescribeAvailableResourceRequest) { r.Scope = "Region" }, []string{" cloud_regional_disk_auto" + inStock}},
		{"a type that takes entry disks", func(r *ecs.DescribeAvailableResourceRequest) { r.ZoneId, r.InstanceType = zoneI, "ecs.u1-c1m4.xlarge" }, []string{zoneI + " cloud_essd" + inStock, zoneI + " cloud_essd_entry" + inStock}},
		{"zones", func(r *ecs.DescribeAvailableResourceRequest) { r.DestinationResource = "Zone" }, []string{zoneH + " " + zoneH + inStock, zoneI + " " + zoneI + inStock}},
		{"an instance type", func(r *ecs.DescribeAvailableResourceRequest) {
			r.DestinationResource, r.InstanceType, r.ZoneId = "InstanceType", "ecs.u1-c1m4.xlarge", zoneH
		}, []string{zoneH + " ecs.u1-c1m4.xlarge" + inStock}},
		{"nothing", func(r *ecs.DescribeAvailableResourceRequest) { r.DataDiskCategory = "cloud_auto" }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := available(t, c, tt.change); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for _, zone := range []string{zoneH, zoneI} {
		for _, category := range []string{"cloud_ssd", "cloud_essd", "cloud_essd_entry", "cloud_efficiency"} {
			_, err := c.CreateDisk(newCreate(with(kind(category, "", 20), func(r *ecs.CreateDiskRequest) { r.ZoneId = zone })))
			offered := slices.Contains(available(t, c, nil), zone+" "+category+inStock)
			if (err == nil) != offered {
				t.Errorf("%s in %s: offered %v, but CreateDisk says %v", category, zone, offered, err)
			}
		}
	}
}

func TestAvailableResourceShowsSizeLimits(t *testing.T) {
	r := ecs.CreateDescribeAvailableResourceRequest()
	r.ResourceType, r.DestinationResource, r.DataDiskCategory = "disk", "DataDisk", "cloud_ssd"
	got, err := newClient(t, newServer(t, nil)).DescribeAvailableResource(r)
	if err != nil {
		t.Fatal(err)
	}
	v := got.AvailableZones.AvailableZone[0].AvailableResources.AvailableResource[0].SupportedResources.SupportedResource[0]
	if v.Min != 20 || v.Max != 32768 || v.Unit != "GiB" {
		t.Errorf("limits %+v, want 20 to 32768 GiB", v)
	}
}

func TestAvailableResourceRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*ecs.DescribeAvailableResourceRequest)
		status int
		code   string
	}{
		{"no destination", func(r *ecs.DescribeAvailableResourceRequest) { r.DestinationResource = "" }, 400, "MissingParameter"},
		{"an unknown destination", func(r *ecs.DescribeAvailableResourceRequest) { r.DestinationResource = "Moon" }, 404, "Invalid.DestinationResource"},
		{"an unknown kind", func(r *ecs.DescribeAvailableResourceRequest) { r.ResourceType = "ship" }, 404, "Invalid.ResourceType"},
		{"disks of no type", func(r *ecs.DescribeAvailableResourceRequest) { r.ResourceType = "instance" }, 400, "MissingParameter"},
		{"an unknown type", func(r *ecs.DescribeAvailableResourceRequest) { r.InstanceType = "ecs.none.large" }, 404, "InvalidResourceId.NotFound"},
		{"an unknown charge", func(r *ecs.DescribeAvailableResourceRequest) { r.InstanceChargeType = "Free" }, 400, "Invalid.InstanceChargeType"},
		{"an unknown zone", func(r *ecs.DescribeAvailableResourceRequest) { r.ZoneId = "cn-hangzhou-z" }, 400, "Invalid.Param"},
		{"an unknown scope", func(r *ecs.DescribeAvailableResourceRequest) { r.Scope = "World" }, 400, "Invalid.Param"},
		{"an unknown region", func(r *ecs.DescribeAvailableResourceRequest) { r.RegionId = "cn-nowhere" }, 404, "Invalid.RegionId"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ecs.CreateDescribeAvailableResourceRequest()
			r.ResourceType, r.DestinationResource = "disk", "DataDisk"
			tt.change(r)
			_, err := newClient(t, newServer(t, nil)).DescribeAvailableResource(r)
			wantCode(t, err, tt.status, tt.code)
		})
	}
}

func TestSetStockNamesWhatIsWrong(t *testing.T) {
	s := newServer(t, nil)
	for _, tt := range []struct {
		err     error
		field   string
		allowed string
	}{
		{s.SetStock("cn-hangzhou-z", "cloud_ssd", 0), "zone", zoneH},
		{s.SetStock(zoneH, "cloud_fast", 0), "category", "cloud_ssd"},
		{s.SetStock(zoneH, "cloud_regional_disk_auto", 0), "category", "cloud_ssd"},
		{s.SetStock("", "cloud_ssd", 0), "category", "cloud_regional_disk_auto"},
		{s.SellOut(zoneH, "cloud_ssd", "Gone"), "code", "Zone.NotOnSale"},
	} {
		var wrong *ecssim.ConfigError
		if !errors.As(tt.err, &wrong) || wrong.Field != tt.field || !strings.Contains(wrong.Allowed, tt.allowed) {
			t.Errorf("error %v, want one that names %s and allows %s", tt.err, tt.field, tt.allowed)
		}
	}
}

func TestZonesAndRegions(t *testing.T) {
	s, c := newServerAndClient(t, func(c *ecssim.Config) { c.Offers = map[string][]string{zoneI: {"cloud_essd"}} })
	if err := s.SetStock(zoneI, "cloud_essd", 0); err != nil {
		t.Fatal(err)
	}
	zones, err := c.DescribeZones(ecs.CreateDescribeZonesRequest())
	if err != nil {
		t.Fatal(err)
	}
	if len(zones.Zones.Zone) != 2 || zones.Zones.Zone[0].ZoneId != zoneH {
		t.Fatalf("zones %+v, want %s and %s", zones.Zones.Zone, zoneH, zoneI)
	}
	second := zones.Zones.Zone[1]
	if got := second.AvailableDiskCategories.DiskCategories; !slices.Equal(got, []string{"cloud_essd"}) {
		t.Errorf("categories of %s: %v, want cloud_essd, sold out or not", zoneI, got)
	}
	if got := second.AvailableResources.ResourcesInfo[0].DataDiskCategories.SupportedDataDiskCategory; !slices.Equal(got, []string{"cloud_essd"}) {
		t.Errorf("data disk categories of %s: %v, want cloud_essd", zoneI, got)
	}
	brief := ecs.CreateDescribeZonesRequest()
	brief.Verbose = "false"
	zones, err = c.DescribeZones(brief)
	if err != nil {
		t.Fatal(err)
	}
	if got := zones.Zones.Zone[1].AvailableResources.ResourcesInfo; len(got) != 0 {
		t.Errorf("not verbose: %v, want no resources", got)
	}
	regions, err := c.DescribeRegions(ecs.CreateDescribeRegionsRequest())
	if err != nil {
		t.Fatal(err)
	}
	if got := regions.Regions.Region; len(got) != 1 || got[0].RegionId != region {
		t.Errorf("regions %+v, want %s", got, region)
	}
}
