package ecs

import (
	"net/http"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// TestAZoneThatIsSoldOutHasNoDisks: ECS may show the disks of such a zone as available.
func TestAZoneThatIsSoldOutHasNoDisks(t *testing.T) {
	for _, state := range []string{`"Status":"SoldOut"`, `"Status":"Available","StatusCategory":"WithoutStock"`} {
		c := newClient(t, Config{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			const disks = `"AvailableResources":{"AvailableResource":[{"Type":"DataDisk","SupportedResources":{"SupportedResource":[{"Value":"cloud_essd","Status":"Available","StatusCategory":"WithStock","Min":20,"Max":65536}]}}]}`
			return answerWith(r, 200, `{"RequestId":"R","AvailableZones":{"AvailableZone":[{"ZoneId":"cn-hangzhou-h",`+state+`,`+disks+`},{"ZoneId":"cn-hangzhou-i","Status":"Available","StatusCategory":"WithStock",`+disks+`}]}}`), nil
		})})
		offers, err := c.Offers(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if len(offers["cn-hangzhou-h"]) > 0 || offers["cn-hangzhou-i"]["cloud_essd"] != (disk.Range{Least: 20, Most: 65536}) {
			t.Errorf("zone %s: offers %v", state, offers)
		}
	}
}
