package actions

import (
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

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
