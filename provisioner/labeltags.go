package provisioner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
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

// watchNamespaces returns an informer of namespaces that keeps the allowed labels
// of each and nothing else.
func watchNamespaces(client metadata.Interface, allowed []string) (cache.SharedIndexInformer, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(client, namespacesResource, metav1.NamespaceAll, resync, cache.Indexers{}, nil).Informer()
	return informer, informer.SetTransform(func(object any) (any, error) {
		namespace, ok := object.(*metav1.PartialObjectMetadata)
		if !ok {
			return object, nil // a tombstone has nothing to be trimmed
		}
		labels := namespace.Labels
		trimMeta(&namespace.ObjectMeta)
		namespace.Finalizers = nil
		maps.DeleteFunc(labels, func(key, _ string) bool { return !slices.Contains(allowed, key) })
		shareKeys(labels)
		namespace.Labels = labels
		return namespace, nil
	})
}
