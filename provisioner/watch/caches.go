package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/request"
)

// Resync is how often informers deliver every object again although it has not changed,
// so that a missed event has no lasting effect.
const Resync = 15 * time.Minute

// Caches are informers of trimmed objects that are filled together. An informer runs as
// long as the process.
type Caches struct {
	Claims, Volumes, Classes, Attachments, CSINodes cache.SharedIndexInformer

	Nodes      cache.SharedIndexInformer // metadata
	Namespaces cache.SharedIndexInformer // metadata; nil without labels that are kept

	metadata metadata.Interface
	stages   [][]namedInformer      // in the order in which they are filled
	synced   []cache.InformerSynced // of the event handlers

	mu       sync.Mutex
	failures map[cache.SharedIndexInformer]watchFailure
}

// watchFailure is the last error that the watch of an informer has ended with.
type watchFailure struct {
	err     error
	version string // up to which the informer had come
}

type namedInformer struct {
	name string
	cache.SharedIndexInformer
}

// NewCaches returns caches that are not filled yet. Of the driver's claims, volumes, CSINode entries and of the labels of Namespaces they keep
// what requests are made from. Namespaces are not watched without labels.
func NewCaches(requests request.Options, client kubernetes.Interface, meta metadata.Interface) (*Caches, error) {
	trimmer := newTrimmer(requests)
	factory := informers.NewSharedInformerFactoryWithOptions(client, Resync, informers.WithTransform(trimmer.trim))
	core, storage := factory.Core().V1(), factory.Storage().V1()
	c := &Caches{
		Claims: core.PersistentVolumeClaims().Informer(), Volumes: core.PersistentVolumes().Informer(),
		Classes: storage.StorageClasses().Informer(), Attachments: storage.VolumeAttachments().Informer(), CSINodes: storage.CSINodes().Informer(),
		Nodes: metadataInformer(meta, "nodes"), metadata: meta, failures: map[cache.SharedIndexInformer]watchFailure{},
	}
	errs := []error{c.Nodes.SetTransform(trimmer.trim), c.addStage(namedInformer{"Nodes", c.Nodes})}
	if len(requests.NamespaceLabelTags) > 0 {
		c.Namespaces = metadataInformer(meta, "namespaces")
		errs = append(errs, c.Namespaces.SetTransform(trimmer.trimNamespace), c.addStage(namedInformer{"Namespaces", c.Namespaces}))
	}
	errs = append(errs, c.Claims.AddIndexers(ClaimIndexers()), c.Volumes.AddIndexers(VolumeIndexers()), c.Attachments.AddIndexers(AttachmentIndexers()),
		c.addStage(namedInformer{"PersistentVolumeClaims", c.Claims}, namedInformer{"PersistentVolumes", c.Volumes},
			namedInformer{"StorageClasses", c.Classes}, namedInformer{"VolumeAttachments", c.Attachments}, namedInformer{"CSINodes", c.CSINodes}))
	return c, errors.Join(errs...)
}

func metadataInformer(client metadata.Interface, resource string) cache.SharedIndexInformer {
	resources := v1.SchemeGroupVersion.WithResource(resource)
	return metadatainformer.NewFilteredMetadataInformer(client, resources, metav1.NamespaceAll, Resync, cache.Indexers{}, nil).Informer()
}

// Add has Fill fill one more cache, after the others. The name is for errors.
func (c *Caches) Add(name string, informer cache.SharedIndexInformer) error {
	return c.addStage(namedInformer{name, informer})
}

// addStage has Fill fill informers at the same time, after those before them.
func (c *Caches) addStage(stage ...namedInformer) error {
	c.stages = append(c.stages, stage)
	var errs []error
	for _, informer := range stage {
		errs = append(errs, informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.failures[informer.SharedIndexInformer] = watchFailure{err, reflector.LastSyncResourceVersion()}
		}))
	}
	return errors.Join(errs...)
}

// Handle registers a handler. Fill returns only after it has handled what the cache was
// filled with, unless it was registered later.
func (c *Caches) Handle(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return err
	}
	c.synced = append(c.synced, registration.HasSynced)
	return nil
}

// Fill starts the informers and returns once the caches are full, or an error if ctx
// ends before that. The end of ctx doesn't stop the informers.
func (c *Caches) Fill(ctx context.Context) error {
	always := context.WithoutCancel(ctx).Done()
	for _, stage := range c.stages {
		for _, informer := range stage {
			go informer.Run(always)
		}
		for _, informer := range stage {
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				return fmt.Errorf("the cache of %s did not fill: %w", informer.name, context.Cause(ctx))
			}
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return context.Cause(ctx)
	}
	return nil
}

// CatchUp returns once the caches of claims and volumes are at least as new as the
// moment of the call. It passes report the error of every attempt that made no progress,
// and nil after progress, and returns the error that report returns.
func (c *Caches) CatchUp(ctx context.Context, report func(error) error) error {
	for _, cached := range []struct {
		resource string
		informer cache.SharedIndexInformer
	}{{"persistentvolumes", c.Volumes}, {"persistentvolumeclaims", c.Claims}} {
		live := c.metadata.Resource(v1.SchemeGroupVersion.WithResource(cached.resource))
		explained := func(err error) error {
			if lag := (*lagError)(nil); errors.As(err, &lag) {
				err = c.explain(err, cached.informer)
			}
			return report(err)
		}
		if err := catchUp(ctx, live, cached.informer.GetStore(), explained); err != nil {
			return err
		}
	}
	return nil
}

// NotFull returns an error that says that the caches are not full, and why if that is known.
func (c *Caches) NotFull() error {
	var all []cache.SharedIndexInformer
	for _, informer := range slices.Concat(c.stages...) {
		all = append(all, informer.SharedIndexInformer)
	}
	return c.explain(errors.New("the caches are not full"), all...)
}

// explain adds the error of the first informer whose watch has failed and that has not come further since.
func (c *Caches) explain(err error, informers ...cache.SharedIndexInformer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, informer := range informers {
		if failure, failed := c.failures[informer]; failed && failure.version == informer.LastSyncResourceVersion() {
			return fmt.Errorf("%w: %w", err, failure.err)
		}
	}
	return err
}
