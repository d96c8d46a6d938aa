package admin

import (
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/config"
)

// clockRoutes move the clock.
//
//	clock: advance, a duration such as "60s"
func clockRoutes() []route {
	return []route{change("POST", "clock", advanceClock)}
}

type clockBody struct {
	Advance string `json:"advance"`
}

func advanceClock(s *ecssim.Server, want clockBody) (any, error) {
	d, err := config.Duration("advance", want.Advance)
	if err != nil {
		return nil, err
	}
	if d == 0 {
		return nil, config.Invalid("advance", want.Advance, `a duration above zero, such as "60s"`)
	}
	return map[string]any{"now": s.Now().Add(d)}, s.Advance(d)
}
