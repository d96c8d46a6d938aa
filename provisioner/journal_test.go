package provisioner

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
)

// A later version's fields are passed over, and what it has written in another format nobody begins anew.
func TestARecordOfALaterVersionIsKept(t *testing.T) {
	known, err := requestFor(t, 0).Encode()
	must(t, err)
	records := map[string]string{
		"uid-0": strings.Replace(string(known), "{", `{"since":{"version":2},`, 1),
		"uid-1": `{"format":2}`,
	}
	api := fake.NewClientset(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "journal-0", ResourceVersion: "1"}, Data: records})
	s := journal.New(api, nil, "kube-system", "journal", func() {})
	requests, unknown, err := readRequests(t.Context(), s)
	if err != nil || unknown != 1 || len(requests) != 1 || requests[0].Claim.UID != "uid-0" {
		t.Fatalf("read %d requests, %d of another version, %v", len(requests), unknown, err)
	}
	b := newBench(t, []answer{made("d-1", 0, "zone-a")})
	b.claims.Journal = s
	claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.UID = "uid-1" })
	b.show(t, claim, provisionertest.Class(nil))
	b.claims.Start(claim)
	end := b.provisions(t.Context())
	var said string
	provisionertest.Eventually(t, "the claim's owner is told", func() bool { said = strings.Join(provisionertest.Events(b.events), "\n"); return said != "" })
	end()
	if creates, _ := b.driver.Calls(); creates != 0 || !strings.Contains(said, "key uid-1 of ConfigMap kube-system/journal-0") {
		t.Errorf("the request of a later format was begun again: %d calls, events %q", creates, said)
	}
}

// A leader repeats the requests of the journal but for those whose volume has a PersistentVolume, whose records end.
func TestALeaderRepeatsTheRequestsOfTheJournal(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.Namespace = "kube-system" })
	records := map[string]string{}
	for n := range 2 {
		record, err := requestFor(t, n).Encode()
		must(t, err)
		records[string(requestFor(t, n).Claim.UID)] = string(record)
	}
	name := request.JournalName(provisionertest.DriverName) + "-0"
	must(t, b.api.Tracker().Add(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, ResourceVersion: "1"}, Data: records}))
	b.show(t, provisionertest.Volume("d-0", func(pv *v1.PersistentVolume) {
		pv.Spec.ClaimRef.UID, pv.Annotations[request.AnnVolumeName] = "uid-0", requestFor(t, 0).Create.Name
	}))
	must(t, b.recoverRequests(t.Context()))
	if open := b.claims.Requests(); len(open) != 1 || open[0].Claim.UID != "uid-1" {
		t.Errorf("%d requests are repeated, want that of uid-1: %v", len(open), open)
	}
	if size := b.journal.Size(); size >= len(records["uid-0"])+len(records["uid-1"]) {
		t.Errorf("the record of a volume that is saved has not ended: %d bytes", size)
	}
}
