package provisioner

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// maxReported bounds the claims that are remembered as reported.
const maxReported = 1024

// reportDuplicates reports the PersistentVolume's claim, once, if the driver has made two volumes of one name for it. Kubernetes binds one of
// their PersistentVolumes and releases the others, which are deleted or kept by their reclaim policy. A PersistentVolume that names its claim
// without a UID, as after it was restored from a backup, was not made for it.
func (c *Controller) reportDuplicates(pv *v1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" || !request.IsMadeBy(pv, c.config.DriverName) {
		return
	}
	volumes, err := watch.VolumesOfClaim(c.caches.Volumes.GetIndexer(), ref.UID)
	if err != nil || len(volumes) < 2 {
		return
	}
	var names []string
	for _, other := range volumes {
		if request.IsMadeBy(other, c.config.DriverName) {
			names = append(names, other.Name)
		}
	}
	if len(names) < 2 || !c.isFirst(ref.UID) {
		return
	}
	slices.Sort(names)
	c.metrics.duplicates.Inc()
	claim := &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	c.events.Eventf(claim, v1.EventTypeWarning, reasonTwice,
		"PersistentVolumes %s were all made for claim %s/%s; Kubernetes binds one and releases the others, which are deleted or kept by their reclaim policy",
		strings.Join(names, " and "), ref.Namespace, ref.Name)
}

// isFirst says whether the claim was not reported yet, and marks it as reported.
func (c *Controller) isFirst(claim types.UID) bool {
	_, reported := c.reported.Get(claim)
	c.reported.Add(claim, nil)
	return !reported
}
