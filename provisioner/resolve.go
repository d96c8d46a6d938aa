package provisioner

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// resolver works out the requests of claims: it reads what claim and class name.
type resolver struct {
	config     Config
	client     kubernetes.Interface
	metadata   metadata.Interface
	topology   Topology
	sources    *source.Reader
	refusals   *stock.Refusals
	classes    cache.Store   // StorageClasses
	volumes    cache.Indexer // PersistentVolumes, trimmed
	namespaces cache.Store   // Namespaces, trimmed; nil without Config.NamespaceLabelTags
	events     record.EventRecorder
	siblings   *siblings
	placement  *placement // nil without Config.PodClaims
}

// resolve returns the request for the claim, or why there is none.
func (r *resolver) resolve(ctx context.Context, claim *v1.PersistentVolumeClaim) attempt.Resolved {
	switch volumes, err := watch.VolumesOfClaim(r.volumes, claim.UID); {
	case err != nil:
		return notYet(err)
	case len(volumes) > 0:
		return attempt.Resolved{Verdict: attempt.HasVolume, Volume: volumes[0].Name}
	case !request.IsOurs(claim, r.config.DriverName) || !request.ShouldProvision(claim):
		return attempt.Resolved{Verdict: attempt.NotNow}
	}
	class, err := r.liveClass(ctx, claim)
	switch {
	case err != nil:
		return notYet(err)
	case class.Provisioner != r.config.DriverName || lacksNode(claim, class):
		return attempt.Resolved{Verdict: attempt.NotNow}
	}
	named, err := r.withTemplateAnnotations(ctx, claim, class)
	if err != nil {
		return notYet(err)
	}
	plan, err := request.NewPlan(r.config.Options, named, class, claim.Annotations[request.AnnSelectedNode])
	if err != nil {
		return attempt.Resolved{Verdict: attempt.Invalid, Err: err}
	}
	return r.complete(ctx, claim, class, plan)
}

