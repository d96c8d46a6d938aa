package diskdriver

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/ecssim"
)

// crowd is how many callers want something of the same names at once; those who
// want groups are more.
const (
	crowd      = 40
	groupCrowd = 200
	crowdNames = 8
)

func TestACrowdGetsOneSnapshotGroupAndCopyForEachName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &story{t: t, config: ecssim.Config{
			Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: map[string]string{"story": "secret"},
			Latency: ecssim.Latency{
				SnapshotCut: time.Second, SnapshotUsable: 2 * time.Second, SnapshotDone: time.Minute, Available: time.Second,
				API: map[string]time.Duration{"": 200 * time.Millisecond},
			},
		}}
		s.start()
		retry := func(verb string, words ...string) { s.untilOK(verb, words) }
		retry("create", "source", "size=20Gi", "zones=a", "type=cloud_essd")
		time.Sleep(2 * time.Second)
		for _, action := range []string{"CreateSnapshot", "CreateSnapshotGroup", "CreateDisk", "DeleteSnapshot"} {
			s.must(s.sim.AddFault(ecssim.Fault{Do: ecssim.FaultLostReply, Action: action, Percent: 20}))
		}
		var all sync.WaitGroup
		for n := range crowd {
			name := fmt.Sprintf("%d", n%crowdNames)
			all.Go(func() { retry("snapshot", "snap-"+name, "d-1") })
			all.Go(func() { retry("create", "disk-"+name, "size=20Gi", "zones=a", "type=cloud_essd", "source=d-1") })
		}
		for n := range groupCrowd {
			all.Go(func() { retry("group", fmt.Sprintf("group-%d", n%crowdNames), "d-1") })
		}
		all.Wait()
		s.sim.ClearFaults()
		s.driver.controller.sweep(t.Context(), s.driver.inflight)

		made := map[string]int{"disks": len(s.sim.Disks())}
		for _, shot := range s.sim.Snapshots() {
			switch {
			case shot.Group != "":
				made["members of groups"]++
			case shot.Tags["csi.alibabacloud.com/temporary"] != "":
				made["temporary"]++
			default:
				made["snapshots"]++
			}
		}
		want := map[string]int{"disks": crowdNames + 1, "snapshots": crowdNames, "members of groups": crowdNames}
		if diff := cmp.Diff(want, made); diff != "" {
			t.Error(diff)
		}
	})
}

// untilOK repeats a call as the sidecars do, as long as it may be under way.
func (s *story) untilOK(verb string, words []string) {
	for range 1000 {
		answer, known := s.doSnapshots(verb, words)
		if !known {
			answer = s.call("CreateVolume", s.createRequest(words[0], words[1:]))
		}
		switch {
		case strings.HasPrefix(answer, "OK"):
			return
		case !strings.HasPrefix(answer, "Aborted") && !strings.HasPrefix(answer, "Unavailable"):
			s.t.Errorf("%s %v: %s", verb, words, answer)
			return
		}
		time.Sleep(time.Second)
	}
	s.t.Errorf("%s %v never ended", verb, words)
}
