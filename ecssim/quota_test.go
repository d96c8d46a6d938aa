package ecssim_test

import (
	"strings"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func TestQuotasOfTheAccount(t *testing.T) {
	s, c := newServerAndClient(t, func(c *ecssim.Config) {
		c.Quotas = ecssim.Quotas{Disks: 4, GiB: map[string]int{"cloud_essd": 100}, ZoneGiB: map[string]int{"cloud_essd": 60}}
	})
	in := func(zone, category string, size int) error {
		_, err := c.CreateDisk(newCreate(func(r *ecs.CreateDiskRequest) {
			r.ZoneId, r.DiskCategory, r.Size = zone, category, requests.NewInteger(size)
		}))
		return err
	}
	grow := func(id string, size int) error {
		r := ecs.CreateResizeDiskRequest()
		r.DiskId, r.NewSize = id, requests.NewInteger(size)
		_, err := c.ResizeDisk(r)
		return err
	}
	if err := s.SetStock(zoneH, "cloud_essd", 5); err != nil {
		t.Fatal(err)
	}
	first := create(t, c, nil)
	if err := in(zoneH, "cloud_essd", 40); err != nil {
		t.Fatal(err)
	}
	wantCode(t, in(zoneH, "cloud_essd", 20), 400, "QuotaExceed.DiskCapacity")
	wantCode(t, grow(first, 21), 400, "QuotaExceed.DiskCapacity")
	if err := in(zoneI, "cloud_essd", 40); err != nil {
		t.Errorf("in the other zone: %v", err)
	}
	wantCode(t, in(zoneI, "cloud_essd", 20), 403, "QuotaExceeded.PostpaidDataDiskCapacity")
	if err := in(zoneH, "cloud_ssd", 500); err != nil {
		t.Errorf("of another category: %v", err)
	}
	wantCode(t, in(zoneH, "cloud_ssd", 20), 403, "QuotaExceed.PostPaidDisk")
	for _, level := range s.State().Stock {
		if level.Zone == zoneH && level.Category == "cloud_essd" && level.Units != 3 {
			t.Errorf("%d units are left, want 3: refusals take none", level.Units)
		}
	}
	if status, _ := admin(t, s, "POST", "/_sim/quotas", `{"disks":5}`); status != 200 {
		t.Errorf("status %d", status)
	}
	if err := in(zoneH, "cloud_essd", 500); err != nil {
		t.Errorf("with more quota: %v", err)
	}
	for body, mentions := range map[string]string{`{"disks":-1}`: "zero for no limit", `{"gib":{"cloud_x":1}}`: "cloud_essd", `{"zoneGib":{"cloud":-1}}`: "zero for no limit", `{"disk":1}`: "disks, gib, zoneGib"} {
		if status, text := admin(t, s, "POST", "/_sim/quotas", body); status != 400 || !strings.Contains(text, mentions) {
			t.Errorf("%s: %d %s, want 400 that mentions %q", body, status, text, mentions)
		}
	}
}
