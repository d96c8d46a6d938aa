package admin

import (
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/config"
)

// stockRoutes change what zones have to sell.
//
//	stock: zone ("" for regional categories), category, units (disks; 0 is sold
//	       out, less than 0 no limit), code (optional, one of SoldOutCodes)
//	zone:  zone, units, code: the same for every category that it offers
func stockRoutes() []route {
	return []route{
		get("stock", func(s *ecssim.Server) any { return s.Stock() }),
		change("POST", "stock", setStock),
		change("POST", "zone", setZoneStock),
	}
}

const unitsAllowed = "a number of disks: 0 is sold out, less than 0 is no limit"

type stockBody struct {
	Zone     *string `json:"zone"`
	Category *string `json:"category"`
	Units    *int    `json:"units"`
	Code     string  `json:"code"`
}

func setStock(s *ecssim.Server, want stockBody) (any, error) {
	switch {
	case want.Zone == nil:
		return nil, config.Invalid("zone", "", config.OneOf(s.Zones())+`, or "" for regional categories`)
	case want.Category == nil:
		return nil, config.Invalid("category", "", config.OneOf(ecssim.CategoryNames(*want.Zone == "")))
	case want.Units == nil:
		return nil, config.Invalid("units", "", unitsAllowed)
	}
	level := ecssim.StockLevel{Zone: *want.Zone, Category: *want.Category, Units: *want.Units, Code: want.Code}
	if err := s.SetStockLevel(level); err != nil {
		return nil, err
	}
	return s.Stock(), nil
}

type zoneBody struct {
	Zone  string `json:"zone"`
	Units *int   `json:"units"`
	Code  string `json:"code"`
}

func setZoneStock(s *ecssim.Server, want zoneBody) (any, error) {
	if want.Units == nil {
		return nil, config.Invalid("units", "", unitsAllowed)
	}
	if err := s.SetZoneStock(want.Zone, *want.Units, want.Code); err != nil {
		return nil, err
	}
	return s.Stock(), nil
}
