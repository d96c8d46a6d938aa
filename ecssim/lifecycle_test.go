package ecssim_test

import (
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func TestLifecycleThroughTheSDK(t *testing.T) {
	for name, connect := range map[string]func(*testing.T, *ecssim.Server) *ecs.Client{
		"in process": newClient, "over HTTP": newHTTPClient,
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			c := connect(t, s)
			id := create(t, c, func(r *ecs.CreateDiskRequest) {
				r.DiskName = "data-1"
				r.Tag = &[]ecs.CreateDiskTag{{Key: "k8s.aliyun.com", Value: "true"}, {Key: "empty"}}
			})
			disks := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.DiskIds = `["` + id + `"]` }).Disks.Disk
			if len(disks) != 1 {
				t.Fatalf("read shows %d disks, want 1", len(disks))
			}
			d := disks[0]
			if d.DiskId != id || d.Status != "Available" || d.ZoneId != zoneH || d.Size != 20 || d.Category != "cloud_essd" || d.PerformanceLevel != "PL1" ||
				d.DiskName != "data-1" || "d-"+d.SerialNumber != id || d.MultiAttach != "Disabled" || len(d.Tags.Tag) != 2 {
				t.Errorf("read shows %+v", d)
			}
			if err := remove(c, id); err != nil {
				t.Fatal(err)
			}
			if left := describe(t, c, nil); left.TotalCount != 0 {
				t.Errorf("%d disks left, want none", left.TotalCount)
			}
			wantCode(t, remove(c, id), 404, "InvalidDiskId.NotFound")
			if made, deleted := s.State().DisksMade, s.State().DisksDeleted; made != 1 || deleted != 1 {
				t.Errorf("made %d, deleted %d, want 1 and 1", made, deleted)
			}
		})
	}
}
