package diskdriver

import (
	"testing"

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
