package provisioner

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
)

// These checks read from the API server, because a cache may lag behind it.

func isNodeGone(ctx context.Context, client kubernetes.Interface, name string) bool {
	_, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func isClaimGone(ctx context.Context, client kubernetes.Interface, claim *v1.PersistentVolumeClaim) bool {
	live, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && live.UID != claim.UID
}

// checkVolume says whether a claim is without the PersistentVolume that it had.
// Kubernetes binds the two only some time after the PersistentVolume is saved, so that
// one is read first: the claim keeps a binding although its PersistentVolume is deleted.
func checkVolume(ctx context.Context, client kubernetes.Interface, a attempt.CheckVolume) attempt.VolumeChecked {
	pv, err := client.CoreV1().PersistentVolumes().Get(ctx, a.Name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return attempt.VolumeChecked{Err: fmt.Errorf("PersistentVolume %s of claim %s/%s: %w", a.Name, a.Claim.Namespace, a.Claim.Name, err)}
	case err == nil && request.ClaimUID(pv) == a.Claim.UID:
		return attempt.VolumeChecked{}
	}
	live, err := client.CoreV1().PersistentVolumeClaims(a.Claim.Namespace).Get(ctx, a.Claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return attempt.VolumeChecked{}
	case err != nil:
		return attempt.VolumeChecked{Err: fmt.Errorf("claim %s/%s: %w", a.Claim.Namespace, a.Claim.Name, err)}
	}
	return attempt.VolumeChecked{Wanting: live.UID == a.Claim.UID && request.NeedsVolume(live)}
}
