package facts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// reportFormat is the version of the form of reports.
const reportFormat = 1

// Report is what came of a run.
type Report struct {
	Format          int       `json:"format"`
	Run             string    `json:"run"`
	Endpoint        string    `json:"endpoint"`
	Region          string    `json:"region"`
	Zone            string    `json:"zone"`
	Instance        string    `json:"instance,omitempty"`
	Started         time.Time `json:"started"`
	Seconds         float64   `json:"seconds"`
	Disks           int       `json:"disks"`
	Snapshots       int       `json:"snapshots"`
	GiBMinutes      float64   `json:"gibMinutes"`
	BoundGiBMinutes float64   `json:"boundGibMinutes"`
	Facts           []Result  `json:"facts"`
}

// ReadReport reads a report. Its error says what is wrong with it.
func ReadReport(text []byte) (Report, error) {
	var r Report
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Report{}, fmt.Errorf("not a report of cloud-check: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return Report{}, fmt.Errorf("not a report of cloud-check: there is more after its end")
	}
	if r.Format != reportFormat {
		return Report{}, fmt.Errorf("format %d: allowed is %d", r.Format, reportFormat)
	}
	var names []string
	for i, f := range r.Facts {
		switch {
		case f.Fact == "":
			return Report{}, fmt.Errorf("facts[%d].fact is missing", i)
		case slices.Contains(names, f.Fact):
			return Report{}, fmt.Errorf("facts[%d].fact %q is there twice", i, f.Fact)
		case !slices.Contains([]Outcome{Agrees, Differs, NotAsked}, f.Outcome):
			return Report{}, fmt.Errorf("facts[%d].outcome %q: allowed are %q, %q and %q", i, f.Outcome, Agrees, Differs, NotAsked)
		}
		names = append(names, f.Fact)
	}
	return r, nil
}

// Apply makes a Config behave as was observed, but for the settings that keep
// names. It returns what the Config can't express, as warnings.
func (r Report) Apply(c *ecssim.Config, keep func(setting string) bool) (warnings []string, err error) {
	all := Facts()
	for _, result := range r.Facts {
		i := slices.IndexFunc(all, func(f Fact) bool { return f.Name() == result.Fact })
		if i < 0 {
			warnings = append(warnings, fmt.Sprintf("fact %q is not known to this version", result.Fact))
			continue
		}
		if result.Outcome == NotAsked {
			continue
		}
		w := slices.IndexFunc(all[i].Ways, func(w Way) bool { return w.Says == result.Observed })
		switch {
		case w >= 0:
			if err := all[i].Ways[w].without(keep).Apply(c); err != nil {
				return warnings, err
			}
		case result.Outcome == Differs:
			warnings = append(warnings, fmt.Sprintf("fact %q: the simulator has no way to behave as observed: %s", result.Fact, result.Observed))
		}
	}
	return warnings, nil
}

// without is the way without some settings.
func (w Way) without(keep func(setting string) bool) Way {
	settings := map[string]string{}
	for name, value := range w.Settings {
		if !keep(name) {
			settings[name] = value
		}
	}
	return Way{w.Says, settings}
}
