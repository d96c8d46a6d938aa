package provisioner

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// resolve works out what to ask of the driver for the claim.
func (p *Provisioner) resolve(ctx context.Context, claim *v1.PersistentVolumeClaim) attempt.Resolved {
	switch volumes, err := watch.VolumesOfClaim(p.volumes, claim.UID); {
	case err != nil:
		return notYet(err)
	case len(volumes) > 0:
		return attempt.Resolved{Verdict: attempt.HasVolume, Volume: volumes[0].Name}
	case !request.IsOurs(claim, p.config.DriverName) || !request.ShouldProvision(claim):
		return attempt.Resolved{Verdict: attempt.NotNow}
	}
	class, err := p.classOf(claim)
	switch {
	case err != nil:
		return notYet(err)
	case class.Provisioner != p.config.DriverName || bindsLate(class) && claim.Annotations[request.AnnSelectedNode] == "":
		return attempt.Resolved{Verdict: attempt.NotNow}
	}
	plan, err := request.NewPlan(p.config.Options, claim, class, claim.Annotations[request.AnnSelectedNode])
	if err != nil {
		return attempt.Resolved{Verdict: attempt.Invalid, Err: err}
	}
	return p.complete(ctx, claim, class, plan)
}

// complete reads what a plan needs of other objects.
func (p *Provisioner) complete(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, plan *request.Plan) attempt.Resolved {
	var in request.Inputs
	var err error
	if in.NamespaceLabels, err = p.namespaceLabels(ctx, claim.Namespace); err != nil {
		return notYet(err)
	}
	if in.Requirement, err = p.requirement(plan); err != nil {
		return attempt.Resolved{Verdict: verdictOf(err), Err: err}
	}
	p.warnOfTopology(claim, class, in.Requirement)
	if in.Source, err = p.sources.Content(ctx, claim); err != nil {
		return notYet(err)
	}
	if in.MutableParameters, err = p.attributes(ctx, claim); err != nil {
		return notYet(err)
	}
	r := plan.Request(in)
	secrets, err := p.secrets.Read(ctx, r.Secrets.Provisioner)
	if err != nil {
		return notYet(err)
	}
	return attempt.Resolved{Verdict: attempt.Ready, Request: r, Secrets: secrets, Refusal: p.refusals.Ask(stockWant(r))}
}

func notYet(err error) attempt.Resolved {
	return attempt.Resolved{Verdict: attempt.NotYet, Err: err, WaitsFor: waitsFor(err), Passing: isPassing(err)}
}

// classOf returns the claim's class as the cache shows it.
func (p *Provisioner) classOf(claim *v1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name := request.ClassName(claim)
	object, exists, err := p.classes.GetByKey(name)
	switch {
	case err != nil:
		return nil, err
	case !exists:
		return nil, fmt.Errorf("claim.spec.storageClassName=%s: there is no such StorageClass", name)
	}
	return object.(*storagev1.StorageClass), nil
}

func bindsLate(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// requirement asks the topology where the volume may be.
func (p *Provisioner) requirement(plan *request.Plan) (*csi.TopologyRequirement, error) {
	if !p.config.SupportsTopology {
		return nil, nil
	}
	return p.topology.Require(plan.Question())
}

// verdictOf says what it means that topology found no zone for the claim.
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
	return attempt.NoZone
}

// warnOfTopology tells of a class whose allowedTopologies are not what they
// seem: one that constrains nothing, or one that allows where no node is yet.
func (p *Provisioner) warnOfTopology(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, requirement *csi.TopologyRequirement) {
	if len(class.AllowedTopologies) == 0 || !p.config.SupportsTopology {
		return
	}
	if requirement == nil {
		p.events.Eventf(claim, v1.EventTypeWarning, reasonTopology,
			"allowedTopologies of class %s has an empty term, which allows every topology; remove it or name a zone", class.Name)
	}
	for _, term := range requirement.GetRequisite() {
		if !p.topology.Carried(term) {
			p.events.Eventf(claim, v1.EventTypeWarning, reasonTopology,
				"class %s allows %v, where no node has driver %s yet", class.Name, term.GetSegments(), p.config.DriverName)
		}
	}
}

// prefetch has the journal write the claim's request ahead of its turn, if the caches
// alone tell all of it. A claim's request is clear before its turn comes: Kubernetes
// assigns the claim its provisioner only after a node was selected, and many claims wait
// for a worker. The driver can then be asked at once; the request is worked out once
// more when its turn comes, and written again if it has become another one.
func (p *Provisioner) prefetch(ctx context.Context, claim *v1.PersistentVolumeClaim) {
	class := p.classAhead(claim)
	if class == nil || len(p.config.NamespaceLabelTags) > 0 && !p.showsNamespace(claim.Namespace) {
		return
	}
	plan, err := request.NewPlan(p.config.Options, claim, class, claim.Annotations[request.AnnSelectedNode])
	if err != nil {
		return
	}
	var in request.Inputs
	in.NamespaceLabels, err = p.namespaceLabels(ctx, claim.Namespace) // from the cache
	if err == nil {
		in.Requirement, err = p.requirement(plan)
	}
	if err != nil {
		return
	}
	r := plan.Request(in)
	if p.refusals.Refuses(stockWant(r)) {
		return
	}
	if record, err := r.Encode(); err == nil {
		p.store.Prefetch(string(claim.UID), record)
	}
}

// classAhead returns the claim's class if its volume is, or is about to be, this
// driver's to make, and the caches know all that it depends on.
func (p *Provisioner) classAhead(claim *v1.PersistentVolumeClaim) *storagev1.StorageClass {
	if by := request.ProvisionerOf(claim); by != "" && by != p.config.DriverName || claim.Spec.StorageClassName == nil {
		return nil
	}
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || request.DataSource(claim) != nil || request.AttributesClass(claim) != nil {
		return nil
	}
	class, err := p.classOf(claim)
	if err != nil || class.Provisioner != p.config.DriverName || bindsLate(class) && claim.Annotations[request.AnnSelectedNode] == "" {
		return nil
	}
	return class
}

// nodeIsGone asks the API server itself, for a cache may lag.
func (p *Provisioner) nodeIsGone(ctx context.Context, node string) bool {
	_, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// checkVolume asks the API server whether a claim really is without the
// PersistentVolume that it has had: caches may lag behind, and Kubernetes binds
// the two only some time after the volume is saved. The volume is looked at
// first, for once it is bound its going doesn't take the claim's binding back.
func (p *Provisioner) checkVolume(ctx context.Context, a attempt.CheckVolume) attempt.VolumeChecked {
	pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, a.Name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return attempt.VolumeChecked{Err: fmt.Errorf("PersistentVolume %s of claim %s/%s: %w", a.Name, a.Claim.Namespace, a.Claim.Name, err)}
	case err == nil && request.ClaimUID(pv) == a.Claim.UID:
		return attempt.VolumeChecked{}
	}
	live, err := p.client.CoreV1().PersistentVolumeClaims(a.Claim.Namespace).Get(ctx, a.Claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return attempt.VolumeChecked{}
	case err != nil:
		return attempt.VolumeChecked{Err: fmt.Errorf("claim %s/%s: %w", a.Claim.Namespace, a.Claim.Name, err)}
	}
	return attempt.VolumeChecked{Wanting: live.UID == a.Claim.UID && live.Spec.VolumeName == ""}
}

// claimIsGone asks the API server itself.
func (p *Provisioner) claimIsGone(ctx context.Context, claim *v1.PersistentVolumeClaim) bool {
	live, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && live.UID != claim.UID
}
