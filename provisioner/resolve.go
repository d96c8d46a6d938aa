package provisioner

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/source"
)

// newOrder works out what to ask of the driver for the claim. An error comes
// with Finished if only another claim or class would help, with Unchanged if
// time might, with Reschedule if another node would.
func (p *Provisioner) newOrder(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (*order, Outcome, error) {
	plan, err := request.NewPlan(p.config.Options, claim, class, node)
	if err != nil {
		return nil, Finished, err
	}
	var in request.Inputs
	if in.NamespaceLabels, err = p.namespaceLabels(ctx, claim.Namespace); err != nil {
		return nil, Unchanged, err
	}
	var outcome Outcome
	if in.Requirement, outcome, err = p.requirement(ctx, claim, class, node, plan); err != nil {
		return nil, outcome, err
	}
	if in.Source, err = p.sources.Content(ctx, claim); err != nil {
		return nil, outcomeOfSource(err), err
	}
	if in.MutableParameters, outcome, err = p.attributes(ctx, claim); err != nil {
		return nil, outcome, err
	}
	o := &order{Request: plan.Request(in)}
	if o.secrets, err = p.secrets.Read(ctx, o.Secrets.Provisioner); err != nil {
		return nil, Unchanged, err
	}
	return o, Unchanged, nil
}

// outcomeOfSource says what it means that a claim's source can't be used.
func outcomeOfSource(err error) Outcome {
	if invalid := (*source.InvalidError)(nil); errors.As(err, &invalid) {
		return Finished
	}
	return Unchanged
}

// requirement asks the topology where the volume may be.
func (p *Provisioner) requirement(
	ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string, plan *request.Plan,
) (*csi.TopologyRequirement, Outcome, error) {
	if !p.config.SupportsTopology {
		return nil, Unchanged, nil
	}
	requirement, err := p.topology.Require(plan.Question())
	if err != nil {
		outcome := p.outcomeOfTopology(ctx, claim, node, err)
		return nil, outcome, err
	}
	p.waiting.remove(claim.UID)
	p.warnOfTopology(claim, class, requirement)
	return requirement, Unchanged, nil
}

// warnOfTopology tells of a class whose allowedTopologies are not what they
// seem: one that constrains nothing, or one that allows where no node is yet.
func (p *Provisioner) warnOfTopology(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, requirement *csi.TopologyRequirement) {
	if len(class.AllowedTopologies) == 0 {
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
