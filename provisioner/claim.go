package provisioner

import (
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// notifyMigration tells the owner of a claim that Kubernetes has migrated from
// an in-tree plugin to this driver why nothing comes of it: no in-tree plugin was
// ever this driver's, so its class has parameters that mean nothing here.
func (p *Provisioner) notifyMigration(claim *v1.PersistentVolumeClaim) {
	if claim.Annotations[request.AnnMigratedTo] != p.config.DriverName || request.ProvisionerOf(claim) == p.config.DriverName || claim.Spec.VolumeName != "" {
		return
	}
	p.events.Eventf(claim, v1.EventTypeWarning, reasonMigration,
		"the claim is for the in-tree plugin %s and marked as migrated to driver %s, which has no in-tree predecessor; make it anew with a class whose provisioner is %s",
		request.ProvisionerOf(claim), p.config.DriverName, p.config.DriverName)
}

// notifyPopulator tells the owner of a claim for whom its volume is left.
func (p *Provisioner) notifyPopulator(claim *v1.PersistentVolumeClaim) {
	if request.HasPopulator(claim) {
		source := request.DataSource(claim)
		p.events.Eventf(claim, v1.EventTypeNormal, reasonPopulator, "the volume is left to the populator of %s %s", source.Kind, source.Name)
	}
}
