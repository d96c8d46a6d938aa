package source

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// referenceGrant is what is read of a ReferenceGrant (gateway.networking.k8s.io/v1beta1):
// by it one namespace lets others use its objects.
type referenceGrant struct {
	Spec struct {
		From []struct {
			Group     string `json:"group"`
			Kind      string `json:"kind"`
			Namespace string `json:"namespace"`
		} `json:"from"`
		To []struct {
			Group string  `json:"group"`
			Kind  string  `json:"kind"`
			Name  *string `json:"name"`
		} `json:"to"`
	} `json:"spec"`
}

func (g *referenceGrant) allows(claim *v1.PersistentVolumeClaim, source *v1.TypedObjectReference) bool {
	from, to := false, false
	for _, f := range g.Spec.From {
		from = from || f.Group == "" && f.Kind == "PersistentVolumeClaim" && f.Namespace == claim.Namespace
	}
	for _, t := range g.Spec.To {
		to = to || t.Group == ptr.Deref(source.APIGroup, "") && t.Kind == source.Kind && (ptr.Deref(t.Name, "") == "" || *t.Name == source.Name)
	}
	return from && to
}

// checkGrant returns an error unless a ReferenceGrant in the source's namespace
// lets the claim's namespace use it (Kubernetes: "Cross namespace data sources").
func (r *Reader) checkGrant(ctx context.Context, claim *v1.PersistentVolumeClaim, source watch.Object) error {
	if !r.options.CrossNamespace {
		return fmt.Errorf("claim.spec.dataSourceRef.namespace is %s: sources of other namespaces need --feature-gates=CrossNamespaceVolumeDataSource=true",
			source.Namespace)
	}
	if r.dynamic == nil {
		return errors.New("ReferenceGrants can't be read: no client for them")
	}
	list, err := r.dynamic.Resource(watch.ReferenceGrants).Namespace(source.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ReferenceGrants of namespace %s: %w", source.Namespace, err)
	}
	version := ""
	if err == nil {
		version = list.GetResourceVersion()
		for _, item := range list.Items {
			var grant referenceGrant
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &grant); err == nil && grant.allows(claim, request.DataSource(claim)) {
				return nil
			}
		}
	}
	err = fmt.Errorf("claim.spec.dataSourceRef is %s: no ReferenceGrant of namespace %s allows it to claims of namespace %s",
		source, source.Namespace, claim.Namespace)
	return watch.NotReady(watch.Object{Resource: watch.ReferenceGrants, Namespace: source.Namespace}, version, err)
}
