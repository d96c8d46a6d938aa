package request

import (
	"fmt"
	"math"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

var accessModes = map[v1.PersistentVolumeAccessMode]csi.VolumeCapability_AccessMode_Mode{
	v1.ReadWriteOnce:    csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	v1.ReadWriteOncePod: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	v1.ReadOnlyMany:     csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	v1.ReadWriteMany:    csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

// multiWriterModes replace those of accessModes for a driver with SINGLE_NODE_MULTI_WRITER.
var multiWriterModes = map[v1.PersistentVolumeAccessMode]csi.VolumeCapability_AccessMode_Mode{
	v1.ReadWriteOnce:    csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	v1.ReadWriteOncePod: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
}

// capabilities returns a CSI capability for each of the claim's access modes, once.
func (o Options) capabilities(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, fsType string) ([]*csi.VolumeCapability, error) {
	var list []*csi.VolumeCapability
	for _, mode := range withoutRepetitions(claim.Spec.AccessModes) {
		csiMode, ok := accessModes[mode]
		if replacement, has := multiWriterModes[mode]; has && o.SingleNodeMultiWriter {
			csiMode = replacement
		}
		if !ok {
			return nil, fmt.Errorf("claim.spec.accessModes has %q; allowed are ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany and ReadWriteMany", mode)
		}
		capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csiMode}}
		if isBlock(claim) {
			capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		} else {
			capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: class.MountOptions}}
		}
		list = append(list, capability)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("claim.spec.accessModes is empty")
	}
	return list, nil
}

func isBlock(claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// capacityRange returns the claim's request and limit in bytes.
func capacityRange(claim *v1.PersistentVolumeClaim) (*csi.CapacityRange, error) {
	required, err := storageOf(claim.Spec.Resources.Requests, "requests")
	if err != nil {
		return nil, err
	}
	limit, err := storageOf(claim.Spec.Resources.Limits, "limits")
	if err != nil {
		return nil, err
	}
	return &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, nil
}

// storageOf returns the size that a field of claim.spec.resources has, 0 for none. One that bytes in 64 bits can't count would be another one
// for the driver.
func storageOf(resources v1.ResourceList, field string) (int64, error) {
	size := resources[v1.ResourceStorage]
	if size.Sign() < 0 || size.CmpInt64(math.MaxInt64) > 0 {
		return 0, fmt.Errorf("claim.spec.resources.%s.storage is %s; allowed are 0 to %d bytes", field, size.String(), int64(math.MaxInt64))
	}
	return size.Value(), nil
}
