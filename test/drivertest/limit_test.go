package drivertest

import (
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

func TestDrainLimit(t *testing.T) {
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	var calls []ecssim.Call
	for i := range 10 {
		id := string(rune('a' + i))
		calls = append(calls,
			ecssim.Call{Action: "DetachDisk", Disk: id, Took: seconds(0.4), Settles: seconds(4)},
			ecssim.Call{Action: "AttachDisk", Disk: id, Took: seconds(0.5), Settles: seconds(float64(2 + i))},
			ecssim.Call{Action: "DetachDisk", Disk: id, Took: seconds(9), Code: "DisksDetachingOnEcsExceeded"})
	}
	if got := DrainLimit(calls); got != seconds(8+2) {
		t.Errorf("ten detaches of 4 s, five at a time, and an attach of 2 s: %v, want 10 s", got)
	}
	calls = append(calls, ecssim.Call{Action: "DescribeDisks", Took: seconds(1)})
	if got := DrainLimit(calls); got != seconds(8+1+2) {
		t.Errorf("with a read of 1 s: %v, want 11 s", got)
	}
	if got := DrainLimit(calls[1:2]); got != 0 {
		t.Errorf("without a detach: %v, want none", got)
	}
}
