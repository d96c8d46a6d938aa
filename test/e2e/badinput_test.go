//go:build e2e

package e2e

import (
	"context"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/topology"
)

// requestID is ECS's, a UUID in capitals.
var requestID = regexp.MustCompile(`[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}`)

// badInputs are claims that no retry helps, and what their events must say: what is wrong, and what is allowed.
var badInputs = []struct {
	name       string
	parameters map[string]string
	class      func(*storagev1.StorageClass)
	claim      func(*corev1.PersistentVolumeClaim)
	size       string
	says       []string
}{
	{name: "unknown-parameter", parameters: map[string]string{"typ": "cloud_essd"}, says: []string{"InvalidArgument", "typ", "allowed"}},
	{name: "unknown-type", parameters: map[string]string{"type": "cloud_turbo"}, says: []string{"InvalidArgument", "cloud_turbo", "cloud_essd"}},
	{name: "no-boolean", parameters: map[string]string{"encrypted": "perhaps"}, says: []string{"InvalidArgument", "encrypted", "perhaps"}},
	{name: "key-without-encryption", parameters: map[string]string{"kmsKeyId": "0f1e"}, says: []string{"InvalidArgument", "kmsKeyId", "encrypted"}},
	{name: "own-parameter-misspelt", parameters: map[string]string{"topodisk.io/strict": "true"},
		says: []string{"topodisk.io/strict", "topodisk.io/strict-topology"}},
	{name: "two-filesystems", parameters: map[string]string{"fsType": "ext4", "csi.storage.k8s.io/fstype": "xfs"},
		says: []string{"fsType", "csi.storage.k8s.io/fstype"}},
	{name: "too-large", parameters: map[string]string{"type": "cloud_ssd"}, size: "40Ti", says: []string{"OutOfRange", "32768"}},
	{name: "too-small", parameters: map[string]string{"type": "cloud_essd", "performanceLevel": "PL3"}, size: "20Gi", says: []string{"OutOfRange", "1261"}},
	// D6: what no stock could meet.
	{name: "more-iops-than-ecs-provisions", parameters: map[string]string{"type": "cloud_auto", "provisionedIops": "9999999"},
		says: []string{"OutOfRange", "provisionedIops: 9999999", "0 to 17000"}},
	{name: "bursting-of-a-small-disk", parameters: map[string]string{"type": "cloud_auto", "burstingEnabled": "true"},
		size: "3Gi", says: []string{"OutOfRange", "burstingEnabled", "3 GiB"}},
	{name: "several-nodes-of-a-type-for-one", parameters: map[string]string{"type": "cloud_ssd", "multiAttach": "true"},
		says: []string{"InvalidArgument", "cloud_ssd can't be attached to several nodes"}},
	{name: "malformed-zones", parameters: map[string]string{"zoneId": "cn-hangzhou-h,,"}, says: []string{"InvalidArgument", "zoneId"}},
	{name: "foreign-zone", parameters: map[string]string{"zoneId": "cn-hangzhou-z"}, says: []string{"InvalidArgument", "cn-hangzhou-z"}},
	{name: "two-zones-in-one-term", class: func(c *storagev1.StorageClass) {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: topology.ZoneKey, Values: []string{"cn-hangzhou-h"}}, {Key: topology.WellKnownZoneKey, Values: []string{"cn-hangzhou-i"}},
		}}}
	}, says: []string{"cn-hangzhou-h", "cn-hangzhou-i"}},
	{name: "selector", claim: func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	}, says: []string{"selector", "remove"}},
	{name: "secret-that-is-not-there", parameters: map[string]string{
		"csi.storage.k8s.io/secret-name": "absent", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
	}, says: []string{"absent", "not found"}},
	{name: "secret-without-namespace", parameters: map[string]string{"csi.storage.k8s.io/secret-name": "a"},
		says: []string{"csi.storage.k8s.io/secret-name", "csi.storage.k8s.io/secret-namespace"}},
	{name: "secret-with-unknown-token", parameters: map[string]string{
		"csi.storage.k8s.io/secret-name": "${pvc.color}", "csi.storage.k8s.io/secret-namespace": "default",
	}, says: []string{"pvc.color", "pvc.name"}},
}

