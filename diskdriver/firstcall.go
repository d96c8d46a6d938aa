package diskdriver

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// firstCallKey is the gRPC metadata of a CreateVolume whose caller can prove
// that it is the first for its name by anybody, or that all before ended without a
// disk: then none is looked for. disk-provisioner sends it; without it there is one
// read more.
const firstCallKey = "topodisk-first-call"

// isFirstCall says whether a call comes with that proof.
func isFirstCall(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(firstCallKey)
	return len(values) == 1 && values[0] == "true"
}
