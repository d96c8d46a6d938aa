package provisioner

import (
	"context"
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

// listing is a driver that lists these disks, or fails.
type listing struct {
	Driver
	disks []*csi.ListVolumesResponse_Entry
	fails error
	lists int
}

func (l *listing) ListVolumes(context.Context, *csi.ListVolumesRequest, ...grpc.CallOption) (*csi.ListVolumesResponse, error) {
	l.lists++
	return &csi.ListVolumesResponse{Entries: l.disks}, l.fails
}

func TestTheLeaderCountsFindings(t *testing.T) {
	b := newBench(t, nil)
	r := requestFor(t, 1)
	b.claims.Recover(r)
	one, orphan, making := listed("d-1", "c1", "disk-0f1e"), listed("d-orphan", "c1", "disk-2"), listed("d-making", "c1", r.Create.Name)
	l := &listing{disks: []*csi.ListVolumesResponse_Entry{one, listed("d-other", "c2", "disk-3"), making}}
	b.Controller.driver = l
	a := newHourlyAudit(b.Controller)
	var meanwhile func()
	a.pause = func(context.Context, int) error {
		if meanwhile != nil {
			meanwhile()
		}
		return nil
	}
	volumes := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	saved := func(id string) { must(t, b.api.Tracker().Add(provisionertest.Volume(id))) }
	type counts struct{ disks, volumes float64 }

	for _, step := range []struct {
		name      string
		do        func()
		meanwhile func()
		fails     bool
		want      counts
		lists     int
		live      int // reads of the API server
	}{
		{name: "no PersistentVolume tells the cluster"},
		{name: "nothing to find is said by the cache", do: func() { saved("d-1"); b.show(t, provisionertest.Volume("d-1")) }, lists: 1},
		{name: "the cache lags", do: func() { saved("d-orphan"); l.disks = append(l.disks, orphan) }, lists: 1, live: 1},
		{name: "an orphan", do: func() { must(t, b.api.Tracker().Delete(volumes, "", "d-orphan")) }, want: counts{disks: 1}, lists: 2, live: 2},
		{name: "no answer changes nothing", do: func() { l.fails = errors.New("no answer") }, fails: true, want: counts{disks: 1}, lists: 1},
		{name: "deleted meanwhile", do: func() { l.fails = nil }, meanwhile: func() { l.disks = l.disks[:3] }, lists: 2, live: 1},
		{name: "a lost disk", do: func() {
			lost := provisionertest.Volume("d-lost", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound })
			must(t, b.api.Tracker().Add(lost))
			b.show(t, lost)
		}, want: counts{volumes: 1}, lists: 2, live: 2},
	} {
		if step.do != nil {
			step.do()
		}
		meanwhile, l.lists = step.meanwhile, 0
		b.api.ClearActions()
		if err := a.audit(t.Context()); (err != nil) != step.fails {
			t.Errorf("%s: got %v", step.name, err)
		}
		counted := func(finding string) float64 { return testutil.ToFloat64(a.gauge.WithLabelValues(finding)) }
		got := counts{counted("disk_without_volume"), counted("volume_without_disk")}
		if got != step.want || l.lists != step.lists || len(b.api.Actions()) != step.live {
			t.Errorf("%s: counted %+v with %d lists and %d reads of the API server, want %+v with %d and %d",
				step.name, got, l.lists, len(b.api.Actions()), step.want, step.lists, step.live)
		}
	}
}
