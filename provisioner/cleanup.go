package provisioner

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of events, upstream csi-provisioner's where it has one.
const (
	reasonCleanupFailed = "ProvisioningCleanupFailed"
	reasonDeleteFailed  = "VolumeFailedDelete"
	reasonTopology      = "ProvisioningTopology" // ours
)

// cleanUp deletes a volume that the driver made wrongly. Nothing is under way
// once it is gone; until then the same request is repeated.
func (p *Provisioner) cleanUp(ctx context.Context, o *order, response *csi.CreateVolumeResponse, why error) Outcome {
	id := response.GetVolume().GetVolumeId()
	if id == "" {
		return Background
	}
	if err := p.deleteUnowned(ctx, o, id); err != nil {
		p.events.Eventf(o.claim, v1.EventTypeWarning, reasonCleanupFailed, "%v; volume %s could not be deleted again: %v", why, id, err)
		return Background
	}
	return Finished
}

// deleteUnowned deletes a volume that no PersistentVolume stands for.
func (p *Provisioner) deleteUnowned(ctx context.Context, o *order, id string) error {
	volumes, err := p.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pv := range volumes.Items {
		if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == p.config.DriverName && pv.Spec.CSI.VolumeHandle == id {
			return fmt.Errorf("PersistentVolume %s stands for it", pv.Name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	_, err = p.driver.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id, Secrets: o.secrets})
	return err
}
