package main

import (
	"io"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
)

func TestEverySettingHasAFlag(t *testing.T) {
	for _, s := range ecssim.Settings() {
		for _, value := range s.Values {
			o, err := parse(append(place, "--"+s.Name+"="+value), io.Discard)
			if err != nil {
				t.Error(err)
			} else if got := s.Get(o.config); got != value {
				t.Errorf("--%s=%s: the setting is %q", s.Name, value, got)
			}
		}
		_, err := parse(append(place, "--"+s.Name+"=no-such-value"), io.Discard)
		if err == nil {
			_, _, err = simulator(must(parse(append(place, "--"+s.Name+"=no-such-value"), io.Discard)))
		}
		if err == nil || !strings.Contains(err.Error(), "--"+s.Name+` "no-such-value"`) || !strings.Contains(err.Error(), s.Values[0]) {
			t.Errorf("--%s: error %v, want one that names the flag, the value and what is allowed", s.Name, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestABooleanFlagNeedsNoValue(t *testing.T) {
	o, err := parse(append(place, "--forgive-unknown-disk"), io.Discard)
	if err != nil || !o.config.ForgiveUnknownDisk {
		t.Errorf("%v %v", o.config.ForgiveUnknownDisk, err)
	}
}
