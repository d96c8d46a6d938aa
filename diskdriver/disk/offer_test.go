package disk

import "testing"

func TestOffersAreWhatAClassCanHaveInAPlace(t *testing.T) {
	offers := Offers{
		"a": {"cloud_essd": {1, 65536}, "cloud_ssd": {20, 32768}},
		"b": {"cloud_essd": {1, 2048}},
		"":  {"cloud_regional_disk_auto": {10, 65536}},
	}
	for name, test := range map[string]struct {
		choices     []Choice
		candidates  []ZoneCandidate
		multiAttach bool
		want        Range
	}{
		"the level's least":          {[]Choice{{ESSD, PL3}}, []ZoneCandidate{{Zone: "a"}}, false, Range{1261, 65536}},
		"the zone's most":            {[]Choice{{ESSD, ""}}, []ZoneCandidate{{Zone: "b"}}, false, Range{20, 2048}},
		"the best of two zones":      {[]Choice{{ESSD, ""}}, []ZoneCandidate{{Zone: "b"}, {Zone: "a"}}, false, Range{20, 65536}},
		"the best of two types":      {[]Choice{{"cloud_ssd", ""}, {ESSD, PL0}}, []ZoneCandidate{{Zone: "a"}}, false, Range{1, 65536}},
		"any zone":                   {[]Choice{{"cloud_ssd", ""}}, []ZoneCandidate{{}}, false, Range{20, 32768}},
		"a zone without the type":    {[]Choice{{"cloud_ssd", ""}}, []ZoneCandidate{{Zone: "b"}}, false, Range{}},
		"an unknown zone":            {[]Choice{{ESSD, ""}}, []ZoneCandidate{{Zone: "x"}}, false, Range{}},
		"a zone too small for it":    {[]Choice{{ESSD, PL3}}, []ZoneCandidate{{Zone: "b", Takes: []Category{ESSD}}}, false, Range{1261, 2048}},
		"nodes that don't take it":   {[]Choice{{ESSD, ""}}, []ZoneCandidate{{Zone: "a", Takes: []Category{"cloud_ssd"}}}, false, Range{}},
		"regional, from everywhere":  {[]Choice{{"cloud_regional_disk_auto", ""}}, []ZoneCandidate{{Zone: "b"}}, false, Range{10, 65536}},
		"what several nodes share":   {[]Choice{{"cloud_ssd", ""}, {ESSD, PL1}}, []ZoneCandidate{{Zone: "a"}}, true, Range{20, 65536}},
		"nothing that can be shared": {[]Choice{{"cloud_ssd", ""}}, []ZoneCandidate{{Zone: "a"}}, true, Range{}},
	} {
		got, found := offers.Sizes(test.choices, test.candidates, test.multiAttach)
		if got != test.want || found != (test.want != Range{}) {
			t.Errorf("%s: %v, found %v; want %v", name, got, found, test.want)
		}
	}
}
