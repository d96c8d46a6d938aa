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

// candidates returns where the disk may live, in the order to try: the preferred
// topologies first, then the requisite ones (CSI spec, TopologyRequirement).
// Parameter zoneId narrows them; if nothing is left that is Invalid, for the
// volume must not end up anywhere else. Without any constraint it is one candidate
// without a zone.
func (c Config) candidates(requirement *csi.TopologyRequirement, wanted []disk.Zone) ([]disk.ZoneCandidate, error) {
	requisite, err := c.read("accessibility_requirements.requisite", requirement.GetRequisite())
	if err != nil {
		return nil, err
	}
	preferred, err := c.read("accessibility_requirements.preferred", requirement.GetPreferred())
	if err != nil {
		return nil, err
	}
	for _, p := range preferred {
		if len(requisite) > 0 && !slices.ContainsFunc(requisite, sameZone(p)) {
			return nil, disk.Errorf(disk.Invalid, "accessibility_requirements.preferred: zone %q is not among the requisite ones: %s", p.Zone, zoneNames(requisite))
		}
	}
	allowed := merge(append(preferred, requisite...))
	if len(allowed) == 0 {
		allowed = []disk.ZoneCandidate{{}}
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
func (c Config) read(field string, terms []*csi.Topology) ([]disk.ZoneCandidate, error) {
	var candidates []disk.ZoneCandidate
	for i, term := range terms {
		p, err := c.readTerm(term.GetSegments())
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
func (c Config) readTerm(segments map[string]string) (disk.ZoneCandidate, error) {
	var p disk.ZoneCandidate
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		value := segments[key]
		switch {
		case key == topology.ZoneKey || key == topology.WellKnownZoneKey:
			if p.Zone != "" && p.Zone != disk.Zone(value) {
				return p, disk.Errorf(disk.Invalid, "%s=%s contradicts zone %s of the same term", key, value, p.Zone)
			}
			p.Zone = disk.Zone(value)
			p.Keys = append(p.Keys, key)
		case key == topology.RegionKey && value != c.Owner.Region:
			return p, disk.Errorf(disk.Invalid, "%s=%s: this driver makes disks in %s only", key, value, c.Owner.Region)
		case strings.HasPrefix(key, disk.NodeTypeLabel) && value == "available":
			p.Takes = append(p.Takes, disk.Category(strings.TrimPrefix(key, disk.NodeTypeLabel)))
		}
	}
	if _, region := segments[topology.RegionKey]; p.Zone == "" && !region {
		return p, disk.Errorf(disk.Invalid, "the term names no zone; allowed are the keys %s and %s", topology.WellKnownZoneKey, topology.ZoneKey)
	}
	return p, nil
}

func sameZone(p disk.ZoneCandidate) func(disk.ZoneCandidate) bool {
	return func(q disk.ZoneCandidate) bool { return p.Zone == q.Zone }
}

// merge makes candidates of the same zone one. The first one says what the nodes
// take, for it stands for the node that was selected.
func merge(candidates []disk.ZoneCandidate) []disk.ZoneCandidate {
	var merged []disk.ZoneCandidate
	for _, p := range candidates {
		i := slices.IndexFunc(merged, sameZone(p))
		if i < 0 {
			merged = append(merged, p)
			continue
		}
		for _, key := range p.Keys {
			if !slices.Contains(merged[i].Keys, key) {
				merged[i].Keys = append(merged[i].Keys, key)
			}
		}
	}
	return merged
}

// narrow keeps the wanted zones, in the order of the candidates. A candidate without a
// zone is the whole region, so it gives way to all that are wanted.
func narrow(candidates []disk.ZoneCandidate, wanted []disk.Zone) []disk.ZoneCandidate {
	var narrowed []disk.ZoneCandidate
	for _, p := range candidates {
		switch {
		case slices.Contains(wanted, p.Zone):
			narrowed = append(narrowed, p)
		case p.Zone == "":
			for _, zone := range wanted {
				narrowed = append(narrowed, disk.ZoneCandidate{Zone: zone, Takes: p.Takes})
			}
		}
	}
	return merge(narrowed)
}

// topology says from where a disk can be reached: one term of one key. A zone
// goes by the preferred key, or by the one that the requirement has if it
// hasn't that; a regional disk goes by its region. With affinity the term also
// names the disk's category, which not every node takes.
func (c Config) topology(d disk.Disk, candidates []disk.ZoneCandidate, affinity bool) *csi.Topology {
	segments := map[string]string{}
	if d.Zone == "" {
		segments[topology.RegionKey] = c.Owner.Region
	} else {
		segments[c.keyOf(d.Zone, candidates)] = string(d.Zone)
	}
	if affinity {
		segments[disk.NodeTypeLabel+string(d.Category)] = "available"
	}
	return &csi.Topology{Segments: segments}
}

func (c Config) keyOf(zone disk.Zone, candidates []disk.ZoneCandidate) string {
	for _, p := range candidates {
		if p.Zone == zone && len(p.Keys) > 0 && !slices.Contains(p.Keys, c.TopologyKey) {
			return p.Keys[0]
		}
	}
	return c.TopologyKey
}

func zoneNames(candidates []disk.ZoneCandidate) string {
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