// withTemplateAnnotations returns the claim with the annotations that the class's Secrets are named by, which the cache doesn't keep.
func (r *resolver) withTemplateAnnotations(
	ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (*v1.PersistentVolumeClaim, error) {
	keys := request.TemplateAnnotations(class)
	if len(keys) == 0 {
		return claim, nil
	}
	live, err := r.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
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

// complete reads what a plan needs of other objects.
func (r *resolver) complete(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, plan *request.Plan) attempt.Resolved {
	var in request.Inputs
	var err error
	if in.NamespaceLabels, err = r.namespaceLabels(ctx, claim.Namespace); err != nil {
		return notYet(err)
	}
	if r.siblings.requireNode(claim) {
		plan.RequireNode()
	}
	if in.Requirement, err = r.requirement(plan); err != nil {
		return attempt.Resolved{Verdict: verdictOf(err), Err: err}
	}
	if err := r.placement.check(claim); err != nil {
		return attempt.Resolved{Verdict: verdictOf(err), Err: err}
	}
	r.warnOfTopology(claim, class, in.Requirement)
	if in.Source, err = r.sources.Content(ctx, claim); err != nil {
		return notYet(err)
	}
	if in.MutableParameters, err = r.attributes(ctx, claim); err != nil {
		return notYet(err)
	}
	resolved := plan.Request(in)
	order := r.siblings.order(claim)
	switch {
	case order.refused != nil:
		return attempt.Resolved{Verdict: attempt.SiblingRefused, Err: order.refused}
	case order.first != nil:
		return attempt.Resolved{Verdict: attempt.SiblingFirst, Err: order.first}
	}
	secrets, err := watch.ReadSecret(ctx, r.client, resolved.Secrets.Provisioner)
	if err != nil {
		return notYet(err)
	}
	refusal := r.refusals.Ask(stockWant(resolved))
	return attempt.Resolved{
		Verdict: attempt.Ready, Request: resolved, Secrets: secrets,
		Refusal: refusal, OfClaim: refusal != nil && !isOutOfStock(refusal),
	}
}

func notYet(err error) attempt.Resolved {
	return attempt.Resolved{Verdict: attempt.NotYet, Err: err, WaitsFor: waitsFor(err), Transient: isTransient(err)}
}

// errNoClass says that a class does not exist.
var errNoClass = errors.New("there is no such StorageClass")

// class returns the claim's class as the cache shows it.
func (r *resolver) class(claim *v1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name := request.ClassName(claim)
	object, exists, err := r.classes.GetByKey(name)
	switch {
	case err != nil:
		return nil, err
	case !exists:
		return nil, fmt.Errorf("claim.spec.storageClassName=%s: %w", name, errNoClass)
	}
	return object.(*storagev1.StorageClass), nil
}

// liveClass returns the claim's class: the API server is asked for one that the cache does not show, for a class and its claims may have been
// created together, and each comes by a watch of its own.
func (r *resolver) liveClass(ctx context.Context, claim *v1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	class, err := r.class(claim)
	if !errors.Is(err, errNoClass) {
		return class, err
	}
	live, readErr := r.client.StorageV1().StorageClasses().Get(ctx, request.ClassName(claim), metav1.GetOptions{})
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
	waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	return waits && claim.Annotations[request.AnnSelectedNode] == ""
}

// requirement asks the topology where the volume may be.
func (r *resolver) requirement(plan *request.Plan) (*csi.TopologyRequirement, error) {
	if !r.config.SupportsTopology {
		return nil, nil
	}
	return r.topology.Require(plan.Question())
}

// verdictOf says what an error of Topology.Require means for the claim.
func verdictOf(err error) attempt.Verdict {
	reason, ok := topology.ReasonOf(err)
	switch {
	case !ok:
		return attempt.NotYet
	case reason == topology.Invalid:
		return attempt.Invalid
	case reason == topology.NoTopology:
		return attempt.NoTopology
	case reason == topology.NodeGone:
		return attempt.NodeGone
	case reason == topology.NodeUnready:
		return attempt.NodeUnready
	}
	return attempt.NodeNotAllowed
}

// warnOfTopology emits an event for a class whose allowedTopologies restrict
// nothing, or allow a zone in which no node has the driver.
func (r *resolver) warnOfTopology(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, requirement *csi.TopologyRequirement) {
	if len(class.AllowedTopologies) == 0 || !r.config.SupportsTopology {
		return
	}
	if requirement == nil {
		r.events.Eventf(claim, v1.EventTypeWarning, reasonTopology,
			"allowedTopologies of class %s has an empty term, which allows every topology; remove it or name a zone", class.Name)
	}
	for _, term := range requirement.GetRequisite() {
		if !r.topology.Carried(term) {
			r.events.Eventf(claim, v1.EventTypeWarning, reasonTopology,
				"class %s allows %v, where no node has driver %s yet", class.Name, term.GetSegments(), r.config.DriverName)
		}
	}
}

// prefetch returns the claim's request for the journal before its first attempt, or nil
// if the caches do not show all of it: Kubernetes assigns the provisioner only after a
// node was selected, and many claims wait for a worker. The attempt resolves the request
// again, and writes it again if it differs.
func (r *resolver) prefetch(ctx context.Context, claim *v1.PersistentVolumeClaim) []byte {
	class := r.prefetchClass(claim)
	if class == nil || len(r.config.NamespaceLabelTags) > 0 && !r.showsNamespace(claim.Namespace) {
		return nil
	}
	plan, err := request.NewPlan(r.config.Options, claim, class, claim.Annotations[request.AnnSelectedNode])
	if err != nil {
		return nil
	}
	if r.siblings.requireNode(claim) {
		plan.RequireNode()
	}
	var in request.Inputs
	in.NamespaceLabels, err = r.namespaceLabels(ctx, claim.Namespace) // from the cache
	if err == nil {
		in.Requirement, err = r.requirement(plan)
	}
	if err != nil {
		return nil
	}
	planned := plan.Request(in)
	if r.refusals.Refuses(stockWant(planned)) != nil {
		return nil
	}
	record, err := planned.Encode()
	if err != nil {
		return nil // the attempt reports it
	}
	return record
}

// prefetchClass returns the claim's class if this driver makes its volume, now or once
// Kubernetes has assigned it, and the caches show all that its request depends on.
func (r *resolver) prefetchClass(claim *v1.PersistentVolumeClaim) *storagev1.StorageClass {
	if by := request.ProvisionerOf(claim); by != "" && by != r.config.DriverName {
		return nil
	}
	if !request.NeedsVolume(claim) || request.DataSource(claim) != nil || request.AttributesClass(claim) != nil {
		return nil
	}
	class, err := r.class(claim)
	if err != nil || class.Provisioner != r.config.DriverName || lacksNode(claim, class) {
		return nil
	}
	return class
}
