package provisioner

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/attempt"
)

func TestAVolumeIsRememberedUntilTheClaimIsSeenBound(t *testing.T) {
	for what, test := range map[string]struct {
		claim *v1.PersistentVolumeClaim // as the cache shows it; nil for none
		want  attempt.Phase
	}{
		"a claim that is still shown without": {testClaim(), attempt.Saved},
		"a claim that is not shown at all":    {nil, attempt.Saved},
		"a claim that is shown bound":         {testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" }), attempt.New},
		"another claim of the same name":      {testClaim(func(c *v1.PersistentVolumeClaim) { c.UID, c.Spec.VolumeName = "other", "d-0" }), attempt.Saved},
	} {
		b := newBench(t, nil)
		if test.claim != nil {
			if err := b.claims.Add(test.claim); err != nil {
				t.Fatal(err)
			}
		}
		b.handlers().postVolume(testVolume("d-1", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeAvailable }))
		b.exec.work(t.Context(), "0f1e")
		if got := b.attempts.Phase("0f1e"); got != test.want {
			t.Errorf("%s: the Record is %v, want %v", what, got, test.want)
		}
	}
}

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
		if got := equalIgnoringPrefix(test.prefix, test.a, test.b); got != test.want {
			t.Errorf("%s: the same but for the types: %t", test.what, got)
		}
	}
}
