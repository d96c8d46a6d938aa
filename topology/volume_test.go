package topology

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

func TestZonesOfVolume(t *testing.T) {
	type expressions = []corev1.NodeSelectorRequirement
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	notIn := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpNotIn, Values: values}
	}
	const z, w, host = ZoneKey, WellKnownZoneKey, corev1.LabelHostname
	for name, test := range map[string]struct {
		terms []expressions
		want  []string
	}{
		"no term":                                 {},
		"the well-known key":                      {[]expressions{{in(w, "a")}}, []string{"a"}},
		"the driver's own key":                    {[]expressions{{in(z, "a")}}, []string{"a"}},
		"values are sorted, each once":            {[]expressions{{in(w, "b", "a", "b")}}, []string{"a", "b"}},
		"other keys beside a zone narrow no zone": {[]expressions{{in(RegionKey, "r"), in(w, "a"), in(host, "n")}}, []string{"a"}},
		"terms are alternatives":                  {[]expressions{{in(w, "b")}, {in(w, "a")}}, []string{"a", "b"}},
		"the same zone by either key":             {[]expressions{{in(z, "a")}, {in(w, "a")}}, []string{"a"}},
		"both keys in a term: a zone of both":     {[]expressions{{in(z, "a", "b"), in(w, "b", "c")}}, []string{"b"}},
		"both keys that disagree match no zone":   {[]expressions{{in(z, "a"), in(w, "b")}, {in(w, "c")}}, []string{"c"}},
		"no zone":                                 {[]expressions{{in(host, "n")}}, nil},
		"a region is no zone":                     {[]expressions{{in(RegionKey, "r")}}, nil},
		"another driver's key is not known":       {[]expressions{{in("topology.example.com/zone", "a")}}, nil},
		"one term without a zone ties to none":    {[]expressions{{in(w, "a")}, {in(host, "n")}}, nil},
		"what is excluded is not named":           {[]expressions{{notIn(w, "a")}}, nil},
		"what is excluded beside what is named":   {[]expressions{{in(z, "a", "b"), notIn(w, "b")}}, []string{"a", "b"}},
		"an empty term matches no node":           {[]expressions{{in(w, "a")}, {}}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{}
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
			for _, e := range test.terms {
				pv.Spec.NodeAffinity.Required.NodeSelectorTerms = append(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: e})
			}
			if got := ZonesOfVolume(pv); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestZonesOfAVolumeWithoutZones(t *testing.T) {
	fields := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}}
	for name, affinity := range map[string]*corev1.VolumeNodeAffinity{
		"no affinity": nil,
		"no selector": {},
		"a node":      {Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{fields}}},
	} {
		if got := ZonesOfVolume(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: affinity}}); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestZonesOfAVolumeOfTheProvisioner(t *testing.T) {
	pv := &corev1.PersistentVolume{}
	pv.Spec.NodeAffinity = NodeAffinity([]*csi.Topology{topo("wk=b region=r"), topo("zone=a")})
	if got := ZonesOfVolume(pv); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q", got)
	}
}

func TestAffinityValues(t *testing.T) {
	pv := &corev1.PersistentVolume{}
	pv.Spec.NodeAffinity = NodeAffinity([]*csi.Topology{{Segments: map[string]string{RegionKey: "r", "topology.example.com/zone": "a"}}})
	isRegion := func(key string) bool { return key == RegionKey }
	if got := AffinityValues(pv, isRegion); !slices.Equal(got, []string{"r"}) {
		t.Errorf("got %q", got)
	}
}
