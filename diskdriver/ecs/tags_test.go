package ecs

import (
	"maps"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

func TestTagsAreSetAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, func(*ecssim.Config) {})
		d, err := create(t.Context(), c, "vol-1")
		if err != nil {
			t.Fatal(err)
		}
		before := maps.Clone(d.Tags)
		tags := disk.Tags{"a": "1", "b": "2"}
		for range 2 { // the second time is no error
			if err := c.Tag(t.Context(), d.ID, tags); err != nil {
				t.Fatal(err)
			}
		}
		want := maps.Clone(before)
		maps.Copy(want, tags)
		if d, err = c.Get(t.Context(), d.ID); err != nil || !cmp.Equal(want, d.Tags) {
			t.Fatalf("tags %v, error %v; want %v", d.Tags, err, want)
		}
		for range 2 {
			if err := c.Untag(t.Context(), d.ID, []string{"a", "b"}); err != nil {
				t.Fatal(err)
			}
		}
		if d, err = c.Get(t.Context(), d.ID); err != nil || !cmp.Equal(before, d.Tags) {
			t.Fatalf("tags %v, error %v; want %v", d.Tags, err, before)
		}
		count := len(sim.Calls())
		if c.Tag(t.Context(), d.ID, nil) != nil || c.Untag(t.Context(), d.ID, nil) != nil || len(sim.Calls()) != count {
			t.Error("nothing to change, and ECS was called")
		}
		wantKind(t, c.Tag(t.Context(), "d-none", tags), disk.NotFound)
	})
}
