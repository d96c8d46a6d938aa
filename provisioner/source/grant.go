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

// grantPage is how many ReferenceGrants one request lists: a tenant chooses how many there are, and how large they are.
const grantPage = 50

// errGranted says that findGrant has found a grant.
var errGranted = errors.New("a ReferenceGrant allows it")

// findGrant returns errGranted if a ReferenceGrant of the namespace allows what is asked, and else the version of their list.
func (r *Reader) findGrant(ctx context.Context, namespace string, allows func(*referenceGrant) bool) (version string, err error) {
	options := metav1.ListOptions{Limit: grantPage}
	for {
		list, err := r.dynamic.Resource(watch.ReferenceGrants).Namespace(namespace).List(ctx, options)
		if err != nil {
			return "", err
		}
		for _, item := range list.Items {
			var grant referenceGrant
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &grant); err == nil && allows(&grant) {
				return "", errGranted
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return list.GetResourceVersion(), nil
		}
	}
}

// checkGrant returns an error unless a ReferenceGrant in the source's namespace
// lets the claim's namespace use it (Kubernetes: "Cross namespace data sources").
func (r *Reader) checkGrant(ctx context.Context, claim *v1.PersistentVolumeClaim, source watch.Object) error {
	if !r.options.CrossNamespace {
		return fmt.Errorf("claim.spec.dataSourceRef.namespace is %s: sources of other namespaces need --feature-gates=CrossNamespaceVolumeDataSource=true",
			source.Namespace)
	}
	version, err := r.findGrant(ctx, source.Namespace, func(g *referenceGrant) bool { return g.allows(claim, request.DataSource(claim)) })
	switch {
	case errors.Is(err, errGranted):
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("ReferenceGrants of namespace %s: %w", source.Namespace, err)
	}
	err = fmt.Errorf("claim.spec.dataSourceRef is %s: no ReferenceGrant of namespace %s allows it to claims of namespace %s",
		source, source.Namespace, claim.Namespace)
	return watch.NotReady(watch.Object{Resource: watch.ReferenceGrants, Namespace: source.Namespace}, version, err)
}
