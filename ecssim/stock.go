package ecssim

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// SoldOutCodes are the codes that ECS is known to refuse a disk with when
// there is no stock.
var SoldOutCodes = []string{"InvalidDataDiskCategory.NotSupported", "OperationDenied.NoStock", "Zone.NotOnSale"}

// Unlimited is the number of units of a category that never sells out.
const Unlimited = -1

// stock is what each zone has to sell: zone, "" for the region, to category.
// A category that is not there is not on offer. CreateDisk and
// DescribeAvailableResource go by the same table.
type stock map[string]map[string]*shelfStock

// shelfStock is the stock of one category in one zone.
type shelfStock struct {
	units int    // disks that can still be made; Unlimited
	code  string // of the refusal when there are none
}

func newStock(c Config) stock {
	s := stock{}
	for _, zone := range append([]string{""}, c.Zones...) {
		s[zone] = map[string]*shelfStock{}
		offers, ok := c.Offers[zone]
		if !ok {
			offers = ordinaryCategories(zone == "")
		}
		for _, name := range offers {
			s[zone][name] = &shelfStock{Unlimited, c.SoldOutCode}
		}
	}
	return s
}

func ordinaryCategories(regional bool) []string {
	return slices.DeleteFunc(CategoryNames(regional), func(name string) bool { return categories[name].special })
}

// offers returns the categories on offer in a zone.
func (s stock) offers(zone string) []string {
	names := slices.Collect(maps.Keys(s[zone]))
	sortCategories(names)
	return names
}

// check refuses what is not on offer or sold out.
func (s stock) check(zone, category string) *wire.Refusal {
	cell := s[zone][category]
	if cell == nil || cell.units == 0 {
		no := soldOut[SoldOutCodes[0]]
		if cell != nil {
			no = soldOut[cell.code]
		}
		return &no
	}
	return nil
}

// take takes one unit, or refuses as check does.
func (s stock) take(zone, category string) *wire.Refusal {
	if no := s.check(zone, category); no != nil {
		return no
	}
	if cell := s[zone][category]; cell.units > 0 {
		cell.units--
	}
	return nil
}

var soldOut = map[string]wire.Refusal{
	SoldOutCodes[0]: *wire.Refuse(400, SoldOutCodes[0], "The specified data disk category is not supported: 'DataDisk.n.Category' is not valid in this region."),
	SoldOutCodes[1]: *wire.Refuse(403, SoldOutCodes[1], "The resource is out of stock in the specified zone. Please try other types, or choose other regions and zones."),
	SoldOutCodes[2]: *wire.Refuse(403, SoldOutCodes[2], "The resource in the specified zone is no longer available for sale. Please try other regions and zones."),
}

// SetStock says how many more disks of a category a zone sells: 0 is sold
// out, less than 0 is no limit. Zone "" stands for the regional categories. A
// category that was not on offer there is from now on. Deleting a disk gives
// nothing back.
func (s *Server) SetStock(zone, category string, units int) error {
	return s.SetStockLevel(StockLevel{Zone: zone, Category: category, Units: units})
}

// SellOut is SetStock with no units, and the code, one of SoldOutCodes, that
// CreateDisk then answers.
func (s *Server) SellOut(zone, category, code string) error {
	if !slices.Contains(SoldOutCodes, code) {
		return config.Invalid("code", code, config.OneOf(SoldOutCodes))
	}
	return s.SetStockLevel(StockLevel{Zone: zone, Category: category, Code: code})
}

// SetStockLevel is SetStock with the code, one of SoldOutCodes, that CreateDisk
// answers once there are no units; empty is Config.SoldOutCode.
func (s *Server) SetStockLevel(level StockLevel) (err error) {
	s.look(func(time.Time) { err = s.setStockLevel(level) })
	return err
}

func (s *Server) setStockLevel(level StockLevel) error {
	if level.Zone != "" && !slices.Contains(s.config.Zones, level.Zone) {
		return config.Invalid("zone", level.Zone, config.OneOf(s.config.Zones)+`, or "" for regional categories`)
	}
	if spec, ok := categories[level.Category]; !ok || spec.regional != (level.Zone == "") {
		return config.Invalid("category", level.Category, config.OneOf(CategoryNames(level.Zone == "")))
	}
	cell, err := s.stockCell(level.Units, level.Code)
	if err != nil {
		return err
	}
	s.stock[level.Zone][level.Category] = &cell
	return nil
}

// SetZoneStock is SetStockLevel for every category that a zone offers.
func (s *Server) SetZoneStock(zone string, units int, code string) (err error) {
	s.look(func(time.Time) { err = s.setZoneStock(zone, units, code) })
	return err
}

func (s *Server) setZoneStock(zone string, units int, code string) error {
	if !slices.Contains(s.config.Zones, zone) {
		return config.Invalid("zone", zone, config.OneOf(s.config.Zones))
	}
	cell, err := s.stockCell(units, code)
	if err != nil {
		return err
	}
	for category := range s.stock[zone] {
		own := cell
		s.stock[zone][category] = &own
	}
	return nil
}

// stockCell is the stock of a category; an empty code is Config.SoldOutCode.
func (s *Server) stockCell(units int, code string) (shelfStock, error) {
	if code == "" {
		code = s.config.SoldOutCode
	}
	if !slices.Contains(SoldOutCodes, code) {
		return shelfStock{}, config.Invalid("code", code, config.OneOf(SoldOutCodes))
	}
	return shelfStock{max(units, Unlimited), code}, nil
}

// Stock returns the stock of every category on offer, zone by zone in the
// order of the Config, the regional ones last.
func (s *Server) Stock() []StockLevel {
	return seen(s, func(time.Time) []StockLevel { return s.levels() })
}

// Zones returns the IDs of the region's zones.
func (s *Server) Zones() []string {
	return seen(s, func(time.Time) []string { return slices.Clone(s.config.Zones) })
}

// StockLevel is the stock of one category in one zone.
type StockLevel struct {
	Zone     string `json:"zone"` // empty for regional categories
	Category string `json:"category"`
	Units    int    `json:"units"` // disks that can still be made; less than 0 is no limit
	Code     string `json:"code"`  // what CreateDisk answers when there are none
}

// levels lists the stock, zone by zone in the order of the Config.
func (s *Server) levels() []StockLevel {
	var list []StockLevel
	for _, zone := range append(slices.Clone(s.config.Zones), "") {
		for _, category := range s.stock.offers(zone) {
			cell := s.stock[zone][category]
			list = append(list, StockLevel{zone, category, cell.units, cell.code})
		}
	}
	return list
}
