package main

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// access is one thing that an account of the installation may or may not do.
type access struct {
	account, verb, group, resource, subresource, namespace, name string
	allowed                                                      bool
}

// accesses are what the programs do that no end-to-end test reaches, and what a
// thief of the account would want.
var accesses = []access{
	{"topodisk-controller", "get", "", "namespaces", "", "", "kube-system", true}, // for the cluster's ID
	{"topodisk-controller", "create", "", "events", "", "kube-system", "", true},  // about credentials
	{"topodisk-controller", "patch", "storage.k8s.io", "volumeattachments", "status", "", "", true},
	{"topodisk-controller", "patch", "", "persistentvolumeclaims", "status", "", "", true},
	{"topodisk-controller", "update", "coordination.k8s.io", "leases", "", "kube-system", "external-attacher-leader-diskplugin-csi-alibabacloud-com", true},
	{"topodisk-controller", "update", "coordination.k8s.io", "leases", "", "kube-system", "external-resizer-diskplugin-csi-alibabacloud-com", true},
	{"topodisk-node", "patch", "", "nodes", "", "", "", true},
	{"topodisk-node", "watch", "storage.k8s.io", "csinodes", "", "", "", true},

	{"topodisk-controller", "get", "", "namespaces", "", "", "default", false},
	{"topodisk-controller", "get", "", "secrets", "", "kube-system", "topodisk-credentials", false},
	{"topodisk-controller", "create", "", "pods", "", "kube-system", "", false},
	{"topodisk-controller", "update", "coordination.k8s.io", "leases", "", "kube-system", "kube-scheduler", false},
	{"topodisk-controller", "delete", "", "nodes", "", "", "", false},
	{"topodisk-node", "get", "", "secrets", "", "kube-system", "topodisk-credentials", false},
	{"topodisk-node", "list", "", "persistentvolumes", "", "", "", false},
	{"topodisk-node", "update", "", "nodes", "status", "", "", false},
	{"topodisk-node", "list", "storage.k8s.io", "volumeattachments", "", "", "", false},
}

// checkAccess asks the server what the accounts of deploy/topodisk.yaml may do,
// as it is installed there.
func checkAccess(ctx context.Context, server *server, r *report) {
	for _, a := range accesses {
		reviews := server.client.AuthorizationV1().SubjectAccessReviews()
		review, err := reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:kube-system:" + a.account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: a.verb, Group: a.group, Resource: a.resource, Subresource: a.subresource, Namespace: a.namespace, Name: a.name,
			},
		}}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed != a.allowed {
			err = fmt.Errorf("the server says %v, want %v: %s", review.Status.Allowed, a.allowed, review.Status.Reason)
		}
		r.add("deploy/topodisk.yaml", fmt.Sprintf("%s may %s %s %s %s: %v", a.account, a.verb, a.resource, a.subresource, a.name, a.allowed), err)
	}
}
