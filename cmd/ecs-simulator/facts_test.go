package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
)

func TestEverySettingHasAFlag(t *testing.T) {
	for _, s := range ecssim.Settings() {
		for _, value := range s.Values {
			if got := s.Get(parsed(t, "--"+s.Name+"="+value).config); got != value {
				t.Errorf("--%s=%s: the setting is %q", s.Name, value, got)
			}
		}
		err := run(t.Context(), append(place, "--"+s.Name+"=no-such-value"), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "--"+s.Name+` "no-such-value"`) || !strings.Contains(err.Error(), s.Values[0]) {
			t.Errorf("--%s: error %v, want one that names the flag, the value and what is allowed", s.Name, err)
		}
	}
}

func TestABooleanFlagNeedsNoValue(t *testing.T) {
	if !parsed(t, "--forgive-unknown-disk").config.ForgiveUnknownDisk {
		t.Error("it is false")
	}
}

func TestFactsOfAReportAreTheSettings(t *testing.T) {
	const unknownDisk, codes = `{"fact":"DeleteDisk: a disk that does not exist","outcome":"differs","observed":"accepted"}`, `{"fact":"DetachDisk: a disk that is attached to nothing","outcome":"differs","observed":"refused with DependencyViolation (403)"}`
	for _, tt := range []struct {
		name, report    string
		flags           []string
		forgives        bool
		code            string
		warning, refuse string
	}{
		{"two settings", `{"format":1,"facts":[` + unknownDisk + `,` + codes + `]}`, nil, true, "DependencyViolation", "", ""},
		{"a flag counts for more", `{"format":1,"facts":[` + unknownDisk + `,` + codes + `]}`, []string{"--detached-code=IncorrectDiskStatus"}, true, "IncorrectDiskStatus", "", ""},
		{"a fact that is unknown", `{"format":1,"facts":[{"fact":"MakeDisk: it hums","outcome":"agrees"},` + codes + `]}`, nil, false, "DependencyViolation", `"MakeDisk: it hums" is not known`, ""},
		{"what no way is", `{"format":1,"facts":[{"fact":"DeleteDisk: a disk that does not exist","outcome":"differs","observed":"refused with Odd (418)"}]}`, nil, false, "", "Odd (418)", ""},
		{"what was not asked", `{"format":1,"facts":[{"fact":"DeleteDisk: a disk that does not exist","outcome":"not asked","why":"interrupted"}]}`, nil, false, "", "", ""},
		{"no JSON", `format: 1`, nil, false, "", "", "not a report"},
		{"another file", `{"kind":"List"}`, nil, false, "", "", `"kind"`},
		{"another format", `{"format":2}`, nil, false, "", "", "format 2: allowed is 1"},
		{"an outcome that is none", `{"format":1,"facts":[{"fact":"x","outcome":"maybe"}]}`, nil, false, "", "", `facts[0].outcome "maybe"`},
		{"a fact twice", `{"format":1,"facts":[` + codes + `,` + codes + `]}`, nil, false, "", "", "twice"},
		{"cut off", `{"format":1,"facts":[` + codes, nil, false, "", "", "not a report"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "report.json")
			if err := os.WriteFile(file, []byte(tt.report), 0o600); err != nil {
				t.Fatal(err)
			}
			var warnings strings.Builder
			o, err := parse(append(append(place, "--facts="+file), tt.flags...), &warnings)
			if tt.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refuse) || !strings.Contains(err.Error(), "--facts") {
					t.Errorf("error %v, want one that has %q", err, tt.refuse)
				}
				return
			}
			if err != nil || o.config.ForgiveUnknownDisk != tt.forgives || o.config.Doubts.DetachedCode != tt.code {
				t.Errorf("%v: forgives %v, code %q", err, o.config.ForgiveUnknownDisk, o.config.Doubts.DetachedCode)
			}
			if !strings.Contains(warnings.String(), tt.warning) || (tt.warning == "") != (warnings.Len() == 0) {
				t.Errorf("warnings %q, want %q", warnings.String(), tt.warning)
			}
		})
	}
	if _, err := parse(append(place, "--facts=no-such-file"), io.Discard); err == nil || !strings.Contains(err.Error(), `--facts "no-such-file"`) {
		t.Errorf("error %v", err)
	}
}
