package actions

import (
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// readPage reads the paging parameters of a read. Half of the page comes if the
// fault of the call says so.
func readPage(req *Request, limits wire.Paging) (wire.Page, *wire.Refusal) {
	pg, no := req.Params.Page(limits, req.Rules.PageTokenLife, req.Now)
	pg.Half = req.Fault.Do == faults.Partial
	return pg, no
}

// readTokenPage is readPage of a read that pages by token alone.
func readTokenPage(req *Request, limits wire.Paging) (wire.Page, *wire.Refusal) {
	pg, no := req.Params.TokenPage(limits, req.Rules.PageTokenLife, req.Now)
	pg.Half = req.Fault.Do == faults.Partial
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
