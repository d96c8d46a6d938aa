package ecssim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

func TestOverviewCutsListsAndCountsTheRest(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	var ids []string
	for range 7 {
		ids = append(ids, create(t, c, nil))
	}
	ok(t, attach(c, "i-1", ids[2]))
	o := s.Overview(ecssim.OverviewQuery{Rows: 3})
	if o.Disks.Total != 7 || o.Disks.Hidden() != 4 || len(o.Disks.Rows) != 3 || o.Disks.Rows[0].ID != ids[6] || o.Disks.Rows[2].ID != ids[4] {
		t.Errorf("disks %d of %d: %+v", len(o.Disks.Rows), o.Disks.Total, o.Disks.Rows)
	}
	if o.Calls.Total != 8 || o.Calls.Rows[0].Action != "AttachDisk" || len(o.Calls.Rows) != 3 || o.Instances.Total != 2 {
		t.Errorf("calls %+v, instances %+v", o.Calls, o.Instances)
	}
	if o.DisksByStatus["Available"] != 6 || o.DisksByStatus["In_use"] != 1 || o.Broken != "" || o.LatencyProfile != "zero" {
		t.Errorf("disks by status %v, broken %q, profile %q", o.DisksByStatus, o.Broken, o.LatencyProfile)
	}
	for text, want := range map[string]int{ids[3]: 1, "I-1": 1, "in_use": 1, zoneH: 7, "cloud_ess": 7, "nothing": 0} {
		if got := s.Overview(ecssim.OverviewQuery{Rows: 3, Disk: text}).Disks.Total; got != want {
			t.Errorf("%d disks with %q, want %d", got, text, want)
		}
	}
}

func TestOverviewFiltersCalls(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	id := create(t, c, nil)
	wantCode(t, remove(c, "d-none"), 404, "InvalidDiskId.NotFound")
	ok(t, remove(c, id))
	for _, tt := range []struct {
		filter ecssim.CallFilter
		want   []int
	}{
		{ecssim.CallFilter{}, []int{3, 2, 1}},
		{ecssim.CallFilter{Action: "delete"}, []int{3, 2}},
		{ecssim.CallFilter{Code: ecssim.SuccessCode}, []int{3, 1}},
		{ecssim.CallFilter{Code: "notfound"}, []int{2}},
		{ecssim.CallFilter{Disk: id}, []int{3, 1}},
		{ecssim.CallFilter{Action: "CreateDisk", Disk: "d-none"}, nil},
	} {
		var got []int
		for _, call := range s.Overview(ecssim.OverviewQuery{Rows: 9, Calls: tt.filter}).Calls.Rows {
			got = append(got, call.Number)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: calls %v, want %v", tt.filter, got, tt.want)
		}
	}
}

func TestOverviewSaysWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) {
			timed(c)
			c.Latency.Available, c.Latency.Modify, c.Queues = 2*time.Second, time.Minute, ecssim.Parallel
		})
		pending := func() string {
			text := ""
			for _, change := range s.Overview(ecssim.OverviewQuery{Rows: 9}).Changes.Rows {
				text += change.What + " by " + strings.Fields(change.Cause)[0] + fmt.Sprint(", ", time.Since(change.Since))
			}
			return text
		}
		id := create(t, c, nil)
		if got := pending(); got != "Creating by CreateDisk, 0s" {
			t.Errorf("at first %s", got)
		}
		time.Sleep(2 * time.Second)
		ok(t, attach(c, "i-1", id))
		if got := pending(); got != "Attaching to i-1 by AttachDisk, 1s" {
			t.Errorf("then %s", got)
		}
		time.Sleep(3 * time.Second)
		_, err := modify(c, id, toCategory("cloud_auto"))
		ok(t, err)
		if got := pending(); got != "Modifying to cloud_auto by task, 0s" {
			t.Errorf("then %s", got)
		}
		time.Sleep(time.Minute)
		ok(t, detach(c, "i-1", id))
		if got := pending(); got != "Detaching from i-1 by DetachDisk, 1s" {
			t.Errorf("then %s", got)
		}
		time.Sleep(5 * time.Second)
		if got := pending(); got != "" {
			t.Errorf("in the end %s", got)
		}
	})
}
