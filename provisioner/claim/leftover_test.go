package claim

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/unused"
	"github.com/topodisk/topodisk/provisioner/request"
)

// journalled returns the request for a claim as an earlier process has left it in the journal.
func (b *bench) journalled(t *testing.T, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) *request.Request {
	t.Helper()
	must(t, b.Classes.Add(class))
	asked, err := b.newRequest(t.Context(), claim)
	must(t, err)
	encoded, err := asked.Encode()
	must(t, err)
	left, err := request.Decode(encoded)
	must(t, err)
	return left
}

// recovered repeats a request of an earlier process for a claim, of which nil says that it is gone.
func (b *bench) recovered(t *testing.T, claim *v1.PersistentVolumeClaim) {
	t.Helper()
	left := b.journalled(t, testClaim(), testClass(nil))
	if claim != nil {
		must(t, b.Claims.Add(claim))
	}
	b.Recover(left)
	_, _, _ = b.attempt(t.Context(), left.Claim.UID)
}

func TestARecordDeletesNoUsedVolume(t *testing.T) {
	used := unused.Refuse(status.New(codes.FailedPrecondition, "it was attached before")).Err()
	for what, test := range map[string]struct {
		knows   bool
		answer  error
		deletes int
		says    string // nothing: it is deleted
	}{
		"it was never used":        {knows: true, deletes: 1},
		"it was used":              {knows: true, answer: used, deletes: 1, says: "it was attached before"},
		"the driver does not tell": {says: "does not tell whether it was ever used"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")})
			b.DriverKnowsUse = test.knows
			b.driver.Answers = []error{test.answer}
			b.recovered(t, nil)
			events := b.said()
			kept := strings.Contains(events, "VolumeKept") && strings.Contains(events, "d-bp1") && strings.Contains(events, test.says)
			if _, deletes := b.driver.Calls(); deletes != test.deletes || b.open() != 0 || kept != (test.says != "") {
				t.Errorf("%d DeleteVolume calls, %d requests are open, events %q", deletes, b.open(), events)
			}
			volumes, err := b.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
			if err != nil || len(volumes.Items) > 0 || strings.Contains(events, reasonSucceeded) {
				t.Errorf("it has a PersistentVolume again: %v, %v, events %q", volumes.Items, err, events)
			}
		})
	}
}

// What was not needed once and could not be deleted says nothing of the volume that the claim gets when it needs one.
func TestAClaimThatNeedsAVolumeAgainGetsOne(t *testing.T) {
	b := newBench(t, []answer{unavailable(), made("d-bp1", 20*gib, "zone-a")}, testClaim())
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	b.claims["0f1e"].failure = &failure{kind: undeleted, err: errors.New("by chance")}
	pv, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	if err != nil || pv == nil || pv.Spec.CSI.VolumeHandle != "d-bp1" {
		t.Errorf("PersistentVolume %v, %v; events %q", pv, err, b.said())
	}
}
