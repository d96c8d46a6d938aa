package actions

import (
	"fmt"
	"maps"
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// soldOut are the refusals of what is sold out, by their codes.
var soldOut = map[string]wire.Refusal{
	state.SoldOutCodes[0]: *wire.Refuse(400, state.SoldOutCodes[0], "The specified data disk category is not supported: 'DataDisk.n.Category' is not valid in this region."),
	state.SoldOutCodes[1]: *wire.Refuse(403, state.SoldOutCodes[1], "The resource is out of stock in the specified zone. Please try other types, or choose other regions and zones."),
	state.SoldOutCodes[2]: *wire.Refuse(403, state.SoldOutCodes[2], "The resource in the specified zone is no longer available for sale. Please try other regions and zones."),
}

// checkStock refuses a disk of a category that is not on offer or sold out.
func checkStock(req *Request, zone, category string) *wire.Refusal {
	if code := req.Region.SoldOut(zone, category); code != "" {
		no := soldOut[code]
		return &no
	}
	return nil
}

// Quotas are what the account may have at most. What is not mentioned, or
// zero, has no limit.
type Quotas struct {
	// Disks is the number of data disks; more are refused with
	// QuotaExceed.PostPaidDisk.
	Disks int `json:"disks"`
	// GiB is the capacity by category, in all zones together; more is refused
	// with QuotaExceeded.PostpaidDataDiskCapacity.
	GiB map[string]int `json:"gib,omitempty"`
	// ZoneGiB is the capacity by category in each zone; more is refused with
	// QuotaExceed.DiskCapacity.
	ZoneGiB map[string]int `json:"zoneGib,omitempty"`
}

// Check refuses quotas of what there is not, and below zero. The error is a
// *config.Error.
func (q Quotas) Check() error {
	if q.Disks < 0 {
		return config.Invalid("disks", fmt.Sprint(q.Disks), "a number of disks, zero for no limit")
	}
	for field, limits := range map[string]map[string]int{"gib": q.GiB, "zoneGib": q.ZoneGiB} {
		for _, category := range slices.Sorted(maps.Keys(limits)) {
			if _, ok := state.Categories[category]; !ok {
				return config.Invalid(field, category, config.OneOf(slices.Sorted(maps.Keys(state.Categories))))
			}
			if limits[category] < 0 {
				return config.Invalid(field, fmt.Sprint(limits[category]), "a number of GiB, zero for no limit")
			}
		}
	}
	return nil
}

// checkQuota refuses more disks than the account may have.
func checkQuota(req *Request) *wire.Refusal {
	made, deleted := req.Region.DisksMade()
	if q := req.Rules.Quotas.Disks; q > 0 && made-deleted >= q {
		return wire.Refuse(403, "QuotaExceed.PostPaidDisk", "Living postpaid disks quota exceeded: %d.", q)
	}
	return nil
}

// checkCapacity refuses more GiB of a category than the account may have: in
// a zone, "" standing for the region, or in all.
func checkCapacity(req *Request, zone, category string, more int) *wire.Refusal {
	q := req.Rules.Quotas
	all, here := q.GiB[category], q.ZoneGiB[category]
	if all == 0 && here == 0 {
		return nil
	}
	var used, usedHere int
	for _, d := range req.Region.AllDisks() {
		if d.Category == category && !d.System {
			used += d.Size
			if d.Zone == zone {
				usedHere += d.Size
			}
		}
	}
	switch {
	case here > 0 && usedHere+more > here:
		return wire.Refuse(400, "QuotaExceed.DiskCapacity", "The used capacity of disk type %s has exceeded the quota in the zone %q: %d GiB of %d.", category, zone, usedHere+more, here)
	case all > 0 && used+more > all:
		return wire.Refuse(403, "QuotaExceeded.PostpaidDataDiskCapacity", "The capacity of pay-as-you-go data disks of type %s exceeds the quota: %d GiB of %d.", category, used+more, all)
	}
	return nil
}
