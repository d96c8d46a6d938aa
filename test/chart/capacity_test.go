package chart

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/google/go-cmp/cmp"
)

// Without the rights to undo it, --enable-capacity=false would leave the scheduler with what was sold out at that moment.
func TestWithoutCapacityItMayBeUndone(t *testing.T) {
	values := preset(t, "minimal", "{diskProvisioner: {enableCapacity: false}}")
	i := slices.IndexFunc(decode[rbacv1.ClusterRole](t, values, "ClusterRole"), func(r rbacv1.ClusterRole) bool {
		return r.Name == "topodisk-provisioner" && slices.Contains(rules(r.Rules), "storage.k8s.io/csidrivers[diskplugin.csi.alibabacloud.com]: get patch")
	})
	if i < 0 {
		t.Error("no ClusterRole topodisk-provisioner with csidrivers: get patch")
	}
	var got []string
	for _, role := range decode[rbacv1.Role](t, values, "Role") {
		if role.Name == "topodisk-capacities" {
			got = rules(role.Rules)
		}
	}
	if diff := cmp.Diff([]string{"storage.k8s.io/csistoragecapacities[]: list update delete"}, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	upstream := preset(t, "upstream-provisioner", "{diskProvisioner: {enableCapacity: false}}")
	for _, role := range decode[rbacv1.Role](t, upstream, "Role") {
		if role.Name == "topodisk-capacities" {
			t.Error("Kubernetes' csi-provisioner gets rights that it has no use for")
		}
	}
}
