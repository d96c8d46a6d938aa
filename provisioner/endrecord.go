package provisioner

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/attempt"
)

// An operator may end a record of the journal whose outcome can't be determined: see
// Journal.End. The request reaches the leader by the journal.

// endRequested posts an operator's request to the claim's Record.
func (e *executor) endRequested(claim, reason string) {
	if !e.table.Post(types.UID(claim), attempt.EndRequested{Reason: reason}) {
		e.reportEnd(types.UID(claim), attempt.ReportEnd{Reason: reason, Kept: "nothing is under way for it"})
	}
}

// reportEnd reports the outcome of an operator's request.
func (e *executor) reportEnd(claim types.UID, a attempt.ReportEnd) {
	p := e.p
	if a.Kept != "" {
		p.store.RejectEnd(string(claim))
	}
	switch r := a.Request; {
	case r == nil:
		klog.InfoS("An operator's request to end a record of the journal is rejected", "claimUID", claim, "reason", a.Reason, "why", a.Kept)
	case a.Kept != "":
		klog.InfoS("An operator's request to end a record of the journal is rejected",
			"claim", klog.KObj(r.Claim), "claimUID", claim, "volume", r.Create.Name, "reason", a.Reason, "why", a.Kept)
		p.events.Eventf(r.Claim, v1.EventTypeWarning, reasonRecordKept, "an operator's request to end the record of %s is rejected: %s", r.Create.Name, a.Kept)
	default:
		what := "if that volume exists, it"
		if a.Volume != "" {
			what = "its disk " + a.Volume
		}
		klog.InfoS("An operator has ended a record of the journal; if its volume exists, it has no PersistentVolume",
			"claim", klog.KObj(r.Claim), "claimUID", claim, "volume", r.Create.Name, "disk", a.Volume, "class", r.Class.Name, "reason", a.Reason)
		p.events.Eventf(r.Claim, v1.EventTypeWarning, reasonRecordEnded,
			"an operator has ended the record of %s: %s; %s has no PersistentVolume, and disk-provisioner audit finds it", r.Create.Name, a.Reason, what)
	}
}

// reportKept reports a volume that is kept without a PersistentVolume.
func (p *Provisioner) reportKept(a attempt.ReportKept) {
	klog.InfoS("A volume that no claim needs is kept, because it may hold data; disk-provisioner audit finds it",
		"claim", klog.KObj(a.Request.Claim), "claimUID", a.Request.Claim.UID, "volume", a.Request.Create.Name, "disk", a.ID, "why", a.Why)
	p.events.Eventf(a.Request.Claim, v1.EventTypeWarning, reasonVolumeKept,
		"disk %s was made for this claim, and no PersistentVolume stands for it; it is kept, because it may hold data: %v; disk-provisioner audit finds it", a.ID, a.Why)
}
