// Package affinity is how disk-provisioner tells disk-driver where the PersistentVolume of a DeleteVolume says that its disk is: a region
// that doesn't have a disk can't tell whether another one has it.
package affinity

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// The gRPC metadata of a DeleteVolume.
const (
	regionKey = "topodisk-region"
	zoneKey   = "topodisk-zone"
)

// Affinity is what a PersistentVolume's node affinity demands of the labels of regions and zones. Empty: nothing.
type Affinity struct{ Regions, Zones []string }

// With returns the context of a DeleteVolume that tells an affinity.
func With(ctx context.Context, a Affinity) context.Context {
	for key, values := range map[string][]string{regionKey: a.Regions, zoneKey: a.Zones} {
		for _, value := range values {
			ctx = metadata.AppendToOutgoingContext(ctx, key, value)
		}
	}
	return ctx
}

// Of returns the affinity that a DeleteVolume came with.
func Of(ctx context.Context) Affinity {
	md, _ := metadata.FromIncomingContext(ctx)
	return Affinity{Regions: md.Get(regionKey), Zones: md.Get(zoneKey)}
}