func TestBadInputIsToldOnTheClaimAndMakesNoDisk(t *testing.T) {
	s := newScene(t)
	s.allowSecrets()
	for _, c := range badInputs {
		var classes []func(*storagev1.StorageClass)
		if c.class != nil {
			classes = append(classes, c.class)
		}
		class := s.Class(atOnce, c.parameters, classes...)
		size := "20Gi"
		if c.size != "" {
			size = c.size
		}
		if c.claim != nil {
			s.Claim(c.name, class, size, c.claim)
		} else {
			s.Claim(c.name, class, size)
		}
	}
	for _, c := range badInputs {
		t.Run(c.name, func(t *testing.T) {
			inner := &scene{Scene: s.In(t), selections: s.selections}
			inner.awaitEvent(c.name, soon, c.says...)
			if calls := inner.creates(c.name); len(calls) > 0 {
				t.Errorf("ECS got %d CreateDisk calls", len(calls))
			}
		})
	}
	s.checkBackOff()
}

// checkBackOff watches the attempts grow rare for ten seconds: with a first wait of 0.5 s that doubles, a claim has had
// at most 1 + log2(1 + age/0.5s) of them, and one that has just begun.
func (s *scene) checkBackOff() {
	s.Helper()
	s.WaitFor("ten seconds pass without too many attempts", soon, func(context.Context) (bool, error) {
		youngest := time.Hour
		for _, c := range badInputs {
			age, attempts := s.attempts(c.name)
			if most := 2 + int(math.Log2(1+age.Seconds()/0.5)); attempts > most {
				s.Fatalf("claim %s: %d attempts in %s, want at most %d", c.name, attempts, age.Round(time.Second), most)
			}
			youngest = min(youngest, age)
		}
		return youngest >= 10*time.Second, nil
	})
}

// attempts counts the failures for the claim's class, which is its own, and says how old the first is. Its events don't
// tell, for the same event is written once a minute.
func (s *scene) attempts(claim string) (age time.Duration, count int) {
	s.Helper()
	events, err := s.Events(s.Context(), s.Namespace, claim)
	s.Must(err)
	for _, e := range events {
		if e.Reason == "ProvisioningFailed" {
			age = max(age, time.Since(e.FirstTimestamp.Time))
		}
	}
	object, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.Context(), claim, metav1.GetOptions{})
	s.Must(err)
	failures := regexp.MustCompile(`controller_persistentvolumeclaim_provision_failed_total\{class="` + *object.Spec.StorageClassName + `"\} (\d+)`)
	if found := failures.FindStringSubmatch(s.metrics()); found != nil {
		count, err = strconv.Atoi(found[1])
		s.Must(err)
	}
	if count == 0 {
		s.Fatalf("claim %s: its class has no failures in the metrics", claim)
	}
	return age, count
}

// metrics are disk-provisioner's.
func (s *scene) metrics() string {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.URL(lab.ProvisionerName, "/metrics"), nil)
	s.Must(err)
	response, err := http.DefaultClient.Do(request)
	s.Must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	s.Must(err)
	return string(body)
}

// allowSecrets lets the provisioner read Secrets of the scene's namespace, as the chart's rbac.provisionerSecrets does.
func (s *scene) allowSecrets() {
	s.Helper()
	meta := metav1.ObjectMeta{Name: "topodisk-provisioner-secrets"}
	role := &rbacv1.Role{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "watch"}}}}
	_, err := s.Client.RbacV1().Roles(s.Namespace).Create(s.Context(), role, metav1.CreateOptions{})
	s.Must(err)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "topodisk-controller", Namespace: metav1.NamespaceSystem}},
	}
	_, err = s.Client.RbacV1().RoleBindings(s.Namespace).Create(s.Context(), binding, metav1.CreateOptions{})
	s.Must(err)
}
