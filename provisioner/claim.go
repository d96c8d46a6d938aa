package provisioner

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/request"
)

// claimNamed returns a claim as the cache shows it, nil for none.
func claimNamed(claims cache.Store, namespace, name string) *v1.PersistentVolumeClaim {
	object, exists, err := claims.GetByKey(cache.ObjectName{Namespace: namespace, Name: name}.String())
	if err != nil || !exists {
		return nil
	}
	return object.(*v1.PersistentVolumeClaim)
}

// claimWithUID returns a claim as the cache shows it, nil if it shows none or another one of the name.
func claimWithUID(claims cache.Store, namespace, name string, uid types.UID) *v1.PersistentVolumeClaim {
	if claim := claimNamed(claims, namespace, name); claim != nil && claim.UID == uid {
		return claim
	}
	return nil
}

// volumeOfClaim returns the PersistentVolume that a claim is bound to, nil for none that the cache shows.
func volumeOfClaim(volumes cache.Store, claim *v1.PersistentVolumeClaim) *v1.PersistentVolume {
	if claim == nil || claim.Spec.VolumeName == "" {
		return nil
	}
	object, exists, err := volumes.GetByKey(claim.Spec.VolumeName)
	if err != nil || !exists {
		return nil
	}
	return object.(*v1.PersistentVolume)
}

// notifyMigration emits an event on a claim that Kubernetes has migrated from an in-tree
// plugin to this driver: it is not provisioned, because the parameters of its class are
// those of another driver.
func (p *Provisioner) notifyMigration(claim *v1.PersistentVolumeClaim) {
	if claim.Annotations[request.AnnMigratedTo] != p.config.DriverName || request.ProvisionerOf(claim) == p.config.DriverName || claim.Spec.VolumeName != "" {
		return
	}
	p.events.Eventf(claim, v1.EventTypeWarning, reasonRefused,
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
