package admin

import "github.com/topodisk/topodisk/ecssim"

// latencyRoutes change how long things take, and the behaviours that sources
// disagree on.
//
//	latency: profile to begin with (else what is), api (durations by action),
//	         spans (durations by field of Latency), spread
//	doubts:  the fields of Doubts; those that are left out are as by default
func latencyRoutes() []route {
	return []route{
		get("latency", func(s *ecssim.Server) any { return s.Latency() }),
		change("POST", "latency", func(s *ecssim.Server, want ecssim.LatencyForm) (any, error) { return s.ChangeLatency(want) }),
		change("POST", "doubts", func(s *ecssim.Server, want ecssim.Doubts) (any, error) { return want, s.SetDoubts(want) }),
	}
}
