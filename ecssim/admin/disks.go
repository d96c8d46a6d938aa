package admin

import "github.com/topodisk/topodisk/ecssim"

// diskRoutes change disks.
//
//	unstick: disk, "" for all
//	locks:   disk and the reasons for which it is locked; none unlocks it
func diskRoutes() []route {
	return []route{
		change("POST", "unstick", func(s *ecssim.Server, want diskName) (any, error) {
			return map[string]int{"unstuck": s.Unstick(want.Disk)}, nil
		}),
		change("POST", "locks", func(s *ecssim.Server, want lockBody) (any, error) {
			return want, s.LockDisk(want.Disk, want.Reasons...)
		}),
	}
}

type lockBody struct {
	Disk    string   `json:"disk"`
	Reasons []string `json:"reasons"`
}
