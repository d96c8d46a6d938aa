package admin

import "github.com/topodisk/topodisk/ecssim"

// faultRoutes change the list of faults. POST takes an ecssim.Fault; its
// durations are strings such as "1.5s".
func faultRoutes() []route {
	return []route{
		get("faults", func(s *ecssim.Server) any { return s.Faults() }),
		{"POST", "faults", addFault},
		{"DELETE", "faults", func(s *ecssim.Server, _ []byte) (any, error) { s.ClearFaults(); return s.Faults(), nil }},
	}
}

func addFault(s *ecssim.Server, body []byte) (any, error) {
	var f ecssim.Fault
	if err := f.UnmarshalJSON(body); err != nil {
		return nil, err
	}
	return s.ArmFault(f)
}
