package topology

import "testing"

// TestClaimsAreSpreadAsUpstreamDoes holds values taken from the upstream provisioner.
func TestClaimsAreSpreadAsUpstreamDoes(t *testing.T) {
	rows := []struct {
		claim   string
		hash    uint32
		ordinal uint32
		mod     [3]int // of 2, 3 and 4 zones
	}{
		{"data-web-0", 1181096325, 0, [3]int{1, 0, 1}},
		{"logs-web-0", 1181096325, 0, [3]int{1, 0, 1}},
		{"web-0", 1181096325, 0, [3]int{1, 0, 1}},
		{"data-web-1", 1181096325, 1, [3]int{0, 1, 2}},
		{"data-web-2", 1181096325, 2, [3]int{1, 2, 3}},
		{"data-web-3", 1181096325, 3, [3]int{0, 0, 0}},
		{"web", 1181096325, 0, [3]int{1, 0, 1}},
		{"pvc", 964120306, 0, [3]int{0, 1, 2}},
		{"data-my-app-5", 899422574, 5, [3]int{1, 1, 3}},
		{"disk-007", 2212414298, 7, [3]int{1, 0, 1}},
		{"a-4294967295", 84696446, 4294967295, [3]int{1, 1, 1}},
		{"a-4294967296", 549298117, 0, [3]int{1, 1, 1}},
		{"x--1", 2166136261, 1, [3]int{0, 2, 2}},
		{"data-web-0a", 226222316, 0, [3]int{0, 2, 0}},
	}
	for _, row := range rows {
		t.Run(row.claim, func(t *testing.T) {
			base, ordinal := splitOrdinal(row.claim)
			if got := hash(base); got != row.hash || ordinal != row.ordinal {
				t.Errorf("hash %d and ordinal %d, want %d and %d", got, ordinal, row.hash, row.ordinal)
			}
			for i, want := range row.mod {
				if got := spread(row.claim, i+2); got != want {
					t.Errorf("of %d zones it prefers number %d, want %d", i+2, got, want)
				}
			}
		})
	}
}

func TestAClaimWithoutANameIsNotPlacedAtRandom(t *testing.T) {
	x := indexOf(threeZones...)
	for range 20 {
		checkAnswer(t, x, Question{Immediate: true}, answer{requisite: "zone=a | zone=b | zone=c", preferred: "zone=b | zone=c | zone=a"})
	}
}

func TestZoneOfLabels(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"no labels":            {nil, ""},
		"other labels":         {map[string]string{RegionKey: "r"}, ""},
		"the well-known key":   {map[string]string{WellKnownZoneKey: "a"}, "a"},
		"the driver's own key": {map[string]string{ZoneKey: "a"}, "a"},
		"an empty one":         {map[string]string{WellKnownZoneKey: "", ZoneKey: "a"}, "a"},
		"both, which disagree": {map[string]string{WellKnownZoneKey: "a", ZoneKey: "b"}, "a"},
	} {
		if got := ZoneOfLabels(test.labels); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
