package ecssim

import (
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// readPage reads the paging parameters of a read. Half of the page comes if the
// fault of the call says so.
func (s *Server) readPage(x *exchange, limits wire.Paging) (wire.Page, *wire.Refusal) {
	pg, no := x.Params.Page(limits, s.config.PageTokenLife, x.now)
	pg.Half = x.fault.Do == faults.Partial
	return pg, no
}

// readTokenPage is readPage of a read that pages by token alone.
func (s *Server) readTokenPage(x *exchange, limits wire.Paging) (wire.Page, *wire.Refusal) {
	pg, no := x.Params.TokenPage(limits, s.config.PageTokenLife, x.now)
	pg.Half = x.fault.Do == faults.Partial
	return pg, no
}

// orDryRun returns a refusal, or if there is none the one that a dry run
// that found nothing wrong ends with.
func orDryRun(no *wire.Refusal) *wire.Refusal {
	if no != nil {
		return no
	}
	return wire.Refuse(400, "DryRunOperation", "Request validation has been passed with DryRun flag set.")
}
