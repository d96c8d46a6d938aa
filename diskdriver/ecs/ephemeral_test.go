package ecs

import (
	"testing"
	"testing/synctest"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestAnEphemeralDiskGoesWithItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := working(t, nil)
		try := disk.Attempt{Zone: zoneH, Category: "elastic_ephemeral_disk_standard", Size: 64}
		d, err := c.Create(t.Context(), disk.Spec{Name: "vol-1", Tags: disk.Tags{disk.VolumeNameTag: "vol-1", disk.ClusterTag: cluster}}, try, "n:vol-1")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if d, err = attach(t.Context(), c, nodeA, d.ID); err != nil || !d.On(nodeA) {
				t.Fatalf("%v on %v, error %v", d.ID, d.Holders(), err)
			}
			if _, err := detach(t.Context(), c, nodeA, d.ID); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := attach(t.Context(), c, nodeB, d.ID); disk.KindOf(err) != disk.Blocked && disk.KindOf(err) != disk.Invalid {
			t.Errorf("attached to another instance: %v", err)
		}
		if err := c.Delete(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNoOtherDiskIsToldToGoWithItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		id := attachedDisk(t, c, "vol-1", nodeA)
		if _, err := detach(t.Context(), c, nodeA, id); err != nil {
			t.Fatal(err)
		}
		for _, call := range sim.Calls() {
			if call.Params["DeleteWithInstance"] == "true" {
				t.Errorf("%s says DeleteWithInstance", call.Action)
			}
		}
	})
}
