package provisioner

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// maxReported bounds the claims that are remembered as reported.
const maxReported = 1024

// duplicates reports claims for which the driver has made two volumes of one name.
// Kubernetes binds one of their PersistentVolumes and releases the others, which are
// deleted or kept by their reclaim policy.
type duplicates struct {
	driver   string
	volumes  cache.Indexer // PersistentVolumes, trimmed
	events   record.EventRecorder
	count    prometheus.Counter
	reported *lru.Cache // claim UID -> nothing
}

func newDuplicates(driver string, volumes cache.Indexer, events record.EventRecorder, count prometheus.Counter) *duplicates {
	return &duplicates{driver: driver, volumes: volumes, events: events, count: count, reported: lru.New(maxReported)}
}

// volumeChanged reports the PersistentVolume's claim, once, if it has several. One that names its claim without a UID, as after it was restored
// from a backup, was not made for it.
func (d *duplicates) volumeChanged(pv *v1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" || !request.IsMadeBy(pv, d.driver) {
		return
	}
	volumes, err := watch.VolumesOfClaim(d.volumes, ref.UID)
	if err != nil || len(volumes) < 2 {
		return
	}
	var names []string
	for _, other := range volumes {
		if request.IsMadeBy(other, d.driver) {
			names = append(names, other.Name)
		}
	}
	if len(names) < 2 || !d.isFirst(ref.UID) {
		return
	}
	slices.Sort(names)
	d.count.Inc()
	claim := &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	d.events.Eventf(claim, v1.EventTypeWarning, reasonTwice,
		"PersistentVolumes %s were all made for claim %s/%s; Kubernetes binds one and releases the others, which are deleted or kept by their reclaim policy",
		strings.Join(names, " and "), ref.Namespace, ref.Name)
}

// isFirst says whether the claim was not reported yet, and marks it as reported.
func (d *duplicates) isFirst(claim types.UID) bool {
	_, reported := d.reported.Get(claim)
	d.reported.Add(claim, nil)
	return !reported
}
