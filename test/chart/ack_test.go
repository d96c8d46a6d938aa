package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// trustPolicy is the part of a RAM role's trust policy that names who may take the role.
type trustPolicy struct {
	Statement []struct {
		Condition struct {
			StringEquals struct {
				Audience string `json:"oidc:aud"`
				Subject  string `json:"oidc:sub"`
			}
		}
	}
}

func TestTrustPolicyNamesTheChartsAccount(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repo, "docs/ack.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/ack.md has no trust policy")
	}
	var policy trustPolicy
	if err := json.Unmarshal(block[1], &policy); err != nil || len(policy.Statement) != 1 {
		t.Fatalf("the trust policy of docs/ack.md: %v, %d statements, want 1", err, len(policy.Statement))
	}
	trusted := policy.Statement[0].Condition.StringEquals
	values := preset(t, "minimal", `{credentials: {existingSecret: "", source: oidc, oidc: {roleARN: "acs:ram::1234567890123456:role/topodisk",
		providerARN: "acs:ram::1234567890123456:oidc-provider/ack-rrsa-c0123456789abcdef"}}}`)
	pod := controllerPod(t, values)
	if want := "system:serviceaccount:kube-system:" + pod.ServiceAccountName; trusted.Subject != want {
		t.Errorf("docs/ack.md trusts %s, the controller of a release topodisk runs as %s", trusted.Subject, want)
	}
	if got := tokenAudiences(pod); !slices.Equal(got, []string{trusted.Audience}) {
		t.Errorf("docs/ack.md wants the audience %s, the tokens of the controller are for %v", trusted.Audience, got)
	}
	manifests, _, err := Render(repo, values, Release{Name: "disks", Namespace: "kube-system"})
	if err != nil {
		t.Fatal(err)
	}
	if account := "disks-topodisk-controller"; !strings.Contains(manifests, "serviceAccountName: "+account) ||
		!strings.Contains(string(page), "`"+account+"`") {
		t.Errorf("docs/ack.md and the controller of a release disks do not both name the ServiceAccount %s", account)
	}
}

// tokenAudiences returns the audiences of a Pod's projected tokens.
func tokenAudiences(pod corev1.PodSpec) (audiences []string) {
	for _, v := range pod.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil && source.ServiceAccountToken.Audience != "" {
				audiences = append(audiences, source.ServiceAccountToken.Audience)
			}
		}
	}
	return audiences
}

func TestNodePluginSkipsVirtualNodesAlone(t *testing.T) {
	pod := daemonSet(t, preset(t, "minimal", "{}"), "topodisk-node").Spec.Template.Spec
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		t.Fatalf("the node plugin goes to virtual nodes: affinity %+v", pod.Affinity)
	}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	virtual := corev1.NodeSelectorRequirement{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet"}}
	if len(terms) != 1 || len(terms[0].MatchExpressions) != 1 || terms[0].MatchExpressions[0].String() != virtual.String() {
		t.Errorf("the node plugin goes to nodes with %+v, want all but %+v", terms, virtual)
	}
	if len(pod.NodeSelector) != 1 || pod.NodeSelector[corev1.LabelOSStable] != "linux" {
		t.Errorf("the node plugin goes to nodes with the labels %v, want those of Linux, of every architecture", pod.NodeSelector)
	}
	if !slices.Contains(pod.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists}) {
		t.Errorf("the node plugin tolerates %+v, want every taint", pod.Tolerations)
	}
}
