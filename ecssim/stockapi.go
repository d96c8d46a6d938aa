package ecssim

import (
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
)

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
	if !slices.Contains(state.SoldOutCodes, code) {
		return config.Invalid("code", code, config.OneOf(state.SoldOutCodes))
	}
	return s.SetStockLevel(StockLevel{Zone: zone, Category: category, Code: code})
}

// SetStockLevel is SetStock with the code, one of SoldOutCodes, that CreateDisk
// answers once there are no units; empty is Config.SoldOutCode.
func (s *Server) SetStockLevel(level StockLevel) (err error) {
	s.look(func(time.Time) { err = s.service.Region.SetStock(level) })
	return err
}

// SetZoneStock is SetStockLevel for every category that a zone offers.
func (s *Server) SetZoneStock(zone string, units int, code string) (err error) {
	s.look(func(time.Time) { err = s.service.Region.SetZoneStock(zone, units, code) })
	return err
}

// Stock returns the stock of every category on offer, zone by zone in the
// order of the Config, the regional ones last.
func (s *Server) Stock() []StockLevel {
	return seen(s, func(time.Time) []StockLevel { return s.service.Region.StockLevels() })
}

// Zones returns the IDs of the region's zones.
func (s *Server) Zones() []string { return slices.Clone(s.config.Zones) }
