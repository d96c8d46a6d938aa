package ecssim_test

import (
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// Automatic snapshots go with their disk unless it says otherwise, and those
// that somebody asked for stay (ECS API, DeleteDisk).
func TestAutomaticSnapshotsGoWithTheDisk(t *testing.T) {
	s, c := newServerAndClient(t, func(c *ecssim.Config) { c.Doubts.SnapshotUnattached = []string{"cloud_essd"} })
	for _, test := range []struct {
		name string
		keep bool
		want int
	}{{"by default", false, 1}, {"DeleteAutoSnapshot false", true, 2}} {
		t.Run(test.name, func(t *testing.T) {
			d := create(t, c, ofKind("cloud_essd", "", "40"))
			ok(t, second(snap(c, d)))
			auto, err := s.AddAutoSnapshot(d)
			ok(t, err)
			_, err = c.TagResources(tagRequest("snapshot", []string{auto}, ecs.TagResourcesTag{Key: "kept-for", Value: "a-week"}))
			ok(t, err)
			count := func(kind string) int {
				r := ecs.CreateDescribeSnapshotsRequest()
				r.DiskId, r.SnapshotType = d, kind
				reply, err := c.DescribeSnapshots(r)
				ok(t, err)
				return len(reply.Snapshots.Snapshot)
			}
			if count("auto") != 1 || count("user") != 1 || count("all") != 2 || count("") != 2 {
				t.Errorf("%d automatic, %d by users, %d in all", count("auto"), count("user"), count("all"))
			}
			if test.keep {
				r := ecs.CreateModifyDiskAttributeRequest()
				r.DiskId, r.DeleteAutoSnapshot = d, requests.NewBoolean(false)
				_, err := c.ModifyDiskAttribute(r)
				ok(t, err)
			}
			ok(t, remove(c, d))
			if got := count("all"); got != test.want {
				t.Errorf("%d snapshots are left, want %d", got, test.want)
			}
		})
	}
	if _, err := s.AddAutoSnapshot("d-never"); err == nil {
		t.Error("a disk that doesn't exist has an automatic snapshot")
	}
}
