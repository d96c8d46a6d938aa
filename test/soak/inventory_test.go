package main

import "testing"

func TestInventory(t *testing.T) {
	before := Inventory{"disks": {"d-1"}, "mounts": {"/a", "/a"}}
	for want, after := range map[string]Inventory{
		"": {"disks": {"d-1"}, "mounts": {"/a", "/a"}, "PVs": {}},
		"not as before the load:\nPVs: left over [\"pv-1\"], missing []\ndisks: left over [\"d-2\"], missing [\"d-1\"]": {
			"disks": {"d-2"}, "mounts": {"/a", "/a"}, "PVs": {"pv-1"},
		},
		"not as before the load:\nmounts: left over [\"/a\"], missing []": {"disks": {"d-1"}, "mounts": {"/a", "/a", "/a"}},
	} {
		got := ""
		if err := before.Same(after); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%v: %q, want %q", after, got, want)
		}
	}
	if err := Inventory(nil).Same(Inventory{"disks": {"d-1"}}); err == nil {
		t.Error("a disk where nothing was is not left over")
	}
}
