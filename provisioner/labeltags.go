package provisioner

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var namespacesResource = v1.SchemeGroupVersion.WithResource("namespaces")

// namespaceLabels returns a namespace's labels, from the cache if that has it, and
// nil if none of them becomes a tag.
func (p *Provisioner) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	if len(p.config.NamespaceLabelTags) == 0 {
		return nil, nil
	}
	object, exists, err := p.namespaces.GetByKey(name)
	if err != nil {
		return nil, err
	}
	if exists {
		return object.(*metav1.PartialObjectMetadata).Labels, nil
	}
	namespace, err := p.metadata.Resource(namespacesResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("labels of namespace %s, which become tags (--namespace-label-tags), can't be read: %w", name, err)
	}
	return namespace.Labels, nil
}

// showsNamespace says whether the cache has a namespace.
func (p *Provisioner) showsNamespace(name string) bool {
	_, exists, err := p.namespaces.GetByKey(name)
	return err == nil && exists
}
