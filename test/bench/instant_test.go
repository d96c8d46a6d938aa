package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// lifeOf takes a volume of a claim from its creation until it is staged, and returns how long each call took.
func lifeOf(t *testing.T, d instant, claim string) pace {
	t.Helper()
	var took pace
	begin := time.Now()
	lap := func(err error) time.Duration {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		since := time.Since(begin)
		begin = time.Now()
		return since
	}
	made, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "pvc-1", Parameters: map[string]string{"csi.storage.k8s.io/pvc/name": claim}})
	took.Create = lap(err)
	attached, err := d.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeContext: made.GetVolume().GetVolumeContext()})
	took.Attach = lap(err)
	_, err = d.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{PublishContext: attached.GetPublishContext()})
	took.Device = lap(err)
	return took
}

func TestInstantWaitsAsItIsTold(t *testing.T) {
	dir := t.TempDir()
	told := pace{Create: 400 * time.Millisecond, Ready: time.Second, Attach: 2500 * time.Millisecond, Device: 700 * time.Millisecond}
	if err := writePace(dir, "slow", told); err != nil {
		t.Fatal(err)
	}
	want := pace{Create: told.Create, Attach: told.Ready - told.Create + told.Attach, Device: told.Device}
	synctest.Test(t, func(t *testing.T) {
		d := instant{name: podsDriver, attaches: true, paces: dir}
		if took := lifeOf(t, d, "slow"); took != want {
			t.Errorf("it waits %+v, want %+v", took, want)
		}
		if took := lifeOf(t, d, "other"); took != (pace{}) {
			t.Errorf("for a claim without a pace it waits %+v", took)
		}
	})
}
