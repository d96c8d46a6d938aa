package volume

import (
	"context"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// busyECS moves a disk for others whenever it is asked.
type busyECS struct{ ECS }

func (busyECS) Get(context.Context, disk.ID) (disk.Disk, error) {
	return disk.Disk{
		ID: "d-1", Size: 20, Category: "cloud_essd", PerformanceLevel: "PL1", State: disk.Available, Tags: disk.Tags{disk.OwnerTag: cluster},
	}, nil
}
func (busyECS) TryMove(context.Context, disk.ID, disk.Move) error {
	return disk.Errorf(disk.Pending, "LastOrderProcessing")
}
func (busyECS) RunningMove(context.Context, disk.ID) (disk.TaskID, error) { return "t-1", nil }
func (busyECS) AwaitTask(context.Context, disk.ID, disk.TaskID) error     { return nil }
func (busyECS) Tag(context.Context, disk.ID, disk.Tags) error             { panic("nothing may be changed") }
func (busyECS) Move(context.Context, disk.ID, disk.Move) (disk.TaskID, error) {
	panic("nothing may be changed")
}

func TestAChangeThatIsNotMadeSaysSo(t *testing.T) {
	c := &Controller{config: Config{Owner: disk.Owner{Cluster: cluster}}, ecs: busyECS{}}
	_, err := c.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: "d-1", MutableParameters: map[string]string{"type": "cloud_auto", "diskTags/a": "b"}})
	if disk.KindOf(err) != disk.Pending || !strings.Contains(err.Error(), "this change is not made yet") {
		t.Errorf("a disk that ECS moves for others each time: %v", err)
	}
}
