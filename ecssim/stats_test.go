package ecssim_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func TestStatsCountCallsPerVolumeAndBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) {
			c.Latency.API = map[string]time.Duration{"": 3 * time.Millisecond}
			c.Throttle = ecssim.Throttle{Limits: map[string]int{"DeleteDisk": 1}, Code: "Throttling.User"}
		})
		done := make(chan string)
		for range 4 {
			go func() { done <- create(t, newClient(t, s), nil) }()
		}
		var all []string
		for range 4 {
			all = append(all, <-done)
		}
		describe(t, c, func(r *ecs.DescribeDisksRequest) {
			r.DiskIds = fmt.Sprintf(`["%s"]`, strings.Join(all, `","`))
		})
		describe(t, c, func(r *ecs.DescribeDisksRequest) { r.DiskIds = `["` + all[0] + `"]` })
		if err := remove(c, all[0]); err != nil {
			t.Fatal(err)
		}
		wantCode(t, remove(c, all[1]), 400, "Throttling.User")

		var st ecssim.Stats
		_, text := admin(t, s, "GET", "/_sim/stats", "")
		if err := json.Unmarshal([]byte(text), &st); err != nil {
			t.Fatal(err)
		}
		if st.Calls != 8 || st.Volumes != 4 || st.CallsPerVolume != 2 || st.Throttled != 1 || st.MostAtOnce != 4 {
			t.Errorf("stats %s", text)
		}
		if want := map[int]int{1: 2, 2: 1, 3: 1}; !maps.Equal(st.OwnCalls, want) {
			t.Errorf("own calls %v, want %v", st.OwnCalls, want)
		}
		if want := map[int]int{4: 1, 1: 1}; !maps.Equal(st.BatchSizes["DescribeDisks"], want) {
			t.Errorf("batches %v, want %v", st.BatchSizes, want)
		}
		a := st.Actions[0]
		if a.Action != "CreateDisk" || a.Calls != 4 || a.Codes[""] != 4 || a.Mean != 3*time.Millisecond || a.Most != 3*time.Millisecond || a.Took["4ms"] != 4 {
			t.Errorf("creates %+v", a)
		}
		if want := map[string]int{"CreateDisk": 1, "DescribeDisks": 1, "DeleteDisk": 1}; !maps.Equal(s.VolumeCalls(all[0]), want) {
			t.Errorf("calls of one disk %v, want %v", s.VolumeCalls(all[0]), want)
		}
		if status, text := admin(t, s, "POST", "/_sim/volume", `{"disk":"`+all[0]+`"}`); status != 200 || !strings.Contains(text, `"DeleteDisk": 1`) {
			t.Errorf("calls of one disk: %d %s", status, text)
		}
		if status, text := admin(t, s, "POST", "/_sim/volume", `{"disk":"d-none"}`); status != 400 || !strings.Contains(text, "d-none") {
			t.Errorf("calls of no disk: %d %s", status, text)
		}
		admin(t, s, "DELETE", "/_sim/stats", "")
		if st := s.Stats(); st.Calls != 0 || st.Volumes != 0 || st.MostAtOnce != 0 || s.Count("CreateDisk", "") != 4 {
			t.Errorf("after a reset: %+v, and %d creates", st, s.Count("CreateDisk", ""))
		}
	})
}
