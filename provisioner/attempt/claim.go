package attempt

import (
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// selectedNode returns the node that the scheduler has selected for the claim's Pod, or nothing.
func selectedNode(claim *v1.PersistentVolumeClaim) string {
	return claim.Annotations[request.AnnSelectedNode]
}

// withoutNode returns the claim as it is once the node is no longer selected.
func withoutNode(claim *v1.PersistentVolumeClaim, node string) *v1.PersistentVolumeClaim {
	if selectedNode(claim) != node {
		return claim
	}
	claim = claim.DeepCopy()
	delete(claim.Annotations, request.AnnSelectedNode)
	return claim
}

// hasSource says whether the request's volume is filled from a snapshot or a claim.
func hasSource(r *request.Request) bool { return request.DataSource(r.Claim) != nil }
