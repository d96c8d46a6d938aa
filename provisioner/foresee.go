package provisioner

import (
	"context"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// A claim's order is clear before its turn comes: Kubernetes assigns the claim its
// provisioner only after a node was selected, and many claims wait for a worker.
// The journal has it by then, so the driver is asked at once. What is foreseen is
// nothing but an entry: the order is worked out anew when its turn comes, and
// written again if it has become another one.

// foresee has the journal take an order down that will probably be made, if the
// caches alone know all of it.
func (p *Provisioner) foresee(claim *v1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		p.journal.cancel(claim.UID)
		return
	}
	class := p.classAhead(claim)
	if class == nil || request.DataSource(claim) != nil || request.AttributesClass(claim) != nil || p.journal.volumeOf(claim.UID) != "" || p.journal.find(claim.UID) != nil {
		return
	}
	claim, node := claim.DeepCopy(), claim.Annotations[request.AnnSelectedNode]
	plan, err := request.NewPlan(p.config.Options, claim, class, node)
	if err != nil || len(p.config.NamespaceLabelTags) > 0 && !p.showsNamespace(claim.Namespace) {
		return
	}
	var in request.Inputs
	in.NamespaceLabels, err = p.namespaceLabels(context.Background(), claim.Namespace) // from the cache
	if err == nil && p.config.SupportsTopology {
		in.Requirement, err = p.topology.Require(plan.Question())
	}
	if err != nil {
		return
	}
	if r := plan.Request(in); !p.refusals.Refuses(stockWant(r)) {
		p.journal.prefetch(r)
	}
}

// classAhead returns the claim's class if its volume is, or is about to be, this
// driver's to make.
func (p *Provisioner) classAhead(claim *v1.PersistentVolumeClaim) *storagev1.StorageClass {
	if by := request.ProvisionerOf(claim); by != "" && by != p.config.DriverName || claim.Spec.StorageClassName == nil {
		return nil
	}
	object, exists, err := p.classes.GetByKey(*claim.Spec.StorageClassName)
	if err != nil || !exists {
		return nil
	}
	class := object.(*storagev1.StorageClass)
	late := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	if class.Provisioner != p.config.DriverName || late && claim.Annotations[request.AnnSelectedNode] == "" {
		return nil
	}
	return class
}
