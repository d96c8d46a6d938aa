package provisioner

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// An operator may end an order whose outcome nobody can prove: see Records.End. The
// request reaches the leader by the journal.

// The reasons of the events that tell of it.
const (
	reasonRecordEnded = "ProvisioningEnded"
	reasonRecordKept  = "ProvisioningNotEnded"
)

// endRequested has an order ended at its next attempt, so that none is under way then.
func (c *Controller) endRequested(claim, reason string) {
	o := c.p.journal.find(types.UID(claim))
	if o == nil {
		klog.InfoS("A record of the journal is not ended as an operator has asked, for nothing is under way for it", "claimUID", claim, "reason", reason)
		c.p.journal.store.RejectEnd(claim)
		return
	}
	c.p.journal.requestEnd(o, reason)
	c.p.look(o.Claim)
}

// errRecordEnded says that an attempt was the last one of its order.
var errRecordEnded = errors.New("an operator has ended it")

// endAsRequested ends an order if an operator has asked for that, with an error then.
// One whose volume is known stays, for it is saved as soon as the API server lets us,
// and so does one whose claim wants a volume: it would only begin anew.
func (p *Provisioner) endAsRequested(o *order) error {
	reason := p.journal.takeEndRequest(o)
	switch {
	case reason == "":
		return nil
	case o.made != nil:
		p.keepRecord(o, reason, fmt.Sprintf("volume %s was made and waits for its PersistentVolume", o.made.VolumeId))
		return nil
	case !p.isForgotten(o.Claim):
		p.keepRecord(o, reason, "its claim still wants a volume; delete the claim first")
		return nil
	}
	klog.InfoS("An operator has ended a record of the journal; if its volume exists nothing stands for it",
		"claim", klog.KObj(o.Claim), "claimUID", o.Claim.UID, "volume", o.Create.Name, "class", o.Class.Name, "reason", reason)
	p.events.Eventf(o.Claim, v1.EventTypeWarning, reasonRecordEnded,
		"an operator has ended the record of %s: %s; if that volume exists nothing stands for it, and disk-provisioner audit finds it", o.Create.Name, reason)
	p.journal.close(o.Claim.UID)
	return fmt.Errorf("CreateVolume %s: %w: %s", o.Create.Name, errRecordEnded, reason)
}

// keepRecord tells why an order is not ended as an operator has asked.
func (p *Provisioner) keepRecord(o *order, reason, why string) {
	klog.InfoS("A record of the journal is not ended as an operator has asked",
		"claim", klog.KObj(o.Claim), "claimUID", o.Claim.UID, "volume", o.Create.Name, "reason", reason, "why", why)
	p.events.Eventf(o.Claim, v1.EventTypeWarning, reasonRecordKept, "the record of %s is not ended as an operator has asked: %s", o.Create.Name, why)
	p.journal.store.RejectEnd(string(o.Claim.UID))
}

// requestEnd notes why an order is to be ended.
func (j *orders) requestEnd(o *order, reason string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o.endReason = reason
}

// takeEndRequest returns why an order is to be ended, once; empty if it isn't.
func (j *orders) takeEndRequest(o *order) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	reason := o.endReason
	o.endReason = ""
	return reason
}
