package claim

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// What the caches show of claims, classes and Pods, without a request to the API server. They may lag behind it.

// cached returns a claim by its UID, nil for none: it is gone then.
func (s *Syncer) cached(uid types.UID) *v1.PersistentVolumeClaim {
	claims, err := watch.ClaimsWithUID(s.Claims, uid)
	if err != nil || len(claims) == 0 {
		return nil
	}
	return claims[0]
}

// errNoClass says that a class does not exist.
var errNoClass = errors.New("there is no such StorageClass")

// classOf returns the claim's class as the cache shows it.
func (s *Syncer) classOf(claim *v1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name := request.ClassName(claim)
	class := watch.Get[*storagev1.StorageClass](s.Classes, name)
	if class == nil {
		return nil, fmt.Errorf("claim.spec.storageClassName=%s: %w", name, errNoClass)
	}
	return class, nil
}

// claimNamed returns a claim as the cache shows it, nil for none.
func (s *Syncer) claimNamed(namespace, name string) *v1.PersistentVolumeClaim {
	return watch.Get[*v1.PersistentVolumeClaim](s.Claims, cache.ObjectName{Namespace: namespace, Name: name}.String())
}

// volumeOf returns the PersistentVolume that a claim is bound to, nil for none that the cache shows.
func (s *Syncer) volumeOf(claim *v1.PersistentVolumeClaim) *v1.PersistentVolume {
	if claim == nil || claim.Spec.VolumeName == "" {
		return nil
	}
	return watch.Get[*v1.PersistentVolume](s.Volumes, claim.Spec.VolumeName)
}

// otherClaims returns the other claims of a claim's Pod, and the Pod's name. A claim that several Pods wait for has none: it can't be known for
// which of them its node was selected.
func (s *Syncer) otherClaims(claim *v1.PersistentVolumeClaim) (pod string, others []*v1.PersistentVolumeClaim) {
	one := s.podOf(claim)
	if one == nil {
		return "", nil
	}
	for _, name := range one.Claims {
		if other := s.claimNamed(claim.Namespace, name); name != claim.Name && other != nil {
			others = append(others, other)
		}
	}
	return one.Name, others
}

// podOf returns the one Pod that waits for the claim and others, nil for none or several.
func (s *Syncer) podOf(claim *v1.PersistentVolumeClaim) (pod *watch.Pod) {
	if !s.SupportsTopology || claim.Annotations[request.AnnSelectedNode] == "" {
		return nil
	}
	for _, one := range s.Pods.OfClaim(claim.Namespace, claim.Name) {
		switch {
		case one.DeletionTimestamp != nil:
		case pod != nil:
			return nil
		default:
			pod = one
		}
	}
	return pod
}

// waitsForNode says whether this driver is to make the claim's volume for a node that the scheduler selects.
func (s *Syncer) waitsForNode(claim *v1.PersistentVolumeClaim) bool {
	if by := request.ProvisionerOf(claim); by != "" && by != s.DriverName || !request.ShouldProvision(claim) {
		return false
	}
	class, err := s.classOf(claim)
	return err == nil && class.Provisioner == s.DriverName && bindsLate(class)
}

// isTied says whether the claim's volume must be in the selected node's zone, whatever its class says: another claim of the Pod gets its volume
// there, or has one of this driver in a zone already.
func (s *Syncer) isTied(claim *v1.PersistentVolumeClaim) bool {
	_, others := s.otherClaims(claim)
	return slices.ContainsFunc(others, func(other *v1.PersistentVolumeClaim) bool {
		pv := s.volumeOf(other)
		return s.waitsForNode(other) || pv != nil && len(topology.ZonesOfVolume(pv)) > 0
	})
}
