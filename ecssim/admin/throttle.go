package admin

import (
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/config"
)

// throttleRoutes change the limits of calls a minute.
//
//	throttle: profile, or limits (calls a minute by action, "" for the others);
//	          code, phase, bucket, stickyMinute as in Throttle
func throttleRoutes() []route {
	return []route{
		get("throttle", func(s *ecssim.Server) any { return s.Throttle() }),
		change("POST", "throttle", setThrottle),
		{"DELETE", "throttle", func(s *ecssim.Server, _ []byte) (any, error) { return setThrottle(s, throttleBody{Profile: "off"}) }},
	}
}

// throttleBody is a Throttle in JSON, or the name of one.
type throttleBody struct {
	Profile      string         `json:"profile"` // instead of limits
	Limits       map[string]int `json:"limits"`
	Code         string         `json:"code"`
	Phase        string         `json:"phase"`
	Bucket       bool           `json:"bucket"`
	StickyMinute bool           `json:"stickyMinute"`
}

func (b throttleBody) read() (ecssim.Throttle, error) {
	if (b.Profile == "") == (b.Limits == nil) {
		return ecssim.Throttle{}, config.Invalid("profile", b.Profile, config.OneOf(ecssim.ThrottleProfiles)+"; or limits, calls a minute by action, instead")
	}
	t := ecssim.Throttle{Limits: b.Limits}
	var err error
	if b.Profile != "" {
		if t, err = ecssim.ThrottleProfile(b.Profile); err != nil {
			return ecssim.Throttle{}, err
		}
	}
	t.Code, t.Bucket, t.StickyMinute = b.Code, b.Bucket, b.StickyMinute
	t.Phase, err = config.Duration("phase", b.Phase)
	return t, err
}

func setThrottle(s *ecssim.Server, want throttleBody) (any, error) {
	t, err := want.read()
	if err != nil {
		return nil, err
	}
	if err := s.SetThrottle(t); err != nil {
		return nil, err
	}
	return s.Throttle(), nil
}
