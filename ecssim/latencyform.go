package ecssim

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// SetLatency changes how long things take. What is under way takes as long as
// it would have.
func (s *Server) SetLatency(l Latency) error {
	if err := l.check(); err != nil {
		return err
	}
	l.API = maps.Clone(l.API)
	s.look(func(time.Time) { s.config.Latency = l })
	return nil
}

// ChangeLatency changes what a LatencyForm names and leaves the rest as it is.
// It returns how long things take from now on.
func (s *Server) ChangeLatency(f LatencyForm) (LatencyForm, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := f.read(s.config.Latency)
	if err != nil {
		return LatencyForm{}, err
	}
	if err := l.check(); err != nil {
		return LatencyForm{}, err
	}
	s.config.Latency = l
	return l.form(), nil
}

// Latency returns how long things take.
func (s *Server) Latency() LatencyForm {
	return seen(s, func(time.Time) LatencyForm { return s.config.Latency.form() })
}

// LatencyForm is a Latency in JSON: its durations as time.Duration prints
// them, by the names of the fields.
type LatencyForm struct {
	Profile string            `json:"profile,omitempty"` // to begin with
	API     map[string]string `json:"api"`
	Spans   map[string]string `json:"spans"`
	Spread  *float64          `json:"spread"`
}

// form returns a Latency as the admin API shows it.
func (l Latency) form() LatencyForm {
	f := LatencyForm{API: map[string]string{}, Spans: map[string]string{}, Spread: &l.Spread}
	for action, d := range l.API {
		f.API[action] = d.String()
	}
	for _, span := range l.spans() {
		f.Spans[span.name] = span.time.String()
	}
	return f
}

// read changes a Latency by what the admin API got.
func (f LatencyForm) read(l Latency) (Latency, error) {
	if f.Profile != "" {
		var err error
		if l, err = Profile(f.Profile); err != nil {
			return l, config.Invalid("profile", f.Profile, config.OneOf(Profiles))
		}
	}
	l.API = maps.Clone(l.API)
	for action, text := range f.API {
		d, err := config.Duration("api."+action, text)
		if err != nil {
			return l, err
		}
		if l.API == nil {
			l.API = map[string]time.Duration{}
		}
		l.API[action] = d
	}
	spans := l.spans()
	for name, text := range f.Spans {
		i := slices.IndexFunc(spans, func(s span) bool { return s.name == name })
		if i < 0 {
			return l, config.Invalid("spans", name, config.OneOf(spanNames()))
		}
		d, err := config.Duration("spans."+name, text)
		if err != nil {
			return l, err
		}
		*spans[i].time = d
	}
	if f.Spread != nil {
		l.Spread = *f.Spread
	}
	return l, nil
}

func spanNames() []string {
	return wire.Each(new(Latency).spans(), func(s span) string { return s.name })
}
