package capacity

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/topology"
)

// query asks the driver for the largest volumes of a class, regardless of refusals.
// Where the driver doesn't answer, the objects stay what they are. Where there is no
// object, and where the driver has no volume in any zone, a zone counts as unlimited.
func (c *Controller) query(ctx context.Context, class *storagev1.StorageClass, shown []*storagev1.CSIStorageCapacity) (sizes, error) {
	before, known := sizesOf(shown), sizes{general: math.MaxInt64, zones: map[string]int64{}}
	parameters, err := c.config.Parameters(class)
	asks := err == nil && c.config.GetCapacity // an event of each claim says what is wrong with a class
	var failed error
	largest := func(where *csi.Topology, before int64) int64 {
		if !asks {
			return math.MaxInt64
		}
		if failed != nil { // the driver is unavailable
			return before
		}
		bytes, err := c.getCapacity(ctx, parameters, where)
		switch {
		case status.Code(err) == codes.InvalidArgument:
			return math.MaxInt64 // an event of each claim says what is wrong with the class
		case err != nil:
			failed = fmt.Errorf("GetCapacity of class %s in %v: %w", class.Name, where.GetSegments(), err)
			return before
		}
		return bytes
	}
	if known.general = largest(nil, before.general); known.general == 0 {
		known.general = math.MaxInt64 // the driver doesn't know of zones without a node
	}
	for _, zone := range c.zones(class, before) {
		known.zones[zone] = largest(&csi.Topology{Segments: map[string]string{topology.WellKnownZoneKey: zone}}, before.in(zone))
	}
	if asks {
		c.noteUnknown(failed)
	}
	return known, failed
}

// noteUnknown notes whether the driver has said how much there is, and tells of it if it hasn't for UnknownAfter.
func (c *Controller) noteUnknown(failed error) {
	switch now := c.now(); {
	case failed == nil:
		c.unknownSince = time.Time{}
	case c.unknownSince.IsZero():
		c.unknownSince = now
	case now.Sub(c.unknownSince) >= UnknownAfter:
		c.unknownSince = now
		c.config.Unknown(failed)
	}
}

// getCapacity returns the size of the largest volume that the driver can make now in a
// topology, or anywhere if that is nil.
func (c *Controller) getCapacity(ctx context.Context, parameters map[string]string, where *csi.Topology) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	response, err := c.driver.GetCapacity(ctx, &csi.GetCapacityRequest{Parameters: maps.Clone(parameters), AccessibleTopology: where})
	if err != nil {
		return 0, err
	}
	if largest := response.GetMaximumVolumeSize(); largest != nil {
		return largest.GetValue(), nil
	}
	return response.GetAvailableCapacity(), nil
}

// zones returns, sorted, the zones that may be exceptions: those that the class allows,
// or else those of nodes; those that are exceptions now, for a zone is not restocked by
// the end of its last node; and those with a recent refusal.
func (c *Controller) zones(class *storagev1.StorageClass, before sizes) []string {
	zones := append(slices.Collect(maps.Keys(before.zones)), c.refusals.Zones(class)...)
	requirement, err := c.topology.Require(topology.Question{Allowed: class.AllowedTopologies, Immediate: true})
	if err == nil { // else there is no node yet, or an event of each claim says what is wrong with the class
		for _, term := range requirement.GetRequisite() {
			zones = append(zones, topology.ZoneOfTerm(term))
		}
	}
	slices.Sort(zones)
	return slices.DeleteFunc(slices.Compact(zones), func(zone string) bool { return zone == "" })
}
