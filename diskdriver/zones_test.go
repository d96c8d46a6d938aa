package diskdriver

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/topology"
)

func TestTheTopologyKeyIsTheConfiguredOneIfTheRequirementHasIt(t *testing.T) {
	for _, row := range []struct {
		preferred string
		keys      []string
		want      string
	}{
		{topology.WellKnownZoneKey, []string{topology.ZoneKey, topology.WellKnownZoneKey}, topology.WellKnownZoneKey},
		{topology.WellKnownZoneKey, []string{topology.ZoneKey}, topology.ZoneKey},
		{topology.ZoneKey, []string{topology.ZoneKey, topology.WellKnownZoneKey}, topology.ZoneKey},
		{topology.ZoneKey, []string{topology.WellKnownZoneKey}, topology.WellKnownZoneKey},
		{topology.ZoneKey, nil, topology.ZoneKey},
	} {
		a := area{region: "cn-hangzhou", preferredKey: row.preferred}
		got := a.keyOf("z", []place{{Place: disk.Place{Zone: "other"}, keys: []string{"x"}}, {Place: disk.Place{Zone: "z"}, keys: row.keys}})
		if got != row.want {
			t.Errorf("prefer %s, requirement has %v: %s, want %s", row.preferred, row.keys, got, row.want)
		}
	}
}

// A requirement's zones are asked for in one order, whatever the class narrows
// them to, and a conflict is refused: a second order would be a second request
// under the same client token.
func TestTheZonesOfAVolumeAreTheSameHoweverOftenItIsAskedFor(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	keySets := [][]string{{topology.ZoneKey}, {topology.WellKnownZoneKey}, {topology.ZoneKey, topology.WellKnownZoneKey}}
	some := func(random *rand.Rand, from []string) []string {
		picked := slices.Clone(from)
		random.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
		return picked[:random.IntN(len(picked)+1)]
	}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		requisite := some(random, all)
		preferred := some(random, requisite)
		var wanted []disk.Zone
		for _, zone := range some(random, all) {
			wanted = append(wanted, disk.Zone("cn-hangzhou-"+zone))
		}
		keys := keySets[random.IntN(len(keySets))]
		req := &csi.TopologyRequirement{Requisite: zoneTerms(requisite, keys), Preferred: zoneTerms(preferred, keys)}
		allows := func(zone disk.Zone) bool {
			return len(requisite) == 0 || slices.Contains(requisite, strings.TrimPrefix(string(zone), "cn-hangzhou-"))
		}
		a := area{region: "cn-hangzhou", preferredKey: topology.WellKnownZoneKey}
		first, firstErr := a.places(req, wanted)
		for range 100 {
			if again, err := a.places(req, wanted); !reflect.DeepEqual(again, first) || (err == nil) != (firstErr == nil) {
				t.Fatalf("seed %d: %v (%v), then %v (%v)", seed, first, firstErr, again, err)
			}
		}
		if len(wanted) > 0 && !slices.ContainsFunc(wanted, allows) {
			if disk.KindOf(firstErr) != disk.Invalid {
				t.Errorf("seed %d: zoneId %v against %v: %v (%v), want Invalid", seed, wanted, requisite, first, firstErr)
			}
			continue
		}
		want := zonesInOrder(preferred, requisite, wanted)
		var got []disk.Zone
		for _, p := range first {
			got = append(got, p.Zone)
		}
		if firstErr != nil || !slices.Equal(got, want) {
			t.Errorf("seed %d: %v (%v), want %v", seed, got, firstErr, want)
		}
	}
}

// zonesInOrder is the zones to try: those that are preferred, then the other requisite
// ones, each if it is wanted; without a requirement those that are wanted.
func zonesInOrder(preferred, requisite []string, wanted []disk.Zone) []disk.Zone {
	if len(requisite) == 0 && len(wanted) == 0 {
		return []disk.Zone{""}
	}
	if len(requisite) == 0 {
		return wanted
	}
	var zones []disk.Zone
	for _, name := range slices.Concat(preferred, requisite) {
		zone := disk.Zone("cn-hangzhou-" + name)
		if !slices.Contains(zones, zone) && (len(wanted) == 0 || slices.Contains(wanted, zone)) {
			zones = append(zones, zone)
		}
	}
	return zones
}
