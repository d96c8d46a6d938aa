package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// resolve works out what the driver is asked for, or why it is not to be called now.
func (t *task) resolve() (*request.Request, error) {
	if watch.IsOlder(t.claim.ResourceVersion, t.version) { // it shows a selected node that was removed
		return nil, errBehind
	}
	var asked *request.Request
	err := t.unlocked(func(ctx context.Context) (err error) {
		asked, err = t.newRequest(ctx, t.claim)
		return err
	})
	switch {
	case t.isUnneeded():
		return nil, errChanged
	case err != nil:
		return nil, t.unresolved(err)
	}
	return asked, t.siblings.mayAsk(t.claim)
}

// unresolved returns what follows if no request can be worked out.
func (t *task) unresolved(err error) error {
	reason, ok := topology.ReasonOf(err)
	node := t.claim.Annotations[request.AnnSelectedNode]
	f := &failure{kind: failed, err: err}
	switch {
	case !ok:
		return err
	case reason == topology.Invalid:
		f.kind, f.wait = invalid, t.RetryMax
	case reason == topology.NoTopology:
	case reason == topology.NodeGone:
		gone := false
		_ = t.unlocked(func(ctx context.Context) error { gone = t.api.isNodeGone(ctx, node); return nil })
		if t.isUnneeded() {
			return errChanged
		}
		if f.kind, f.node = unplaced, node; gone || t.lasts(f) >= t.NodeGrace {
			f.kind = reschedules
		}
	case reason == topology.NodeUnready:
		if f.kind, f.node, f.quiet = unplaced, node, true; t.lasts(f) >= t.NodeGrace {
			f.kind = reschedules
		}
	default:
		f.kind = reschedules
	}
	if f.kind == unplaced {
		f.most = max(t.NodeGrace-t.lasts(f), t.RetryStart) // a long back-off of other failures doesn't outlast the grace
	}
	return f
}

// lasts returns for how long attempts have failed like that.
func (t *task) lasts(f *failure) time.Duration {
	if !f.isLike(t.failure) {
		return 0
	}
	return t.Now().Sub(t.since)
}

// requestOf reads what claim and class name, from caches where there are some.
func (s *Syncer) requestOf(ctx context.Context, claim *v1.PersistentVolumeClaim) (*request.Request, error) {
	if !request.IsOurs(claim, s.DriverName) || !request.ShouldProvision(claim) {
		return nil, errNotOurs
	}
	class, err := s.liveClass(ctx, claim)
	switch {
	case err != nil:
		return nil, err
	case class.Provisioner != s.DriverName || lacksNode(claim, class):
		return nil, errNotOurs
	}
	named, err := s.withTemplateAnnotations(ctx, claim, class)
	if err != nil {
		return nil, err
	}
	plan, err := request.NewPlan(s.Options, named, class, claim.Annotations[request.AnnSelectedNode])
	if err != nil {
		return nil, &failure{kind: invalid, err: err, wait: s.RetryMax}
	}
	return s.complete(ctx, claim, class, plan)
}

// complete reads what a plan needs of other objects.
func (s *Syncer) complete(
	ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, plan *request.Plan,
) (*request.Request, error) {
	var in request.Inputs
	var err error
	if in.NamespaceLabels, err = s.namespaceLabels(ctx, claim.Namespace); err != nil {
		return nil, err
	}
	if s.isTied(claim) {
		plan.RequireNode()
	}
	if in.Requirement, err = s.requirement(plan); err != nil {
		return nil, err
	}
	if err := s.checkPods(claim); err != nil {
		return nil, err
	}
	s.warnOfTopology(claim, class, in.Requirement)
	if in.Source, err = s.Sources.Content(ctx, claim); err != nil {
		return nil, err
	}
	if in.MutableParameters, err = s.attributes(ctx, claim); err != nil {
		return nil, err
	}
	asked := plan.Request(in)
	asked.Claim = claim // as the cache shows it, so that a change can be told
	return asked, nil
}

