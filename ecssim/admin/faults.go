package admin

import "github.com/topodisk/topodisk/ecssim"

// faultRoutes change the list of faults. POST takes an ecssim.Fault; its
// durations are strings such as "1.5s".
func faultRoutes() []route {
	return []route{
		get("faults", func(s *ecssim.Server) any { return s.Faults() }),
		change("POST", "faults", func(s *ecssim.Server, f ecssim.Fault) (any, error) { return s.ArmFault(f) }),
		{"DELETE", "faults", func(s *ecssim.Server, _ []byte) (any, error) { s.ClearFaults(); return s.Faults(), nil }},
	}
}
