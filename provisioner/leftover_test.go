package provisioner

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/internal/unused"
	"github.com/topodisk/topodisk/provisioner/attempt"
)

// recovered repeats a request of an earlier process for a claim, of which nil says that it is gone.
func (b *bench) recovered(t *testing.T, claim *v1.PersistentVolumeClaim) {
	t.Helper()
	class := testClass(nil)
	must(t, b.resolver.classes.Add(class))
	b.attempts.Begin("0f1e", attempt.Recovered{Request: b.planned(t, testClaim(), class).Request})
	if claim == nil {
		b.attempts.Post("0f1e", attempt.ClaimGone{})
	} else {
		b.attempts.Post("0f1e", attempt.ClaimChanged{Claim: claim})
	}
	b.exec.work(t.Context(), types.UID("0f1e"))
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
			config := testConfig()
			config.DriverKnowsUse = test.knows
			b.configure(config)
			b.driver.Answers = []error{test.answer}
			b.recovered(t, nil)
			events := strings.Join(b.drained(), "\n")
			kept := strings.Contains(events, "VolumeKept") && strings.Contains(events, "d-bp1") && strings.Contains(events, test.says)
			if _, deletes := b.driver.calls(); deletes != test.deletes || b.open() != 0 || kept != (test.says != "") {
				t.Errorf("%d DeleteVolume calls, %d requests are open, events %q", deletes, b.open(), events)
			}
			volumes, err := b.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
			if err != nil || len(volumes.Items) > 0 || strings.Contains(events, reasonSucceeded) {
				t.Errorf("it has a PersistentVolume again: %v, %v, events %q", volumes.Items, err, events)
			}
		})
	}
}
