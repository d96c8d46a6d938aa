package attempt

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
)

// queued is a Table whose claims come into a list.
type queued struct {
	*Table
	claims []types.UID
	now    time.Time
}

func newQueued() *queued {
	q := &queued{now: time.Unix(1_700_000_000, 0)}
	q.Table = NewTable(Limits{RetryStart: time.Second, RetryMax: time.Minute, NodeGrace: time.Minute}, func(claim types.UID) { q.claims = append(q.claims, claim) })
	return q
}

// start begins with a claim of a class whose selected node is named, and brings it to the result of Resolve.
func (q *queued) start(uid types.UID, class, node string, result Event) {
	claim := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class)}}
	claim.UID, claim.ResourceVersion, claim.Annotations = uid, "1", map[string]string{request.AnnSelectedNode: node}
	q.Begin(uid, Started{claim})
	q.Next(uid, q.now)
	q.Result(uid, result, q.now)
	q.Done(uid)
}

// woken returns the claims that come into the queue by what is done.
func (q *queued) woken(do func()) []types.UID {
	q.claims = nil
	do()
	slices.Sort(q.claims)
	return q.claims
}

// What changes wakes those that it may help, and nobody else.
func TestAChangeWakesAffectedClaims(t *testing.T) {
	q, err := newQueued(), errors.New("no zone")
	q.start("on-1", "fast", "node-1", Resolved{Verdict: NodeUnready, Err: err})
	q.start("on-2", "slow", "node-2", Resolved{Verdict: NodeUnready, Err: err})
	q.start("nowhere", "slow", "node-2", Resolved{Verdict: NoTopology, Err: err})
	q.start("not-ours", "fast", "", Resolved{Verdict: NotNow})
	q.start("away", "slow", "node-2", Resolved{Verdict: NotYet, Err: err, Transient: true})
	for what, c := range map[string]struct {
		do   func()
		want []types.UID
	}{
		"a node":                   {func() { q.NodeChanged("node-1") }, []types.UID{"nowhere", "on-1"}},
		"a node that nobody has":   {func() { q.NodeChanged("node-3") }, []types.UID{"nowhere"}},
		"a class":                  {func() { q.ClassChanged("fast") }, []types.UID{"not-ours", "on-1"}},
		"the driver":               {func() { q.DriverBack() }, []types.UID{"away", "on-1", "on-2"}},
		"a claim without a Record": {func() { q.Post("unknown", Woken{}) }, nil},
	} {
		if got := q.woken(c.do); !slices.Equal(got, c.want) {
			t.Errorf("%s: woke %v, want %v", what, got, c.want)
		}
	}
}

// A change of a node is nothing to a claim that has returned to the scheduler, and a Record that has ended is dropped.
func TestUnaffectedClaimsAreNotWoken(t *testing.T) {
	q := newQueued()
	q.start("gone", "fast", "node-1", Resolved{Verdict: NodeGone, Err: errors.New("no node")})
	q.Result("gone", NodeChecked{}, q.now)
	q.start("served", "fast", "node-1", Resolved{Verdict: NodeUnready, Err: errors.New("no driver")})
	q.Post("gone", ClaimGone{})
	q.Next("gone", q.now)
	q.Done("gone")
	q.Post("served", Woken{})
	q.Next("served", q.now)
	q.Result("served", Resolved{Verdict: NotYet, Err: errors.New("no secret")}, q.now)
	if got := q.woken(func() { q.NodeChanged("node-2") }); len(got) != 0 {
		t.Errorf("woke %v", got)
	}
	if got := q.woken(func() { q.NodeChanged("node-1") }); !slices.Equal(got, []types.UID{"served"}) {
		t.Errorf("woke %v", got)
	}
	if len(q.records) != 1 {
		t.Errorf("%d Records are kept", len(q.records))
	}
}

// A claim whose selected node can't be removed is not one that another node would not help.
func TestAClaimThatKeepsItsNodeIsAwaited(t *testing.T) {
	q := newQueued()
	q.start("stuck", "fast", "node-1", Resolved{Verdict: NodeNotAllowed, Err: errors.New("no zone")})
	q.Result("stuck", NodeRemoved{Err: errors.New("denied")}, q.now)
	q.start("failed", "fast", "node-1", Resolved{Verdict: NotYet, Err: errors.New("no secret")})
	for claim, want := range map[types.UID]Progress{"stuck": InAttempt, "failed": Failed} {
		if got, _ := q.Standing(claim); got != want || q.Phase(claim) != Waiting {
			t.Errorf("%s: got %d, want %d; its Record is %v", claim, got, want, q.Phase(claim))
		}
	}
}

// What has happened while an action was under way counts before its result.
func TestEventsPrecedeTheResult(t *testing.T) {
	q := newQueued()
	claim := &v1.PersistentVolumeClaim{}
	claim.UID = "c"
	q.Begin("c", Started{claim})
	q.Next("c", q.now)
	q.Post("c", ClaimGone{})
	told := 0
	tell := func() { told++ }
	actions := q.Result("c", Resolved{Verdict: Invalid, Err: status.Error(codes.InvalidArgument, "no")}, q.now)
	if len(actions) != 0 || q.Phase("c") != Ended || q.Settled("c", "pv", tell) || q.Settled("c", "pv", tell) || told != 0 {
		t.Errorf("for a claim that is gone: %v, its Record is %v", actions, q.Phase("c"))
	}
	if q.Done("c"); q.Phase("c") != New || told != 1 || !q.Settled("c", "pv", tell) {
		t.Errorf("after all is done its Record is %v, and who waited was told %d times", q.Phase("c"), told)
	}
}
