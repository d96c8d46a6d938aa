package provisioner

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// An index keeps a set for each of its values, and a set of one takes more memory
// than the object that it finds. What is found by a UID is therefore indexed by how
// that begins, a handful of objects to a set.

// uidStart is how many characters of a UID are a value of an index: 4096 of them.
const uidStart = 3

func startOf(uid string) string { return uid[:min(len(uid), uidStart)] }

// volumesByClaim indexes PersistentVolumes by how the UID of their claim starts.
const volumesByClaim = "claim"

// claimOfVolume is the index function of volumesByClaim.
func claimOfVolume(object any) ([]string, error) {
	pv, ok := object.(*v1.PersistentVolume)
	if !ok || pv.Spec.ClaimRef == nil {
		return nil, nil
	}
	return []string{startOf(string(pv.Spec.ClaimRef.UID))}, nil
}

// volumesOf returns the PersistentVolumes of a claim in a cache with volumesByClaim.
func volumesOf(volumes cache.Indexer, claim types.UID) ([]*v1.PersistentVolume, error) {
	objects, err := volumes.ByIndex(volumesByClaim, startOf(string(claim)))
	var of []*v1.PersistentVolume
	for _, object := range objects {
		if pv := object.(*v1.PersistentVolume); pv.Spec.ClaimRef.UID == claim {
			of = append(of, pv)
		}
	}
	return of, err
}

// byStart has index functions that return UIDs return how those start.
func byStart(indexers cache.Indexers) cache.Indexers {
	short := cache.Indexers{}
	for name, of := range indexers {
		short[name] = func(object any) ([]string, error) {
			uids, err := of(object)
			for i, uid := range uids {
				uids[i] = startOf(uid)
			}
			return uids, err
		}
	}
	return short
}

// withUID returns the claims that have that UID.
func withUID(claims []any, uid string) []any {
	return slices.DeleteFunc(claims, func(claim any) bool { return string(claim.(*v1.PersistentVolumeClaim).UID) != uid })
}
