package provisioner

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var namespacesResource = v1.SchemeGroupVersion.WithResource("namespaces")

// namespaceLabels returns a namespace's labels, from the cache if it shows the
// namespace, and nil if no label becomes a tag.
func (r *resolver) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	if len(r.config.NamespaceLabelTags) == 0 {
		return nil, nil
	}
	object, exists, err := r.namespaces.GetByKey(name)
	if err != nil {
		return nil, err
	}
	if exists {
		return object.(*metav1.PartialObjectMetadata).Labels, nil
	}
	namespace, err := r.metadata.Resource(namespacesResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("labels of namespace %s, which become tags (--namespace-label-tags), can't be read: %w", name, err)
	}
	return namespace.Labels, nil
}

// showsNamespace says whether the cache shows a namespace.
func (r *resolver) showsNamespace(name string) bool {
	_, exists, err := r.namespaces.GetByKey(name)
	return err == nil && exists
}
