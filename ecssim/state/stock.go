package state

import (
	"cmp"
	"maps"
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
)

// SoldOutCodes are the codes that ECS is known to refuse a disk with when
// there is no stock.
var SoldOutCodes = []string{"InvalidDataDiskCategory.NotSupported", "OperationDenied.NoStock", "Zone.NotOnSale"}

// Unlimited is the number of units of a category that never sells out.
const Unlimited = -1

// stock is what each zone has to sell: zone, "" for the region, to category.
// A category that is not there is not on offer. CreateDisk and
// DescribeAvailableResource go by the same table.
type stock map[string]map[string]*categoryStock

// categoryStock is the stock of one category in one zone.
type categoryStock struct {
	units int    // disks that can still be made; Unlimited
	code  string // of the refusal when there are none
}

func newStock(c Config) stock {
	s := stock{}
	for _, zone := range append([]string{""}, c.Zones...) {
		s[zone] = map[string]*categoryStock{}
		offers, ok := c.Offers[zone]
		if !ok {
			offers = ordinaryCategories(zone == "")
		}
		for _, name := range offers {
			s[zone][name] = &categoryStock{Unlimited, c.SoldOutCode}
		}
	}
	return s
}

func ordinaryCategories(regional bool) []string {
	return slices.DeleteFunc(CategoryNames(regional), func(name string) bool { return Categories[name].special })
}

// offers returns the categories on offer in a zone.
func (s stock) offers(zone string) []string {
	names := slices.Collect(maps.Keys(s[zone]))
	sortCategories(names)
	return names
}

// SoldOut is the code of a refusal of a category that a zone has none of, empty
// if it has some.
func (r *Region) SoldOut(zone, category string) string {
	cell := r.stock[zone][category]
	switch {
	case cell == nil:
		return SoldOutCodes[0]
	case cell.units == 0:
		return cell.code
	}
	return ""
}

// TakeStock takes one unit of a category that is not sold out.
func (r *Region) TakeStock(zone, category string) {
	if cell := r.stock[zone][category]; cell.units > 0 {
		cell.units--
	}
}

// SetStock changes the stock of a category, which from now on is on offer. An
// empty code is that of the Config. The error is a *config.Error.
func (r *Region) SetStock(level StockLevel) error {
	if level.Zone != "" && !slices.Contains(r.config.Zones, level.Zone) {
		return config.Invalid("zone", level.Zone, config.OneOf(r.config.Zones)+`, or "" for regional categories`)
	}
	if spec, ok := Categories[level.Category]; !ok || spec.Regional != (level.Zone == "") {
		return config.Invalid("category", level.Category, config.OneOf(CategoryNames(level.Zone == "")))
	}
	cell, err := r.stockOfUnits(level.Units, level.Code)
	if err != nil {
		return err
	}
	r.stock[level.Zone][level.Category] = &cell
	return nil
}

// SetZoneStock is setStock for every category that a zone offers.
func (r *Region) SetZoneStock(zone string, units int, code string) error {
	if !slices.Contains(r.config.Zones, zone) {
		return config.Invalid("zone", zone, config.OneOf(r.config.Zones))
	}
	cell, err := r.stockOfUnits(units, code)
	if err != nil {
		return err
	}
	for category := range r.stock[zone] {
		own := cell
		r.stock[zone][category] = &own
	}
	return nil
}

// stockOfUnits is the stock of a category; an empty code is that of the Config.
func (r *Region) stockOfUnits(units int, code string) (categoryStock, error) {
	code = cmp.Or(code, r.config.SoldOutCode)
	if !slices.Contains(SoldOutCodes, code) {
		return categoryStock{}, config.Invalid("code", code, config.OneOf(SoldOutCodes))
	}
	return categoryStock{max(units, Unlimited), code}, nil
}

// StockLevel is the stock of one category in one zone.
type StockLevel struct {
	Zone     string `json:"zone"` // empty for regional categories
	Category string `json:"category"`
	Units    int    `json:"units"` // disks that can still be made; less than 0 is no limit
	Code     string `json:"code"`  // what CreateDisk answers when there are none
}

// StockOf lists the stock of a zone, the common categories first.
func (r *Region) StockOf(zone string) []StockLevel {
	var list []StockLevel
	for _, category := range r.stock.offers(zone) {
		cell := r.stock[zone][category]
		list = append(list, StockLevel{zone, category, cell.units, cell.code})
	}
	return list
}

// StockLevels lists the stock, zone by zone in the order of the Config, the
// regional categories last.
func (r *Region) StockLevels() []StockLevel {
	var list []StockLevel
	for _, zone := range append(slices.Clone(r.config.Zones), "") {
		list = append(list, r.StockOf(zone)...)
	}
	return list
}
