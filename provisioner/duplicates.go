package provisioner

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// notifyDuplicates tells of a claim that more than one PersistentVolume was made for:
// a driver has made two volumes of one name. Kubernetes binds one of them, and
// releases the others, which are deleted as their policy says.
func (p *Provisioner) notifyDuplicates(pv *v1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil || !request.IsMadeBy(pv, p.config.DriverName) {
		return
	}
	volumes, err := watch.VolumesOfClaim(p.volumes, ref.UID)
	if err != nil || len(volumes) < 2 {
		return
	}
	var names []string
	for _, other := range volumes {
		if request.IsMadeBy(other, p.config.DriverName) {
			names = append(names, other.Name)
		}
	}
	if len(names) < 2 || !p.duplicates.isFirst(ref.UID) {
		return
	}
	slices.Sort(names)
	p.metrics.duplicates.Inc()
	claim := &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	p.events.Eventf(claim, v1.EventTypeWarning, reasonDuplicates,
		"PersistentVolumes %s were all made for claim %s/%s; Kubernetes binds one and releases the others, which go as their reclaim policy says",
		strings.Join(names, " and "), ref.Namespace, ref.Name)
}

// rememberedDuplicates is how many claims with several PersistentVolumes are told of once and not again.
const rememberedDuplicates = 1024

// duplicates remembers the claims whose several PersistentVolumes were told of.
type duplicates struct{ told *lru.Cache }

func newDuplicates() *duplicates { return &duplicates{lru.New(rememberedDuplicates)} }

// isFirst says whether the claim's several PersistentVolumes are to be told of.
func (d *duplicates) isFirst(claim types.UID) bool {
	if _, told := d.told.Get(claim); told {
		return false
	}
	d.told.Add(claim, nil)
	return true
}
