//go:build e2e

package e2e

import (
	"context"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
)

// labelFlags are what the chart makes of diskProvisioner.claimLabelTags and namespaceLabelTags.
var labelFlags = append([]string{"--claim-label-tags=team", "--namespace-label-tags=cost-center,team"}, quickElection...)

// TestLabelsBecomeTagsAndAreFrozen: a disk has the tags that its claim and namespace asked for when ECS was first called
// for it, though the call has no answer, the labels change and the provisioner is killed; and those of the installation.
func TestLabelsBecomeTagsAndAreFrozen(t *testing.T) {
	s := newScene(t)
	s.allowNamespaces()
	s.Cleanup(s.restartController)
	s.restartDriver("--extra-tags=stage=test,cost-center=shared")
	s.stopProvisioner()
	s.label("4711")
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, labelFlags...))
	class := s.Class(atOnce, map[string]string{"type": "cloud_essd", "diskTags": "owner:storage"})

	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultError, Status: 503, Code: "ServiceUnavailable"})
	s.Claim("data", class, "20Gi", func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"team": "web", "app": "shop"} })
	s.WaitFor("ECS is asked for a disk", soon, func(context.Context) (bool, error) { return len(s.creates("data")) > 0, nil })
	s.label("1")
	_, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Patch(s.Context(), "data",
		types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"db"}}}`), metav1.PatchOptions{})
	s.Must(err)
	s.Topodisk.Kill(lab.ProvisionerName)
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, labelFlags...))
	s.Must(s.Simulator.ClearFaults(s.Context()))

	_, d := s.bound("data", late)
	for key, want := range map[string]string{"team": "web", "cost-center": "4711", "stage": "test", "owner": "storage", "app": ""} {
		if d.Tags[key] != want {
			t.Errorf("tag %s is %q, want %q (%v)", key, d.Tags[key], want, d.Tags)
		}
	}
	calls := s.creates("data")
	for _, call := range calls {
		if !maps.Equal(tagsOf(call), tagsOf(calls[0])) {
			t.Errorf("one CreateDisk asks for tags %v, another for %v", tagsOf(calls[0]), tagsOf(call))
		}
	}
	s.Claim("later", class, "20Gi")
	if _, d := s.bound("later", late); d.Tags["cost-center"] != "1" || d.Tags["team"] != "" {
		t.Errorf("a claim without labels, after its namespace's has changed: %v", d.Tags)
	}
}

// label gives the scene's namespace a cost center.
func (s *scene) label(costCenter string) {
	s.Helper()
	_, err := s.Client.CoreV1().Namespaces().Patch(s.Context(), s.Namespace,
		types.MergePatchType, []byte(`{"metadata":{"labels":{"cost-center":"`+costCenter+`"}}}`), metav1.PatchOptions{})
	s.Must(err)
}

// allowNamespaces lets the provisioner watch namespaces, as the chart's diskProvisioner.namespaceLabelTags does. It stays,
// for at the end all requests are held against what is granted.
func (s *scene) allowNamespaces() {
	s.Helper()
	meta := metav1.ObjectMeta{Name: "topodisk-namespace-labels"}
	role := &rbacv1.ClusterRole{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}}}}
	_, err := s.Client.RbacV1().ClusterRoles().Create(s.Context(), role, metav1.CreateOptions{})
	s.Must(err)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "topodisk-controller", Namespace: metav1.NamespaceSystem}},
	}
	_, err = s.Client.RbacV1().ClusterRoleBindings().Create(s.Context(), binding, metav1.CreateOptions{})
	s.Must(err)
}
