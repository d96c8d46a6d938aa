package audit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

// auditLines are requests of one account and of another, written by a real API server but for what nobody reads here.
const auditLines = `{"verb":"patch","userAgent":"disk-provisioner/v0 (linux/amd64)","user":{"username":"me"},"objectRef":{"resource":"persistentvolumes","name":"d-1"},"responseStatus":{"code":200},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"patch","userAgent":"csi-resizer/v0","user":{"username":"me"},"objectRef":{"resource":"persistentvolumeclaims","namespace":"shop","name":"data","subresource":"status"},"responseStatus":{"code":200}}
{"verb":"update","userAgent":"disk-provisioner/v0","user":{"username":"me"},"objectRef":{"resource":"configmaps","namespace":"kube-system","name":"other"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"delete","userAgent":"disk-provisioner/v0","user":{"username":"somebody"},"objectRef":{"resource":"nodes","name":"n"},"responseStatus":{"code":200}}
{"verb":"watch","userAgent":"disk-provisioner/v0","user":{"username":"me"},"objectRef":{"apiGroup":"storage.k8s.io","resource":"csinodes"},"responseStatus":{"code":200}}
{"verb":"get","userAgent":"disk-provisioner/v0","user":{"username":"me"},"responseStatus":{"code":200}}
`

func TestUsageTellsWhatIsRefusedAndWhatNobodyUses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	begun := auditLines + `{"verb":"get","user`
	if err := os.WriteFile(path, []byte(begun), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	rule := func(group, resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
	}
	u := &Usage{Account: "me", Owners: map[string]string{"provisioner": "disk-provisioner", "journal": "disk-provisioner", "attacher": "csi-attacher"}}
	u.Granted = append(u.Granted, permissions("t-provisioner", "", []rbacv1.PolicyRule{
		rule("", "persistentvolumes", nil, "patch", "delete"), rule("storage.k8s.io", "csinodes", nil, "list", "watch"),
	})...)
	u.Granted = append(u.Granted, permissions("t-journal", "kube-system", []rbacv1.PolicyRule{rule("", "configmaps", []string{"page"}, "update")})...)
	u.Granted = append(u.Granted, permissions("t-attacher", "", []rbacv1.PolicyRule{rule("", "persistentvolumeclaims/status", nil, "patch")})...)
	requests, err := log.Read()
	if err != nil {
		t.Fatal(err)
	}
	u.Add(requests)
	if diff := cmp.Diff([]string{
		"csi-resizer: patch persistentvolumeclaims/status shop/data", // granted, to another program
		"disk-provisioner: update configmaps kube-system/other",
	}, u.Refused()); diff != "" {
		t.Errorf("refused are (-want +got):\n%s", diff)
	}
	rare := map[string]string{"t-provisioner: list csinodes.storage.k8s.io": "", "t-provisioner: eat nodes": ""}
	if diff := cmp.Diff([]string{
		"t-journal: update configmaps by name",
		"t-provisioner: delete persistentvolumes",
		"t-provisioner: eat nodes, which is called rare and isn't granted",
	}, u.Unused([]string{"disk-provisioner"}, rare)); diff != "" {
		t.Errorf("unused are (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(path, []byte(begun+"Agent\":\"x/1\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if more, err := log.Read(); err != nil || len(more) != 1 || more[0].Program() != "x" || more[0].Succeeded() || !more[0].Is("get", "") {
		t.Errorf("the line that was half written is read as %v, %v", more, err)
	}
}
