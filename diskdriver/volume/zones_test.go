package volume

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/topology"
)

func TestTopologyKeyIsTheConfiguredOneIfRequired(t *testing.T) {
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
		a := Config{Owner: disk.Owner{Region: "cn-hangzhou"}, TopologyKey: row.preferred}
		got := a.keyOf("z", []disk.ZoneCandidate{{Zone: "other", Keys: []string{"x"}}, {Zone: "z", Keys: row.keys}})
		if got != row.want {
			t.Errorf("prefer %s, requirement has %v: %s, want %s", row.preferred, row.keys, got, row.want)
		}
	}
}

// A requirement's zones are asked for in one order, whatever the class narrows
// them to, and a conflict is refused: a second order would be a second request
// under the same client token.
func TestZonesOfAVolumeDoNotChange(t *testing.T) {
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
		a := Config{Owner: disk.Owner{Region: "cn-hangzhou"}, TopologyKey: topology.WellKnownZoneKey}
		first, firstErr := a.candidates(req, wanted)
		for range 100 {
			if again, err := a.candidates(req, wanted); !reflect.DeepEqual(again, first) || (err == nil) != (firstErr == nil) {
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

// termsOf reads topologies: terms by semicolons, keys and values by commas.
func termsOf(text string) []*csi.Topology {
	if text == "" {
		return nil
	}
	var terms []*csi.Topology
	for term := range strings.SplitSeq(text, ";") {
		segments := map[string]string{}
		for pair := range strings.SplitSeq(term, ",") {
			key, value, _ := strings.Cut(pair, "=")
			segments[map[string]string{"z": topology.ZoneKey, "w": topology.WellKnownZoneKey, "r": topology.RegionKey, "t": disk.NodeTypeLabel + "cloud_essd"}[key]] = value
		}
		terms = append(terms, &csi.Topology{Segments: segments})
	}
	return terms
}

func FuzzADiskLivesWhereTheTopologyAllows(f *testing.F) {
	f.Add("", "", "")
	f.Add("z=a;w=b", "w=b", "")
	f.Add("z=a,w=a,t=available", "z=a", "a,c")
	f.Add("z=a,w=b", "", "")
	f.Add("r=cn-hangzhou", "z=c", "b,a,b")
	f.Add("r=elsewhere", "q=1", "a")
	f.Add("z=", "w=", ",")
	f.Fuzz(func(t *testing.T, requisite, preferred, zoneID string) {
		a := Config{Owner: disk.Owner{Region: "cn-hangzhou"}, TopologyKey: topology.WellKnownZoneKey}
		requirement := &csi.TopologyRequirement{Requisite: termsOf(requisite), Preferred: termsOf(preferred)}
		var wanted []disk.Zone
		for zone := range strings.SplitSeq(zoneID, ",") {
			if zone != "" {
				wanted = append(wanted, disk.Zone(zone))
			}
		}
		candidates, err := a.candidates(requirement, wanted)
		if err != nil {
			if disk.KindOf(err) != disk.Invalid {
				t.Errorf("%v: %v", requirement, err)
			}
			return
		}
		seen := map[disk.Zone]bool{}
		for _, p := range candidates {
			if seen[p.Zone] {
				t.Errorf("%v: zone %q comes twice", requirement, p.Zone)
			}
			seen[p.Zone] = true
			if len(wanted) > 0 && !slices.Contains(wanted, p.Zone) {
				t.Errorf("%v: zone %q, and parameter zoneId is %q", requirement, p.Zone, zoneID)
			}
			if !allows(requirement, p.Zone) {
				t.Errorf("%v doesn't allow zone %q", requirement, p.Zone)
			}
		}
		if len(candidates) == 0 {
			t.Errorf("%v, parameter zoneId %q: no candidate and no error", requirement, zoneID)
		}
	})
}

// allows says whether a requirement allows a zone: it names it, or the region, or
// nothing at all.
func allows(requirement *csi.TopologyRequirement, zone disk.Zone) bool {
	terms := requirement.GetRequisite()
	if len(terms) == 0 {
		terms = requirement.GetPreferred()
	}
	if len(terms) == 0 {
		return true
	}
	return slices.ContainsFunc(terms, func(term *csi.Topology) bool {
		segments := term.GetSegments()
		named := cmp.Or(segments[topology.ZoneKey], segments[topology.WellKnownZoneKey])
		return named == string(zone) || named == "" && segments[topology.RegionKey] != ""
	})
}
