package ecssim

import (
	"fmt"
	"testing"
)

func TestStatisticsOfDisksThatAreGone(t *testing.T) {
	stats := newStatistics()
	const n = keptVolumes + 50
	for i := range n {
		disk := fmt.Sprint("d-", i)
		for range 3 {
			stats.count(Call{Action: "DescribeDisks", Disk: disk})
		}
		stats.diskGone(disk)
		stats.diskGone(disk) // once more changes nothing
	}
	stats.count(Call{Action: "DescribeDisks", Disk: "d-here"})
	if len(stats.volumes) != keptVolumes+1 {
		t.Errorf("%d volumes are known, want %d", len(stats.volumes), keptVolumes+1)
	}
	st := stats.export()
	if st.Volumes != n+1 || st.OwnCalls[3] != n || st.OwnCalls[1] != 1 {
		t.Errorf("volumes %d, calls of their own %v, want %d with 3 and one with 1", st.Volumes, st.OwnCalls, n)
	}
}
