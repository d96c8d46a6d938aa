package provisioner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// Parameters by which the driver is told of a disk's tags.
const (
	tagsKey   = "diskTags" // key:value,key:value
	tagPrefix = tagsKey + "/"
)

var namespacesResource = v1.SchemeGroupVersion.WithResource("namespaces")

// labelTags adds the allowed labels of the claim and its namespace to the order's
// parameters, as tags of the disk. The class has the first word on a tag, then the
// claim, then the namespace. They are read once: an order under way, whose request
// is never made anew, keeps the tags that it began with.
func (p *Provisioner) labelTags(ctx context.Context, o *order) error {
	tags := map[string]string{}
	if len(p.config.NamespaceLabelTags) > 0 {
		labels, err := p.namespaceLabels(ctx, o.claim.Namespace)
		if err != nil {
			return err
		}
		pick(tags, labels, p.config.NamespaceLabelTags)
	}
	pick(tags, o.claim.Labels, p.config.ClaimLabelTags)
	for key, value := range tags {
		if !tagged(o.request.Parameters, key) {
			o.request.Parameters[tagPrefix+key] = value
		}
	}
	return nil
}

// pick takes the labels of an allow-list over.
func pick(tags, labels map[string]string, allowed []string) {
	for _, key := range allowed {
		if value, ok := labels[key]; ok {
			tags[key] = value
		}
	}
}

// tagged says whether the parameters name a tag of that key.
func tagged(parameters map[string]string, key string) bool {
	if _, ok := parameters[tagPrefix+key]; ok {
		return true
	}
	return slices.ContainsFunc(strings.Split(parameters[tagsKey], ","), func(word string) bool {
		name, _, _ := strings.Cut(strings.TrimSpace(word), ":")
		return name == key
	})
}

// namespaceLabels returns a namespace's labels: of one that is younger than what
// the cache shows, the API server's.
func (p *Provisioner) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
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

// checkLabelTags refuses keys that no label has.
func checkLabelTags(flag string, keys []string) error {
	for _, key := range keys {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return fmt.Errorf("--%s: %q is no key of a label: %s", flag, key, strings.Join(wrong, "; "))
		}
	}
	return nil
}