// liveClass returns the claim's class: the API server is asked for one that the cache does not show, for a class and its claims may have been
// created together, and each comes by a watch of its own.
func (s *Syncer) liveClass(ctx context.Context, claim *v1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	class, err := s.classOf(claim)
	if !errors.Is(err, errNoClass) {
		return class, err
	}
	live, readErr := s.Client.StorageV1().StorageClasses().Get(ctx, request.ClassName(claim), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(readErr):
		return nil, err
	case readErr != nil:
		return nil, fmt.Errorf("claim.spec.storageClassName=%s: %w", request.ClassName(claim), readErr)
	}
	return live, nil
}

// lacksNode says whether the claim waits for its first consumer: the scheduler has selected no node yet.
func lacksNode(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	return bindsLate(class) && claim.Annotations[request.AnnSelectedNode] == ""
}

func bindsLate(class *storagev1.StorageClass) bool {
	return ptr.Deref(class.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer
}

// withTemplateAnnotations returns the claim with the annotations that the class's Secrets are named by, which the cache doesn't keep.
func (s *Syncer) withTemplateAnnotations(
	ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (*v1.PersistentVolumeClaim, error) {
	keys := request.TemplateAnnotations(class)
	if len(keys) == 0 {
		return claim, nil
	}
	live, err := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, err
	case live.UID != claim.UID:
		return nil, fmt.Errorf("the claim was deleted and created again, with UID %s", live.UID)
	}
	named := claim.DeepCopy()
	for _, key := range keys {
		if value, ok := live.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&named.ObjectMeta, key, value)
		}
	}
	return named, nil
}

var namespacesResource = v1.SchemeGroupVersion.WithResource("namespaces")

// namespaceLabels returns a namespace's labels, from the cache if it shows the namespace, and nil if no label becomes a tag.
func (s *Syncer) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	if len(s.NamespaceLabelTags) == 0 {
		return nil, nil
	}
	if cached := watch.Get[*metav1.PartialObjectMetadata](s.Namespaces, name); cached != nil {
		return cached.Labels, nil
	}
	namespace, err := s.Metadata.Resource(namespacesResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("labels of namespace %s, which become tags (--namespace-label-tags), can't be read: %w", name, err)
	}
	return namespace.Labels, nil
}

// requirement asks the topology where the volume may be.
func (s *Syncer) requirement(plan *request.Plan) (*csi.TopologyRequirement, error) {
	if !s.SupportsTopology {
		return nil, nil
	}
	return s.Topology.Require(plan.Question())
}

// attributes returns what the claim's VolumeAttributesClass asks for.
func (s *Syncer) attributes(ctx context.Context, claim *v1.PersistentVolumeClaim) (map[string]string, error) {
	name := ptr.Deref(claim.Spec.VolumeAttributesClassName, "")
	switch {
	case name == "":
		return nil, nil
	case !s.AttributesClasses:
		return nil, fmt.Errorf("claim.spec.volumeAttributesClassName=%s: --feature-gates=VolumeAttributesClass=false switches it off", name)
	case !s.DriverModifies:
		return nil, fmt.Errorf("claim.spec.volumeAttributesClassName=%s: driver %s cannot modify volumes; remove it", name, s.DriverName)
	}
	class, err := s.Client.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, watch.ReadError(watch.Object{Resource: watch.VolumeAttributesClasses, Name: name}, err)
	}
	if class.DriverName != s.DriverName {
		return nil, fmt.Errorf("claim.spec.volumeAttributesClassName=%s: it is of driver %s, not of %s", name, class.DriverName, s.DriverName)
	}
	return class.Parameters, nil
}

// warnOfTopology emits an event for a class whose allowedTopologies restrict nothing, or allow a zone in which no node has the driver.
func (s *Syncer) warnOfTopology(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, requirement *csi.TopologyRequirement) {
	if len(class.AllowedTopologies) == 0 || !s.SupportsTopology {
		return
	}
	if requirement == nil {
		s.Events.Eventf(claim, v1.EventTypeWarning, reasonTopology,
			"allowedTopologies of class %s has an empty term, which allows every topology; remove it or name a zone", class.Name)
	}
	for _, term := range requirement.GetRequisite() {
		if !s.Topology.Carried(term) {
			s.Events.Eventf(claim, v1.EventTypeWarning, reasonTopology,
				"class %s allows %v, where no node has driver %s yet", class.Name, term.GetSegments(), s.DriverName)
		}
	}
}
