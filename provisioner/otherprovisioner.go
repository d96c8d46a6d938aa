package provisioner

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// volumeOfAnother tells of a PersistentVolume that another provisioner of the driver's name has saved while this process leads: it is named after
// a claim that was created since, and this process did not save it. One that was restored is named after a claim of before.
func (c *Controller) volumeOfAnother(pv *v1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if c.config.OtherProvisioner == nil || ref == nil || ref.UID == "" || !request.IsMadeBy(pv, c.config.DriverName) || c.config.IsSavedHere(pv) {
		return
	}
	if !strings.Contains(pv.Name, string(ref.UID)) && !strings.Contains(pv.Annotations[request.AnnVolumeName], string(ref.UID)) {
		return
	}
	claims, err := watch.ClaimsWithUID(c.caches.Claims.GetIndexer(), ref.UID)
	if err == nil && len(claims) > 0 && c.claims.IsYoung(claims[0]) {
		c.config.OtherProvisioner(pv.Name, ref.Namespace+"/"+ref.Name)
	}
}
