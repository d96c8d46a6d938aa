package diskdriver

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
)

// underPolicy has ECS allow no more than deploy/ram-policy.json does for the
// cluster. Stories, walks and the conformance suite run under it: a call that it
// doesn't allow shows as Forbidden.RAM.
func underPolicy(t *testing.T, sim *ecssim.Server, cluster string) {
	t.Helper()
	text, err := os.ReadFile("../deploy/ram-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var policy ecssim.Policy
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "REPLACE-WITH-THE-CLUSTER-ID", cluster)), &policy); err != nil {
		t.Fatal(err)
	}
	if err := sim.SetPolicy("", &policy); err != nil {
		t.Fatal(err)
	}
}

// TestThePolicyKeepsOthersDisks: with the driver's keys alone nobody gets at
// disks and snapshots of others. A tag would make them the cluster's own, so they
// can't be tagged either.
func TestThePolicyKeepsOthersDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &story{t: t, config: ecssim.Config{
			Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: map[string]string{"story": "secret"},
			Instances: []ecssim.Instance{{ID: "i-a1", Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}},
		}}
		s.start()
		client, err := ecs.NewClient(ecs.Config{Region: s.config.Region, ClusterID: cluster, Credentials: s, Transport: s})
		s.must(err)
		s.must(s.sim.SetPolicy("", nil))
		made := func(tags disk.Tags) disk.ID {
			d, err := client.Create(t.Context(), disk.Spec{Name: "other", Tags: tags}, disk.Attempt{Zone: "cn-hangzhou-a", Category: "cloud_essd", Size: 20}, disk.Token(tags[disk.ClusterTag]+"-other"))
			s.must(err)
			return d.ID
		}
		shot, err := client.CreateSnapshot(t.Context(), disk.SnapshotSpec{Name: "other", Source: made(nil)}, "shot")
		s.must(err)
		others := []disk.ID{made(nil), made(disk.Tags{disk.ClusterTag: "another-cluster"})}
		underPolicy(t, s.sim, cluster)

		ours := disk.Tags{disk.ClusterTag: cluster}
		for _, id := range others {
			for what, try := range map[string]func(context.Context) error{
				"tag it as the cluster's own": func(ctx context.Context) error { return client.Tag(ctx, id, ours) },
				"remove its tags":             func(ctx context.Context) error { return client.Untag(ctx, id, []string{disk.ClusterTag}) },
				"delete it":                   func(ctx context.Context) error { return client.Delete(ctx, id) },
				"attach it":                   func(ctx context.Context) error { _, _, err := client.Attach(ctx, "i-a1", id, false, nil); return err },
				"detach it":                   func(ctx context.Context) error { _, _, err := client.Detach(ctx, "i-a1", id, nil); return err },
				"let it burst":                func(ctx context.Context) error { return client.Burst(ctx, id, true) },
				"take a snapshot of it": func(ctx context.Context) error {
					_, err := client.CreateSnapshot(ctx, disk.SnapshotSpec{Name: "n", Source: id, Tags: ours}, "n")
					return err
				},
			} {
				if err := try(t.Context()); disk.KindOf(err) != disk.Denied {
					t.Errorf("%s: %v, want it denied", what, err)
				}
			}
		}
		if err := client.DeleteSnapshot(t.Context(), shot); disk.KindOf(err) != disk.Denied {
			t.Errorf("delete another's snapshot: %v, want it denied", err)
		}
		_, err = client.Create(t.Context(), disk.Spec{Name: "n"}, disk.Attempt{Zone: "cn-hangzhou-a", Category: "cloud_essd", Size: 20}, "n")
		if disk.KindOf(err) != disk.Denied {
			t.Errorf("make a disk without the cluster's tag: %v, want it denied", err)
		}
	})
}
