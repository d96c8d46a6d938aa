package diskdriver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/topodisk/topodisk/ecssim"
)

func TestSnapshotsArePagedByECS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &story{t: t, config: ecssim.Config{Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: map[string]string{"story": "secret"}}}
		s.start()
		s.do(strings.Fields("create disk-1 size=20Gi zones=a type=cloud_essd"))
		for n := range 45 {
			if got := s.do(strings.Fields(fmt.Sprintf("snapshot snap-%d d-1", n))); !strings.Contains(got, "OK") {
				t.Fatal(got)
			}
		}
		got := s.do([]string{"list-snapshots", "max=20"}) + s.do([]string{"list-snapshots", "max=20", "token=next"}) + s.do([]string{"list-snapshots", "max=20", "token=next"})
		if calls, listed := strings.Count(got, "ECS: DescribeSnapshots"), strings.Count(got, "\n- "); calls != 3 || listed != 45 || s.next != "" {
			t.Errorf("%d calls list %d of 45 snapshots: %s", calls, listed, got)
		}
	})
}
