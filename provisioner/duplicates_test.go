package provisioner

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func TestDuplicatesAreReportedOnce(t *testing.T) {
	b := newBench(t, nil)
	b.events.IncludeObject = true
	show := func(pv *v1.PersistentVolume) {
		b.show(t, pv)
		b.reportDuplicates(pv)
	}
	show(provisionertest.Volume("d-1"))
	show(provisionertest.Volume("d-2", func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "another" }))
	show(provisionertest.Volume("d-3", func(pv *v1.PersistentVolume) { pv.Annotations = nil })) // somebody has made it by hand
	for _, restored := range []string{"d-5", "d-6"} {
		show(provisionertest.Volume(restored, func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID, pv.Spec.ClaimRef.Name = "", restored }))
	}
	if events := provisionertest.Events(b.events); len(events) > 0 {
		t.Errorf("events %q", events)
	}
	for range 2 {
		show(provisionertest.Volume("d-4"))
	}
	events := provisionertest.Events(b.events)
	for _, want := range []string{"ProvisionedTwice", "involvedObject{kind=PersistentVolumeClaim", "d-1 and d-4 were all made for claim shop/data"} {
		if len(events) != 1 || !strings.Contains(events[0], want) {
			t.Errorf("events %q, want one with %q", events, want)
		}
	}
	if n := testutil.ToFloat64(b.metrics.duplicates); n != 1 {
		t.Errorf("%v are counted", n)
	}
}

func TestDuplicatesAreReportedForTheUnboundVolume(t *testing.T) {
	b := newBench(t, nil)
	first, second := provisionertest.Volume("d-1"), provisionertest.Volume("d-2")
	b.show(t, provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" }), first, second)
	for _, step := range []struct {
		pv   *v1.PersistentVolume
		want int
	}{{first, 0}, {second, 1}} {
		if b.volumeChanged(nil, step.pv); len(provisionertest.Events(b.events)) != step.want {
			t.Errorf("not %d events after that of %s", step.want, step.pv.Name)
		}
	}
}
