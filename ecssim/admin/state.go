package admin

import (
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/config"
)

// stateRoutes show what there is, what was called and how often.
//
//	volume: disk; the answer is how many calls named it alone, by action
func stateRoutes() []route {
	return []route{
		get("state", func(s *ecssim.Server) any { return s.State() }),
		get("calls", func(s *ecssim.Server) any { return s.Calls() }),
		get("stats", func(s *ecssim.Server) any { return s.Stats() }),
		{"DELETE", "stats", func(s *ecssim.Server, _ []byte) (any, error) { s.ResetStats(); return s.Stats(), nil }},
		change("POST", "volume", volumeCalls),
	}
}

// diskName is a body that names a disk.
type diskName struct {
	Disk string `json:"disk"`
}

func volumeCalls(s *ecssim.Server, want diskName) (any, error) {
	if calls := s.VolumeCalls(want.Disk); calls != nil {
		return calls, nil
	}
	return nil, config.Invalid("disk", want.Disk, "the ID of a disk that a call has named")
}
