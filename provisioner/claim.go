package provisioner

import (
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// notifyMigration emits an event on a claim that Kubernetes has migrated from an in-tree
// plugin to this driver: it is not provisioned, because the parameters of its class are
// those of another driver.
func (p *Provisioner) notifyMigration(claim *v1.PersistentVolumeClaim) {
	if claim.Annotations[request.AnnMigratedTo] != p.config.DriverName || request.ProvisionerOf(claim) == p.config.DriverName || claim.Spec.VolumeName != "" {
		return
	}
	p.events.Eventf(claim, v1.EventTypeWarning, reasonMigration,
		"the claim is for the in-tree plugin %s and marked as migrated to driver %s, which has no in-tree predecessor; create the claim again with a class whose provisioner is %s",
		request.ProvisionerOf(claim), p.config.DriverName, p.config.DriverName)
}

// notifyPopulator emits an event on a claim whose volume comes from a volume populator.
func (p *Provisioner) notifyPopulator(claim *v1.PersistentVolumeClaim) {
	if request.HasPopulator(claim) {
		source := request.DataSource(claim)
		p.events.Eventf(claim, v1.EventTypeNormal, reasonPopulator, "the volume is left to the populator of %s %s", source.Kind, source.Name)
	}
}
