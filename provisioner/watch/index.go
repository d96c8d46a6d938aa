package watch

import (
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A cache.Indexer keeps a set for each value of an index, and a set of one takes more
// memory than the object in it: indexes by whole UIDs and volume handles would add 14 MiB
// to 34 MiB of 20 000 trimmed claims and volumes. So the values are some characters of
// these, and a lookup compares the few objects that it finds.

const (
	// uidPrefix is how many characters of a UID are indexed: 4096 values.
	uidPrefix = 3
	// handleSuffix is how many characters of a volume handle are indexed: the IDs of
	// disks begin alike and end at random.
	handleSuffix = 2
)

func prefixOf(uid string) string { return uid[:min(len(uid), uidPrefix)] }

func suffixOf(handle string) string { return handle[max(0, len(handle)-handleSuffix):] }

// The names of the indexes.
const (
	byUID    = "uid"    // PersistentVolumeClaims by UID
	byClaim  = "claim"  // PersistentVolumes by the UID of their claim
	byHandle = "handle" // PersistentVolumes by volume handle
	byVolume = "volume" // VolumeAttachments by the name of their PersistentVolume
)

// ClaimIndexers are the indexes of a cache of PersistentVolumeClaims.
func ClaimIndexers() cache.Indexers {
	return cache.Indexers{byUID: Index(func(claim *v1.PersistentVolumeClaim) []string { return []string{prefixOf(string(claim.UID))} })}
}

// VolumeIndexers are the indexes of a cache of PersistentVolumes.
func VolumeIndexers() cache.Indexers {
	return cache.Indexers{
		byClaim: Index(func(pv *v1.PersistentVolume) []string {
			if pv.Spec.ClaimRef == nil {
				return nil
			}
			return []string{prefixOf(string(pv.Spec.ClaimRef.UID))}
		}),
		byHandle: Index(func(pv *v1.PersistentVolume) []string {
			if pv.Spec.CSI == nil {
				return nil
			}
			return []string{suffixOf(pv.Spec.CSI.VolumeHandle)}
		}),
	}
}

// AttachmentIndexers are the indexes of a cache of VolumeAttachments.
func AttachmentIndexers() cache.Indexers {
	return cache.Indexers{byVolume: Index(func(attachment *storagev1.VolumeAttachment) []string {
		if attachment.Spec.Source.PersistentVolumeName == nil {
			return nil
		}
		return []string{*attachment.Spec.Source.PersistentVolumeName}
	})}
}

// Index returns an index of the objects of a type by the values that a function returns of each. Objects of another type are in no index.
func Index[T any](values func(T) []string) cache.IndexFunc {
	return func(object any) ([]string, error) {
		if object, ok := object.(T); ok {
			return values(object), nil
		}
		return nil, nil
	}
}

// VolumesOfClaim returns the PersistentVolumes whose claimRef has the UID.
func VolumesOfClaim(volumes cache.Indexer, claim types.UID) ([]*v1.PersistentVolume, error) {
	return find(volumes, byClaim, prefixOf(string(claim)), func(pv *v1.PersistentVolume) bool { return pv.Spec.ClaimRef.UID == claim })
}

// VolumesOfHandle returns the PersistentVolumes that have the volume handle, of whatever driver: a disk's ID is unique.
func VolumesOfHandle(volumes cache.Indexer, handle string) ([]*v1.PersistentVolume, error) {
	return find(volumes, byHandle, suffixOf(handle), func(pv *v1.PersistentVolume) bool { return pv.Spec.CSI.VolumeHandle == handle })
}

// AttachmentsOfVolume returns the VolumeAttachments of a PersistentVolume.
func AttachmentsOfVolume(attachments cache.Indexer, name string) ([]*storagev1.VolumeAttachment, error) {
	return find(attachments, byVolume, name, func(*storagev1.VolumeAttachment) bool { return true })
}

// Get returns the object that a store has under a key, and the zero value for none.
func Get[T any](store cache.Store, key string) (object T) {
	found, exists, err := store.GetByKey(key)
	if err != nil || !exists {
		return object
	}
	return found.(T)
}

// find returns the objects that an index has for a value and that match.
func find[T any](indexer cache.Indexer, index, value string, matches func(T) bool) ([]T, error) {
	objects, err := indexer.ByIndex(index, value)
	var found []T
	for _, object := range objects {
		if object := object.(T); matches(object) {
			found = append(found, object)
		}
	}
	return found, err
}

// ClaimsWithUID returns the claims that have the UID.
func ClaimsWithUID(claims cache.Indexer, uid types.UID) ([]*v1.PersistentVolumeClaim, error) {
	return find(claims, byUID, prefixOf(string(uid)), func(claim *v1.PersistentVolumeClaim) bool { return claim.UID == uid })
}
