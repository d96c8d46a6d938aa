package provisioner

import "testing"

func TestWhatANodeCanAttachWakesNobody(t *testing.T) {
	const prefix = "node.csi.alibabacloud.com/disktype."
	zoned := func(more ...string) map[string]string {
		labels := map[string]string{"topology.kubernetes.io/zone": "zone-a"}
		for _, key := range more {
			labels[key] = "available"
		}
		return labels
	}
	for _, test := range []struct {
		what   string
		prefix string
		a, b   map[string]string
		want   bool
	}{
		{"a type that the node takes", prefix, zoned(), zoned(prefix + "cloud_essd"), true},
		{"one more, one less", prefix, zoned(prefix + "cloud_ssd"), zoned(prefix + "cloud_essd"), true},
		{"no labels at all before", prefix, nil, map[string]string{prefix + "cloud_essd": "available"}, true},
		{"a zone beside a type", prefix, map[string]string{}, zoned(prefix + "cloud_essd"), false},
		{"another label", prefix, zoned(), zoned("team"), false},
		{"a label without its prefix", prefix, zoned(), zoned("cloud_essd"), false},
		{"no prefix is passed on", "", zoned(), zoned(prefix + "cloud_essd"), false},
	} {
		if got := sameButFor(test.prefix, test.a, test.b); got != test.want {
			t.Errorf("%s: the same but for the types: %t", test.what, got)
		}
	}
}
