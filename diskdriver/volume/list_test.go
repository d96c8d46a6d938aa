package volume

import (
	"context"
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/listing"
)

// listedDisks is an ECS that has some disks.
type listedDisks struct{ disks []disk.Disk }

func (l listedDisks) List(context.Context) ([]disk.Disk, error) { return l.disks, nil }

func TestAListWithoutALimitComesInPagesThatGRPCTakes(t *testing.T) {
	disks := make([]disk.Disk, listing.LongestPage+1)
	for i := range disks {
		disks[i].ID = disk.ID(fmt.Sprintf("d-%05d", i))
	}
	c := newTestController(struct {
		listedDisks
		others
	}{listedDisks: listedDisks{disks: disks}})
	total := 0
	for token := ""; ; {
		response, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		total += len(response.GetEntries())
		if token = response.GetNextToken(); token == "" {
			break
		}
	}
	if total != len(disks) {
		t.Errorf("%d of %d disks listed", total, len(disks))
	}
}
