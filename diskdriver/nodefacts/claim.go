package nodefacts

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Claim returns the claim whose volume a disk of the node is, whatever name its
// PersistentVolume has; nil if it is no claim's, or not the node's any more.
func (s *Self) Claim(ctx context.Context, id disk.ID) (*corev1.ObjectReference, error) {
	attachment, err := s.client.StorageV1().VolumeAttachments().Get(ctx, attachmentName(id, s.driver, s.name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && attachment.Spec.Source.PersistentVolumeName == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the VolumeAttachment of disk %s and Node %s: %w", id, s.name, err)
	}
	name := *attachment.Spec.Source.PersistentVolumeName
	volume, err := s.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PersistentVolume %s of disk %s: %w", name, id, err)
	}
	csi, claim := volume.Spec.CSI, volume.Spec.ClaimRef
	if csi == nil || csi.Driver != s.driver || csi.VolumeHandle != string(id) || claim == nil {
		return nil, nil
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}, nil
}
