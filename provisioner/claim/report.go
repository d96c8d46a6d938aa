package claim

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/request"
)

// Reasons of events about claims, upstream csi-provisioner's where it has one.
const (
	// ReasonFailed is that of attempts that ended without a volume.
	ReasonFailed        = "ProvisioningFailed"
	reasonCleanupFailed = "ProvisioningCleanupFailed"
	reasonSucceeded     = "ProvisioningSucceeded"
	reasonTopology      = "ProvisioningTopology"
	reasonPopulator     = "ExternalPopulator"
	reasonMigrated      = "ProvisioningRefused"
	reasonHeld          = "ProvisioningHeld"
	reasonTied          = "ProvisioningTied"
	reasonEnded         = "ProvisioningEnded"
	reasonNotEnded      = "ProvisioningNotEnded"
	reasonVolumeKept    = "VolumeKept"
)

// reportSaved reports that the claim's volume is saved. A volume that would have been lost is counted: its claim is gone, or an earlier process
// has asked for it.
func (t *task) reportSaved(pv *v1.PersistentVolume) {
	if claim := t.cached(); t.recovered || claim == nil || claim.DeletionTimestamp != nil {
		t.metrics.saved.Inc()
	}
	t.Events.Eventf(t.request.Claim, v1.EventTypeNormal, reasonSucceeded, "Successfully provisioned volume %s", pv.Name)
	t.metrics.provisioned(t.request.Claim, t.began, t.Now())
}

// reportKept reports that a volume without a PersistentVolume, which the claim does not need, is kept for good.
func (t *task) reportKept(id string, why error) {
	asked := t.request
	klog.InfoS("A volume that no claim needs is kept, because it may hold data; disk-provisioner audit finds it",
		"claim", klog.KObj(asked.Claim), "claimUID", t.uid, "volume", asked.Create.Name, "disk", id, "why", why)
	t.Events.Eventf(asked.Claim, v1.EventTypeWarning, reasonVolumeKept,
		"disk %s was made for this claim, and no PersistentVolume stands for it; it is kept, because it may hold data: %v; disk-provisioner audit finds it", id, why)
}

// reportEnd reports that the open request is ended as an operator has asked.
func (t *task) reportEnd(reason string) {
	asked, disk := t.request, t.volume.GetVolumeId()
	what := "if that volume exists, it"
	if disk != "" {
		what = "its disk " + disk
	}
	klog.InfoS("An operator has ended a record of the journal; if its volume exists, it has no PersistentVolume",
		"claim", klog.KObj(asked.Claim), "claimUID", t.uid, "volume", asked.Create.Name, "disk", disk, "class", asked.Class.Name, "reason", reason)
	t.Events.Eventf(asked.Claim, v1.EventTypeWarning, reasonEnded,
		"an operator has ended the record of %s: %s; %s has no PersistentVolume, and disk-provisioner audit finds it", asked.Create.Name, reason, what)
}

// rejectEnd reports that the open request stays although an operator has asked to end it.
func (t *task) rejectEnd(reason, why string) {
	t.Syncer.rejectEnd(t.uid, t.request, reason, why)
}

func (s *Syncer) rejectEnd(uid types.UID, open *request.Request, reason, why string) {
	s.Journal.RejectEnd(string(uid))
	klog.InfoS("An operator's request to end a record of the journal is rejected", "claimUID", uid, "reason", reason, "why", why)
	if open != nil {
		s.Events.Eventf(open.Claim, v1.EventTypeWarning, reasonNotEnded, "an operator's request to end the record of %s is rejected: %s", open.Create.Name, why)
	}
}

// reportMigration emits an event on a claim that Kubernetes has migrated from an in-tree plugin to this driver: it is not provisioned, because
// the parameters of its class are those of another driver.
func (s *Syncer) reportMigration(claim *v1.PersistentVolumeClaim) {
	if claim.Annotations[request.AnnMigratedTo] != s.DriverName || request.ProvisionerOf(claim) == s.DriverName || claim.Spec.VolumeName != "" {
		return
	}
	s.Events.Eventf(claim, v1.EventTypeWarning, reasonMigrated,
		"the claim is for the in-tree plugin %s and marked as migrated to driver %s, which has no in-tree predecessor; create the claim again with a class whose provisioner is %s",
		request.ProvisionerOf(claim), s.DriverName, s.DriverName)
}

// reportPopulator emits an event on a claim whose volume comes from a volume populator.
func (s *Syncer) reportPopulator(claim *v1.PersistentVolumeClaim) {
	if request.HasPopulator(claim) {
		source := request.DataSource(claim)
		s.Events.Eventf(claim, v1.EventTypeNormal, reasonPopulator, "the volume is left to the populator of %s %s", source.Kind, source.Name)
	}
}
