package volume

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/topology"
)

// area is the region that the driver works in, and the key under which it
// would rather name a zone.
type area struct {
	region       string
	preferredKey string
}

// candidate is a zone where the disk may live, and the keys under which the
// requirement names it.
type candidate struct {
	disk.ZoneCandidate
	keys []string
}

func zoneCandidates(candidates []candidate) []disk.ZoneCandidate {
	plain := make([]disk.ZoneCandidate, len(candidates))
	for i, p := range candidates {
		plain[i] = p.ZoneCandidate
	}
	return plain
}

// candidates returns where the disk may live, in the order to try: the preferred
// topologies first, then the requisite ones (CSI spec, TopologyRequirement).
// Parameter zoneId narrows them; if nothing is left that is Invalid, for the
// volume must not end up anywhere else. Without any constraint it is one candidate
// without a zone.
func (a area) candidates(requirement *csi.TopologyRequirement, wanted []disk.Zone) ([]candidate, error) {
	requisite, err := a.read("accessibility_requirements.requisite", requirement.GetRequisite())
	if err != nil {
		return nil, err
	}
	preferred, err := a.read("accessibility_requirements.preferred", requirement.GetPreferred())
	if err != nil {
		return nil, err
	}
	for _, p := range preferred {
		if len(requisite) > 0 && !slices.ContainsFunc(requisite, p.sameZone) {
			return nil, disk.Errorf(disk.Invalid, "accessibility_requirements.preferred: zone %q is not among the requisite ones: %s", p.Zone, zoneNames(requisite))
		}
	}
	allowed := merge(append(preferred, requisite...))
	if len(allowed) == 0 {
		allowed = []candidate{{}}
	}
	if len(wanted) == 0 {
		return allowed, nil
	}
	narrowed := narrow(allowed, wanted)
	if len(narrowed) == 0 {
		return nil, disk.Errorf(disk.Invalid, "parameter zoneId: %q has no zone in common with accessibility_requirements, which allow %s", joinZones(wanted), zoneNames(allowed))
	}
	return narrowed, nil
}

// read understands the terms of one list, which is a field of the request.
func (a area) read(field string, terms []*csi.Topology) ([]candidate, error) {
	var candidates []candidate
	for i, term := range terms {
		p, err := a.readTerm(term.GetSegments())
		if err != nil {
			return nil, disk.Errorf(disk.Invalid, "%s[%d]: %w", field, i, err)
		}
		candidates = append(candidates, p)
	}
	return candidates, nil
}

// readTerm understands one term. The two keys for a zone mean the same, so
// they must agree. Keys that say nothing of zones are passed over, for a disk
// can be reached from every node of its zone.
func (a area) readTerm(segments map[string]string) (candidate, error) {
	var p candidate
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		value := segments[key]
		switch {
		case key == topology.ZoneKey || key == topology.WellKnownZoneKey:
			if p.Zone != "" && p.Zone != disk.Zone(value) {
				return p, disk.Errorf(disk.Invalid, "%s=%s contradicts zone %s of the same term", key, value, p.Zone)
			}
			p.Zone = disk.Zone(value)
			p.keys = append(p.keys, key)
		case key == topology.RegionKey && value != a.region:
			return p, disk.Errorf(disk.Invalid, "%s=%s: this driver makes disks in %s only", key, value, a.region)
		case strings.HasPrefix(key, disk.NodeTypeLabel) && value == "available":
			p.Takes = append(p.Takes, disk.Category(strings.TrimPrefix(key, disk.NodeTypeLabel)))
		}
	}
	if _, region := segments[topology.RegionKey]; p.Zone == "" && !region {
		return p, disk.Errorf(disk.Invalid, "the term names no zone; allowed are the keys %s and %s", topology.WellKnownZoneKey, topology.ZoneKey)
	}
	return p, nil
}

func (p candidate) sameZone(q candidate) bool { return p.Zone == q.Zone }

// merge makes candidates of the same zone one. The first one says what the nodes
// take, for it stands for the node that was selected.
func merge(candidates []candidate) []candidate {
	var merged []candidate
	for _, p := range candidates {
		i := slices.IndexFunc(merged, p.sameZone)
		if i < 0 {
			merged = append(merged, p)
			continue
		}
		for _, key := range p.keys {
			if !slices.Contains(merged[i].keys, key) {
				merged[i].keys = append(merged[i].keys, key)
			}
		}
	}
	return merged
}

// narrow keeps the wanted zones, in the order of the candidates. A candidate without a
// zone is the whole region, so it gives way to all that are wanted.
func narrow(candidates []candidate, wanted []disk.Zone) []candidate {
	var narrowed []candidate
	for _, p := range candidates {
		switch {
		case slices.Contains(wanted, p.Zone):
			narrowed = append(narrowed, p)
		case p.Zone == "":
			for _, zone := range wanted {
				narrowed = append(narrowed, candidate{ZoneCandidate: disk.ZoneCandidate{Zone: zone, Takes: p.Takes}})
			}
		}
	}
	return merge(narrowed)
}

// topology says from where a disk can be reached: one term of one key. A zone
// goes by the preferred key, or by the one that the requirement has if it
// hasn't that; a regional disk goes by its region. With affinity the term also
// names the disk's category, which not every node takes.
func (a area) topology(d disk.Disk, candidates []candidate, affinity bool) *csi.Topology {
	segments := map[string]string{}
	if d.Zone == "" {
		segments[topology.RegionKey] = a.region
	} else {
		segments[a.keyOf(d.Zone, candidates)] = string(d.Zone)
	}
	if affinity {
		segments[disk.NodeTypeLabel+string(d.Category)] = "available"
	}
	return &csi.Topology{Segments: segments}
}

func (a area) keyOf(zone disk.Zone, candidates []candidate) string {
	for _, p := range candidates {
		if p.Zone == zone && len(p.keys) > 0 && !slices.Contains(p.keys, a.preferredKey) {
			return p.keys[0]
		}
	}
	return a.preferredKey
}

func zoneNames(candidates []candidate) string {
	var zones []disk.Zone
	for _, p := range candidates {
		zones = append(zones, p.Zone)
	}
	return joinZones(zones)
}

func joinZones(zones []disk.Zone) string {
	words := make([]string, len(zones))
	for i, z := range zones {
		words[i] = cmp.Or(string(z), "the whole region")
	}
	return strings.Join(words, ",")
}
