package claim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/watch"
)

func TestInvalidClaimsDoNotCallTheDriver(t *testing.T) {
	source := func(group, kind string) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: "src"}
		}
	}
	tests := map[string]struct {
		claim      func(*v1.PersistentVolumeClaim)
		parameters map[string]string
		want       []string
	}{
		"selector": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} },
			want:  []string{"claim.spec.selector", "remove it"},
		},
		"attributes class": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("fast") },
			want:  []string{"volumeAttributesClassName=fast"},
		},
		"clone":    {claim: source("", "PersistentVolumeClaim"), want: []string{"claim.spec.dataSource", "src"}},
		"snapshot": {claim: source("snapshot.storage.k8s.io", "VolumeSnapshot"), want: []string{"claim.spec.dataSource", "src"}},
		"secret that is not there": {
			parameters: map[string]string{"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "vault"},
			want:       []string{"secret vault/x", "not found"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			claim := testClaim()
			if test.claim != nil {
				test.claim(claim)
			}
			_, meaning, err := b.provision(t.Context(), claim, testClass(test.parameters), "node-1")
			if meaning != notSent || err == nil {
				t.Fatalf("got %v, %v", meaning, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if creates, _ := b.driver.Calls(); creates != 0 {
				t.Errorf("the driver was asked %d times", creates)
			}
		})
	}
}

func TestAClassThatTheCacheDoesNotShowYetIsFound(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")}, testClass(nil))
	claim := testClaim()
	must(t, b.Claims.Add(claim))
	b.Start(claim)
	if pv, _, err := b.attempt(t.Context(), claim.UID); pv == nil || err != nil {
		t.Errorf("got %v, %v", pv, err)
	}
	if creates, _ := b.driver.Calls(); creates != 1 {
		t.Errorf("the driver was called %d times: %v", creates, b.drained())
	}
}

func TestNoRequirementWithoutTopologySupport(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	b.SupportsTopology = false
	if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err != nil {
		t.Fatal(err)
	}
	if got := b.driver.Created[0].AccessibilityRequirements; got != nil {
		t.Errorf("got %v", got)
	}
}

func TestADeletedSecretDoesNotStopARetry(t *testing.T) {
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "x"}, Data: map[string][]byte{"k": []byte("v1")}}
	b := newBench(t, []answer{unavailable()}, secret)
	class := testClass(map[string]string{"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "vault"})
	try := func() { _, _, _ = b.provision(t.Context(), testClaim(), class, "node-1") }
	try()
	secret.Data["k"] = []byte("v2")
	if _, err := b.api.CoreV1().Secrets("vault").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	try()
	if err := b.api.CoreV1().Secrets("vault").Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	try()
	for i, want := range []string{"v1", "v2", "v2"} {
		if got := b.driver.Created[i].Secrets["k"]; got != want {
			t.Errorf("call %d had %q, want %q", i, got, want)
		}
	}
}

// With no secrets the driver makes the disk in its own account, at the operator's expense.
func TestASecretWithoutDataIsNoReasonForTheDriversOwnAccount(t *testing.T) {
	b := newBench(t, []answer{made("d-1", 20*gib, "zone-a")}, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "keys"}})
	_, _, err := b.provision(t.Context(), testClaim(), testClass(tenantsSecret), "node-1")
	if calls, _ := b.driver.Calls(); calls > 0 || !strings.Contains(fmt.Sprint(err), "secret shop/keys has no data") {
		t.Errorf("%d calls: %v", calls, err)
	}
	if missing := (watch.Object{Resource: watch.Secrets, Namespace: "shop", Name: "keys"}); watch.NotReadyObject(err) != missing {
		t.Errorf("the claim waits for %v", watch.NotReadyObject(err))
	}
}

// What another account says of a disk that may have been made in this one is no outcome.
func TestASecretThatLosesItsDataEndsNoRequest(t *testing.T) {
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "keys"}, Data: map[string][]byte{"k": []byte("v")}}
	b := newBench(t, []answer{unavailable()}, secret)
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(tenantsSecret), "node-1")
	if b.state("0f1e") != "unknown" {
		t.Fatal(b.state("0f1e"))
	}
	secret.Data = nil
	_, err := b.api.CoreV1().Secrets("shop").Update(t.Context(), secret, metav1.UpdateOptions{})
	must(t, err)
	b.clock = b.clock.Add(time.Hour)
	_, _, _ = b.attempt(t.Context(), "0f1e")
	if calls, _ := b.driver.Calls(); calls != 2 || b.driver.LastCreated().Secrets["k"] != "v" {
		t.Errorf("call %d of 2 had the secrets %v", calls, b.driver.LastCreated().Secrets)
	}
}

// tenantsSecret are the parameters of a class whose claims bring a Secret each.
var tenantsSecret = map[string]string{"csi.storage.k8s.io/secret-name": "keys", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}"}

func TestMisleadingAllowedTopologiesAreReported(t *testing.T) {
	allowed, deserted := []v1.TopologySelectorTerm{{}}, provisionertest.InZone("zone-x")
	deserted.Deserted = true
	tests := map[string]struct {
		zones   *provisionertest.Topology
		allowed []v1.TopologySelectorTerm
		want    string // in the only event; empty for none
	}{
		"as they seem":          {zones: provisionertest.InZone("zone-a"), allowed: allowed},
		"an empty term":         {zones: &provisionertest.Topology{}, allowed: allowed, want: "empty term"},
		"a zone without a node": {zones: deserted, allowed: allowed, want: "zone-x"},
		"none are given":        {zones: &provisionertest.Topology{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
			b.Topology = test.zones
			class := testClass(nil)
			class.AllowedTopologies = test.allowed
			if _, _, err := b.provision(t.Context(), testClaim(), class, ""); err != nil {
				t.Fatal(err)
			}
			events := slices.DeleteFunc(b.drained(), func(event string) bool { return !strings.Contains(event, reasonTopology) })
			if test.want == "" && len(events) > 0 || test.want != "" && (len(events) != 1 || !strings.Contains(events[0], test.want)) {
				t.Errorf("events %q, want %q", events, test.want)
			}
		})
	}
}
