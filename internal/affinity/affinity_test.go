package affinity

import (
	"slices"
	"testing"

	"google.golang.org/grpc/metadata"
)

func TestAnAffinityArrivesWithTheCall(t *testing.T) {
	if a := Of(t.Context()); a.Regions != nil || a.Zones != nil {
		t.Errorf("without one: %v", a)
	}
	sent, _ := metadata.FromOutgoingContext(With(t.Context(), Affinity{Regions: []string{"r"}, Zones: []string{"z-1", "z-2"}}))
	got := Of(metadata.NewIncomingContext(t.Context(), sent))
	if !slices.Equal(got.Regions, []string{"r"}) || !slices.Equal(got.Zones, []string{"z-1", "z-2"}) {
		t.Errorf("it arrives as %v", got)
	}
}
