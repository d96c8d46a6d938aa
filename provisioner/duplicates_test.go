package provisioner

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
)

func TestDuplicatesAreReportedOnce(t *testing.T) {
	b := newBench(t, nil)
	b.events.IncludeObject = true
	show := func(pv *v1.PersistentVolume) {
		b.show(t, pv)
		b.handlers.duplicates.volumeChanged(pv)
	}
	show(testVolume("d-1"))
	show(testVolume("d-2", func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "another" }))
	show(testVolume("d-3", func(pv *v1.PersistentVolume) { pv.Annotations = nil })) // somebody has made it by hand
	for _, restored := range []string{"d-5", "d-6"} {
		show(testVolume(restored, func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID, pv.Spec.ClaimRef.Name = "", restored }))
	}
	if events := b.drained(); len(events) > 0 {
		t.Errorf("events %q", events)
	}
	for range 2 {
		show(testVolume("d-4"))
	}
	events := b.drained()
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
	first, second := testVolume("d-1"), testVolume("d-2")
	b.show(t, testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" }), first, second)
	for _, step := range []struct {
		pv   *v1.PersistentVolume
		want int
	}{{first, 0}, {second, 1}} {
		if b.handlers.volumeChanged(step.pv); len(b.drained()) != step.want {
			t.Errorf("not %d events after that of %s", step.want, step.pv.Name)
		}
	}
}
