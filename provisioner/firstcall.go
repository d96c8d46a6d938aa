package provisioner

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// firstCallKey is the gRPC metadata of a CreateVolume for a name of which no
	// volume exists or comes to exist from an earlier call: it spares the driver
	// looking for one.
	firstCallKey = "topodisk-first-call"

	// clockSkew is more than the clocks of two nodes are apart that keep time. If
	// they are further apart, the driver relies on ECS's client token for a claim
	// of that time.
	clockSkew = 2 * time.Second
)

// firstCalls tells which CreateVolume is surely the first for its claim, or comes
// after others that have all ended without a volume. Only of claims that were
// created since this process leads can it know that nobody else has asked.
type firstCalls struct {
	mu    sync.Mutex
	since time.Time              // when this process began to lead; zero: it doesn't
	asked map[types.UID]struct{} // claims that there may be a volume for
}

func newFirstCalls() *firstCalls { return &firstCalls{asked: make(map[types.UID]struct{})} }

// lead notes that no other process provisions from now on.
func (f *firstCalls) lead(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = now
}

// begin notes a call, and tells the driver if it is the first.
func (f *firstCalls) begin(ctx context.Context, o *order) context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, asked := f.asked[o.Claim.UID]
	f.asked[o.Claim.UID] = struct{}{}
	if asked || o.unknown || o.foundAgain || !f.isOurs(o.Claim) {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, firstCallKey, "true")
}

func (f *firstCalls) isOurs(claim *v1.PersistentVolumeClaim) bool {
	return !f.since.IsZero() && claim.CreationTimestamp.After(f.since.Add(clockSkew))
}

// end notes what a call was answered. A final code says that there is no volume,
// but for AlreadyExists.
func (f *firstCalls) end(o *order, err error) {
	if err != nil && outcomeOfCreate(err, false) == Finished && status.Code(err) != codes.AlreadyExists {
		f.forget(o.Claim.UID)
	}
}

// forget lets go of a claim that is gone, or whose volume is saved.
func (f *firstCalls) forget(claim types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.asked, claim)
}
