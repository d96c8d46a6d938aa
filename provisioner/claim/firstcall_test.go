package claim

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// The driver looks for no disk if it hears that there is none, so it must be so.
func TestOnlyFirstCallsAreMarked(t *testing.T) {
	refused := func(code codes.Code) answer { return answer{Err: status.Error(code, "scripted")} }
	ok := made("d-1", 20*gib, "zone-a")
	for name, c := range map[string]struct {
		answers []answer
		age     time.Duration // of the claim when the process began to lead; negative: it is younger
		found   bool          // in the journal
		want    []bool
	}{
		"a claim made since we lead":              {answers: []answer{ok}, age: -time.Hour, want: []bool{true}},
		"a claim made before":                     {answers: []answer{ok}, age: time.Second, want: []bool{false}},
		"a claim made at about the time":          {answers: []answer{ok}, age: -time.Second, want: []bool{false}},
		"a request of an earlier process":         {answers: []answer{ok}, age: -time.Hour, found: true, want: []bool{false}},
		"after a refusal, nothing was made":       {answers: []answer{refused(codes.InvalidArgument), ok}, age: -time.Hour, want: []bool{true, true}},
		"after an unknown outcome, something may": {answers: []answer{refused(codes.Unavailable), ok}, age: -time.Hour, want: []bool{true, false}},
		"a final code ends an unknown outcome": {
			answers: []answer{refused(codes.Unavailable), refused(codes.InvalidArgument), ok}, age: -time.Hour, want: []bool{true, false, true},
		},
		"another disk has the name":          {answers: []answer{refused(codes.AlreadyExists), ok}, age: -time.Hour, want: []bool{true, false}},
		"ECS refused with a code of its own": {answers: []answer{refused(codes.Internal), ok}, age: -time.Hour, want: []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := testClaim(func(claim *v1.PersistentVolumeClaim) {
				claim.CreationTimestamp = metav1.NewTime(benchStart.Add(-c.age))
				claim.Annotations[request.AnnSelectedNode] = ""
			})
			b := newBench(t, c.answers, claim)
			b.Lead()
			for range c.want {
				if c.found {
					class := testClass(nil)
					class.VolumeBindingMode = nil
					must(t, b.Classes.Add(class))
					must(t, b.Claims.Add(claim))
					asked, err := b.newRequest(t.Context(), claim)
					must(t, err)
					asked.Claim = asked.Claim.DeepCopy()
					asked.Claim.ResourceVersion = "" // as from the journal
					b.Recover(asked)
					_, _, _ = b.attempt(t.Context(), claim.UID)
					continue
				}
				_, _, _ = b.provision(t.Context(), claim, testClass(nil), "")
			}
			if !slices.Equal(b.driver.First, c.want) {
				t.Errorf("said to be the first: %v, want %v", b.driver.First, c.want)
			}
		})
	}
}
