package faults

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// LatencyForm is a Latency in JSON: its durations as time.Duration prints
// them, by the names of the fields.
type LatencyForm struct {
	Profile string            `json:"profile,omitempty"` // to begin with
	API     map[string]string `json:"api"`
	Spans   map[string]string `json:"spans"`
	Spread  *float64          `json:"spread"`
}

// Form returns a Latency as the admin API shows it.
func (l Latency) Form() LatencyForm {
	f := LatencyForm{API: map[string]string{}, Spans: map[string]string{}, Spread: &l.Spread}
	for action, d := range l.API {
		f.API[action] = d.String()
	}
	for _, span := range l.spans() {
		f.Spans[span.name] = span.time.String()
	}
	return f
}

// Read changes a Latency by what the admin API got. The error is a
// *config.Error.
func (f LatencyForm) Read(l Latency) (Latency, error) {
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
