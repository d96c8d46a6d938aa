package actions

import (
	"iter"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
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

// lagBehind sets a read back in time if its fault says so.
func (req *Request) lagBehind() {
	if req.Fault.Do == faults.Stale && req.Action.lags {
		req.stale = true
		req.Now = req.Now.Add(-req.Fault.Lag)
	}
}

// view is what a read finds: what there is or, if it is stale, what there was.
func view(req *Request) state.View {
	if req.stale {
		return req.Region.AsOf(req.Now)
	}
	return req.Region.Present()
}

// shown leaves out what the fault of a read hides.
func shown[T any](req *Request, list iter.Seq[T], id func(T) string) iter.Seq[T] {
	if req.Fault.Do != faults.Hidden {
		return list
	}
	return func(yield func(T) bool) {
		for v := range list {
			if !req.Fault.Hides(id(v)) && !yield(v) {
				return
			}
		}
	}
}

func disksFor(req *Request, ids []string, all bool) iter.Seq[*state.Disk] {
	return shown(req, view(req).Disks(ids, all), func(d *state.Disk) string { return d.ID })
}

func snapshotsFor(req *Request, ids []string, all bool) iter.Seq[*state.Snapshot] {
	return shown(req, view(req).Snapshots(ids, all), func(n *state.Snapshot) string { return n.ID })
}

func groupsFor(req *Request) iter.Seq[*state.SnapshotGroup] {
	return shown(req, view(req).Groups(), func(g *state.SnapshotGroup) string { return g.ID })
}

// instancesFor returns instances in their order, the first made first.
func instancesFor(req *Request) iter.Seq[*state.Instance] {
	return shown(req, view(req).Instances(), func(i *state.Instance) string { return i.ID })
}
