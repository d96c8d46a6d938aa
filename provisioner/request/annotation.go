package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/internal/escape"
)

// hasEffect are the annotations and labels of claims that other provisioners pass to the
// driver as parameters, and what to do instead. Those outside of the allow-list are
// refused, so that no disk is made without its encryption, for example.
var hasEffect = map[string]string{
	"alibabacloud.com/kms-key-id":           "name a class with encrypted and kmsKeyId, or allow it",
	"encrypted":                             "name a class with this parameter",
	"kmsKeyId":                              "name a class with this parameter",
	"volume.alibabacloud.com/disk-id":       "make a PersistentVolume for a disk that exists",
	"csi.alibabacloud.com/disk-snapshot-id": "name a VolumeSnapshot in claim.spec.dataSource",
	"alibabacloud.com/createdisk-arn":       "let the driver's own role create disks",
	"performanceLevel":                      "name a class with this parameter",
	"zoneId":                                "name a class with allowedTopologies",
	"zoneid":                                "name a class with allowedTopologies",
	"regionId":                              "name a class with allowedTopologies",
	"multiAttach":                           "name a class with this parameter",
	"provisionedIops":                       "name a class with this parameter",
	"burstingEnabled":                       "name a class with this parameter",
	"resourceGroupId":                       "name a class with this parameter",
	"storageClusterId":                      "name a class with this parameter",
	"diskTags":                              "name a class with this parameter",
	"volumeSizeAutoAvailable":               "name a class with this parameter",
	"volumeDeleteSnapshotRetentionDays":     "take a snapshot before the claim is deleted",
}

// effectOf returns what to do instead of a key, and false if it has no effect.
func effectOf(key string) (instead string, ok bool) {
	if strings.HasPrefix(key, "diskTags/") {
		key = "diskTags"
	}
	instead, ok = hasEffect[key]
	return instead, ok
}

// passAnnotations adds the claim's allowed annotations to the parameters of its
// class. A value that contradicts the class's is an error.
func (o Options) passAnnotations(parameters map[string]string, claim *v1.PersistentVolumeClaim) error {
	for _, key := range slices.Sorted(maps.Keys(claim.Annotations)) {
		value := claim.Annotations[key]
		if !slices.Contains(o.ClaimAnnotations, key) {
			if instead, ok := effectOf(key); ok {
				return fmt.Errorf("annotation %s of the claim is not passed to the driver (--claim-annotations=%s); remove it: %s",
					key, strings.Join(o.ClaimAnnotations, ","), instead)
			}
			continue
		}
		if own, ok := parameters[key]; ok && own != value {
			return fmt.Errorf("annotation %s of the claim is %s, the class's parameter is %s; remove the annotation, or name another class", key, escape.Quoted(value), escape.Quoted(own))
		}
		parameters[key] = value
	}
	for _, key := range slices.Sorted(maps.Keys(claim.Labels)) {
		if instead, ok := effectOf(key); ok {
			return fmt.Errorf("label %s of the claim is not passed to the driver; remove it: %s", key, instead)
		}
	}
	return nil
}
