package provisioner

import (
	"context"
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"

	"github.com/topodisk/topodisk/provisioner/attempt"
)

// listing is a driver that lists these disks, or fails.
type listing struct {
	Driver
	disks []*csi.ListVolumesResponse_Entry
	fails error
}

func (l *listing) ListVolumes(context.Context, *csi.ListVolumesRequest, ...grpc.CallOption) (*csi.ListVolumesResponse, error) {
	return &csi.ListVolumesResponse{Entries: l.disks}, l.fails
}

func TestOrphansAreCounted(t *testing.T) {
	b := newBench(t, nil)
	r := requestFor(t, 1)
	b.driver.creates = []answer{unavailable()}
	b.attempts.Begin(r.Claim.UID, attempt.Recovered{Request: r})
	b.exec.work(t.Context(), r.Claim.UID)
	l := &listing{disks: []*csi.ListVolumesResponse_Entry{
		listed("d-1", "c1", "disk-1"), listed("d-orphan", "c1", "disk-2"), listed("d-other", "c2", "disk-3"), listed("d-making", "c1", r.Create.Name),
	}}
	b.Provisioner.driver = l
	if err := b.volumes.Add(testVolume("d-1")); err != nil {
		t.Fatal(err)
	}
	o := newOrphans(b.Provisioner)
	for _, step := range []struct {
		name  string
		do    func()
		fails bool
		want  float64
	}{
		{name: "found once it may be about to get its PersistentVolume", want: 0},
		{name: "found twice", want: 1},
		{name: "no answer changes nothing", do: func() { l.fails = errors.New("no answer") }, fails: true, want: 1},
		{name: "no PersistentVolume tells the cluster", do: func() { l.fails = nil; b.volumes.Delete(testVolume("d-1")) }, want: 1},
		{name: "its disk, found twice", want: 2},
		{name: "deleted", do: func() { l.disks = l.disks[2:] }, want: 0},
	} {
		if step.do != nil {
			step.do()
		}
		if err := o.audit(t.Context()); (err != nil) != step.fails {
			t.Errorf("%s: got %v", step.name, err)
		}
		if got := testutil.ToFloat64(b.metrics.orphans); got != step.want {
			t.Errorf("%s: %v orphans, want %v", step.name, got, step.want)
		}
	}
}
