package diskdriver

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// underPolicy has ECS allow no more than deploy/ram-policy.json does for the
// cluster. Stories, walks and the conformance suite run under it: a call that it
// doesn't allow shows as Forbidden.RAM. With sources it allows to restore their
// snapshots, too.
func underPolicy(t *testing.T, sim *ecssim.Server, cluster string, sources ...string) {
	t.Helper()
	underPolicyOf(t, sim, "../deploy/ram-policy.json", append([]string{cluster}, sources...)...)
}

// underOldPolicy has ECS allow what the policy of 0.1.0 does.
func underOldPolicy(t *testing.T, sim *ecssim.Server) {
	t.Helper()
	underPolicyOf(t, sim, "testdata/ram-policy-0.1.0.json", cluster)
}

func underPolicyOf(t *testing.T, sim *ecssim.Server, file string, clusters ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const inList, mark = `["REPLACE-WITH-THE-CLUSTER-ID"]`, "REPLACE-WITH-THE-CLUSTER-ID"
	list, err := json.Marshal(clusters)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Fatal(err)
	}
	var policy ecssim.Policy
	if err := json.Unmarshal([]byte(strings.ReplaceAll(strings.Replace(compact.String(), inList, string(list), 1), mark, clusters[0])), &policy); err != nil {
		t.Fatal(err)
	}
	if err := sim.SetPolicy("", &policy); err != nil {
		t.Fatal(err)
	}
}

// TestThePolicyKeepsOthersDisks: with the driver's keys alone nobody gets at
// disks and snapshots of others: of other clusters, of nodes, or of nobody. A tag
// would make them the cluster's own, so they can't be tagged either, and the
// cluster's own can't be given to another.
func TestThePolicyKeepsOthersDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &story{t: t, config: ecssim.Config{
			Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: map[string]string{"story": "secret"},
			Instances: []ecssim.Instance{{ID: "i-a1", Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}},
		}}
		s.start()
		s.must(s.sim.SetPolicy("", nil))
		client := s.client()
		ofACK := disk.Tags{"ack.aliyun.com": cluster, "k8s.aliyun.com": "true"} // as nodes' disks have them
		system := s.systemDisk("i-a1")
		s.must(client.Tag(t.Context(), system, ofACK))
		others := map[string]disk.ID{
			"nobody's": s.foreign("nobody", nil), "another cluster's": s.foreign("another", disk.Tags{ownerTag: "c2"}),
			"a node's data disk": s.foreign("node", ofACK), "a node's system disk": system,
		}
		own := s.foreign("own", disk.Tags{ownerTag: cluster})
		shots := map[string]disk.SnapshotID{}
		for name, tags := range map[string]disk.Tags{"nobody's": nil, "another cluster's": {ownerTag: "c2"}, "with ACK's tag": ofACK} {
			s.must(attached(t, client, "i-a1", others["nobody's"]))
			shot, err := client.CreateSnapshot(t.Context(), disk.SnapshotSpec{Name: "other", Source: others["nobody's"], Tags: tags}, disk.Token("shot "+name))
			s.must(err)
			shots[name] = shot
		}
		time.Sleep(time.Minute)
		underPolicy(t, s.sim, cluster)

		ours, theirs := disk.Tags{ownerTag: cluster}, disk.Tags{ownerTag: "c2"}
		denied := func(whose, what string, err error) {
			t.Helper()
			if disk.KindOf(err) != disk.Denied {
				t.Errorf("%s: %s: %v, want it denied", whose, what, err)
			}
		}
		for whose, id := range others {
			for what, try := range map[string]func(context.Context) error{
				"tag it as the cluster's own": func(ctx context.Context) error { return client.Tag(ctx, id, ours) },
				"tag it otherwise":            func(ctx context.Context) error { return client.Tag(ctx, id, disk.Tags{"team": "web"}) },
				"remove its tags":             func(ctx context.Context) error { return client.Untag(ctx, id, []string{ownerTag}) },
				"delete it":                   func(ctx context.Context) error { return client.Delete(ctx, id) },
				"attach it":                   func(ctx context.Context) error { _, _, err := client.Attach(ctx, "i-a1", id, false); return err },
				"detach it":                   func(ctx context.Context) error { _, _, err := client.Detach(ctx, "i-a1", id); return err },
				"let it burst":                func(ctx context.Context) error { return client.Burst(ctx, id, true) },
				"resize it": func(ctx context.Context) error {
					_, err := client.Resize(ctx, disk.Disk{ID: id, Size: 20, State: disk.Available}, 30)
					return err
				},
				"take a snapshot of it": func(ctx context.Context) error {
					_, err := client.CreateSnapshot(ctx, disk.SnapshotSpec{Name: "n", Source: id, Tags: ours}, "n")
					return err
				},
			} {
				denied(whose, what, try(t.Context()))
			}
		}
		denied("its own", "give it to another cluster", client.Tag(t.Context(), own, theirs))
		for whose, shot := range shots {
			denied(whose, "delete the snapshot", client.DeleteSnapshot(t.Context(), shot))
			_, err := client.Create(t.Context(), disk.Spec{Name: "n", SnapshotID: string(shot), Tags: ours}, disk.Attempt{Zone: "cn-hangzhou-a", Category: "cloud_essd", Size: 20}, disk.Token("restore "+whose))
			denied(whose, "restore the snapshot", err)
		}
		for name, tags := range map[string]disk.Tags{"without a tag": nil, "with ACK's tag": ofACK, "with another cluster's": theirs} {
			_, err := client.Create(t.Context(), disk.Spec{Name: "n", Tags: tags}, disk.Attempt{Zone: "cn-hangzhou-a", Category: "cloud_essd", Size: 20}, disk.Token("new "+name))
			denied("a new disk", name, err)
			_, err = client.CreateSnapshot(t.Context(), disk.SnapshotSpec{Name: "n", Source: own, Tags: tags}, disk.Token("new "+name))
			denied("a new snapshot", name, err)
		}
		s.must(client.Untag(t.Context(), own, []string{ownerTag})) // RAM has no condition for which tags are removed
		denied("what was its own", "delete it", client.Delete(t.Context(), own))
		denied("what was its own", "tag it", client.Tag(t.Context(), own, ours))
	})
}
