package deletion

import (
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// hasWork says whether something is to be done for the PersistentVolume.
func hasWork(pv *v1.PersistentVolume, driver string) bool {
	return mayDelete(pv, driver) || mayRelease(pv, driver) || needsFinalizer(pv, driver)
}

// mayDelete says whether the PersistentVolume's volume may be deleted, as far as the PersistentVolume shows.
func mayDelete(pv *v1.PersistentVolume, driver string) bool {
	return isReleased(pv, driver) || mayBeUnused(pv, driver)
}

// isReleased says whether the PersistentVolume's volume is to be deleted after its use: it is
// the driver's, its claim has released it, and its policy is Delete.
// One that is being deleted is still ours as long as it has our finalizer.
func isReleased(pv *v1.PersistentVolume, driver string) bool {
	return request.IsOfDriver(pv, driver) &&
		pv.Status.Phase == v1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete &&
		(pv.DeletionTimestamp == nil || request.HasFinalizer(pv))
}

// mayRelease says whether a PersistentVolume that is being deleted only waits for our
// finalizer although its volume is to be kept: its policy says so, or it is available
// to any claim, and its data may be anyone's.
func mayRelease(pv *v1.PersistentVolume, driver string) bool {
	return request.IsOfDriver(pv, driver) && pv.DeletionTimestamp != nil && request.HasFinalizer(pv) &&
		(pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete || wasNeverBound(pv) && request.ClaimUID(pv) == "")
}

// mayBeUnused says whether a PersistentVolume is being deleted before it was bound to
// the claim that it was made for: no Pod has ever had its volume. Kubernetes binds no
// claim to it any more, and does not release it either.
func mayBeUnused(pv *v1.PersistentVolume, driver string) bool {
	return request.IsOfDriver(pv, driver) && pv.DeletionTimestamp != nil && request.HasFinalizer(pv) &&
		wasNeverBound(pv) && request.ClaimUID(pv) != "" &&
		pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete
}

// needsFinalizer says whether a PersistentVolume lacks our finalizer: it is from a time
// when provisioners set none, or its policy became Delete since it was made. It must
// not go before its volume does.
func needsFinalizer(pv *v1.PersistentVolume, driver string) bool {
	return request.IsOfDriver(pv, driver) && pv.DeletionTimestamp == nil && !request.HasFinalizer(pv) &&
		pv.Status.Phase == v1.VolumeBound && pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete
}

func wasNeverBound(pv *v1.PersistentVolume) bool {
	return pv.Status.Phase == "" || pv.Status.Phase == v1.VolumePending || pv.Status.Phase == v1.VolumeAvailable
}
