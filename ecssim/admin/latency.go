package admin

import "github.com/topodisk/topodisk/ecssim"

// latencyRoutes change how long things take, and the behaviours that sources
// disagree on.
//
//	latency: profile to begin with (else what is), api (durations by action),
//	         spans (durations by field of Latency), spread
//	settings: values by name, as ecs-simulator has flags for them; those that are left out stay
//	doubts:  the fields of Doubts; those that are left out are as by default
func latencyRoutes() []route {
	return []route{
		get("latency", func(s *ecssim.Server) any { return s.Latency() }),
		change("POST", "latency", func(s *ecssim.Server, want ecssim.LatencyForm) (any, error) { return s.ChangeLatency(want) }),
		get("settings", func(s *ecssim.Server) any { return s.SettingValues() }),
		change("POST", "settings", func(s *ecssim.Server, want map[string]string) (any, error) {
			err := s.ChangeSettings(want)
			return s.SettingValues(), err
		}),
		change("POST", "doubts", func(s *ecssim.Server, want ecssim.Doubts) (any, error) { return want, s.SetDoubts(want) }),
	}
}
