package ecs

import (
	"testing"
	"testing/synctest"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// TestAListWhoseTokenExpiresBeginsAgain: an expired token is no fault of whoever asked for the list.
func TestAListWhoseTokenExpiresBeginsAgain(t *testing.T) {
	for name, test := range map[string]struct {
		expires int // times
		want    disk.Kind
	}{"once": {expires: 1}, "each time": {1000, disk.BadToken}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, nil)
				madeDisk(t, c, "vol-1")
				madeDisk(t, c, "vol-2")
				for _, f := range []ecssim.Fault{
					{Action: "DescribeDisks", Params: map[string]string{"NextToken": "."}, Count: test.expires, Do: ecssim.FaultError, Status: 400, Code: "InvalidParameter"},
					{Action: "DescribeDisks", Params: map[string]string{"NextToken": "^$"}, Do: ecssim.FaultPartial},
				} {
					if err := sim.AddFault(f); err != nil {
						t.Fatal(err)
					}
				}
				all, err := c.List(t.Context())
				if test.want != 0 {
					wantKind(t, err, test.want)
				} else if err != nil || len(all) != 2 {
					t.Errorf("%d disks, %v; want two", len(all), err)
				}
			})
		})
	}
}
