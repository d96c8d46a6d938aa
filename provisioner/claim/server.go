package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// apiServer is what sync reads of the API server because a cache may lag behind it, and what it writes.
type apiServer interface {
	// isNodeGone says whether there is no such Node.
	isNodeGone(ctx context.Context, name string) bool
	// lacksVolume says whether the claim exists, and has neither this PersistentVolume nor another one.
	lacksVolume(ctx context.Context, claim *v1.PersistentVolumeClaim, pv string) (bool, error)
	// readSecret returns the data of a Secret.
	readSecret(ctx context.Context, ref *v1.SecretReference) (map[string]string, error)
	// save creates the PersistentVolume. One of the name that exists is a success if it is for the same claim and volume.
	save(ctx context.Context, pv *v1.PersistentVolume) error
	// removeSelectedNode returns the claim to the scheduler, unless another node is selected by now, and returns the claim's version that
	// lacks the node; nothing if the claim is gone.
	removeSelectedNode(ctx context.Context, claim *v1.PersistentVolumeClaim, node string) (version string, err error)
}

type apiClient struct{ client kubernetes.Interface }

func (a *apiClient) isNodeGone(ctx context.Context, name string) bool {
	_, err := a.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func (a *apiClient) claim(ctx context.Context, claim *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return a.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
}

// lacksVolume reads the PersistentVolume first, for Kubernetes binds the two only some time after it is saved: the claim keeps a binding
// although its PersistentVolume is deleted.
func (a *apiClient) lacksVolume(ctx context.Context, claim *v1.PersistentVolumeClaim, name string) (bool, error) {
	pv, err := a.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return false, fmt.Errorf("PersistentVolume %s of claim %s/%s: %w", name, claim.Namespace, claim.Name, err)
	case err == nil && request.ClaimUID(pv) == claim.UID:
		return false, nil
	}
	live, err := a.claim(ctx, claim)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return live.UID == claim.UID && request.NeedsVolume(live), nil
}

func (a *apiClient) readSecret(ctx context.Context, ref *v1.SecretReference) (map[string]string, error) {
	return watch.ReadSecret(ctx, a.client, ref)
}

func (a *apiClient) save(ctx context.Context, pv *v1.PersistentVolume) error {
	_, err := a.client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return a.checkSaved(ctx, pv)
	}
	return err
}

// checkSaved returns nil if the PersistentVolume that exists is the one to be saved.
func (a *apiClient) checkSaved(ctx context.Context, pv *v1.PersistentVolume) error {
	saved, err := a.client.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	switch {
	case saved.DeletionTimestamp != nil:
		return fmt.Errorf("a PersistentVolume %s is still being deleted", pv.Name)
	case request.ClaimUID(saved) != pv.Spec.ClaimRef.UID:
		return fmt.Errorf("PersistentVolume %s %w %s/%s", pv.Name, errNameTaken, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
	case saved.Spec.CSI == nil || saved.Spec.CSI.Driver != pv.Spec.CSI.Driver || saved.Spec.CSI.VolumeHandle != pv.Spec.CSI.VolumeHandle:
		return fmt.Errorf("PersistentVolume %s exists already with another volume than %s", pv.Name, pv.Spec.CSI.VolumeHandle)
	}
	return nil
}

// errNameTaken says that a PersistentVolume for another claim, or for none, has the name.
var errNameTaken = errors.New("exists already and is not for claim")

// isRefused says whether the API server has answered that it doesn't save a PersistentVolume, for whatever reason: an admission webhook
// chooses the code.
func isRefused(err error) bool {
	var answer apierrors.APIStatus
	return errors.Is(err, errNameTaken) || errors.As(err, &answer) && answer.Status().Code/100 == 4
}

// withoutSelectedNode returns the JSON patch that removes the selected node of a claim if it is that node.
func withoutSelectedNode(claim types.UID, node string) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value,omitempty"`
	}
	const annotation = "/metadata/annotations/volume.kubernetes.io~1selected-node"
	return json.Marshal([]operation{
		{Op: "test", Path: "/metadata/uid", Value: string(claim)}, {Op: "test", Path: annotation, Value: node}, {Op: "remove", Path: annotation},
	})
}

func (a *apiClient) removeSelectedNode(ctx context.Context, claim *v1.PersistentVolumeClaim, node string) (version string, err error) {
	patch, err := withoutSelectedNode(claim.UID, node)
	if err != nil {
		return "", err
	}
	claims := a.client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	live, err := claims.Patch(ctx, claim.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if apierrors.IsInvalid(err) { // a test has failed, or an admission policy denies the change
		now, readErr := a.claim(ctx, claim)
		switch {
		case readErr != nil:
			err = readErr
		case now.UID != claim.UID || now.Annotations[request.AnnSelectedNode] != node:
			live, err = now, nil
		}
	}
	switch {
	case apierrors.IsNotFound(err): // the claim is gone
		return "", nil
	case err != nil:
		return "", err
	case live.UID != claim.UID:
		return "", nil
	}
	return live.ResourceVersion, nil
}
