package main

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/ecssim"
)

// settingFlags are the flags of ecssim.Settings.
type settingFlags struct {
	flags  *pflag.FlagSet
	values map[string]*string
}

// add defines a flag for each setting that has none yet.
func (f *settingFlags) add(flags *pflag.FlagSet) {
	f.flags, f.values = flags, map[string]*string{}
	for _, s := range ecssim.Settings() {
		if flags.Lookup(s.Name) != nil {
			continue
		}
		value := &settingValue{text: s.Default, kind: "string"}
		f.values[s.Name] = &value.text
		flag := flags.VarPF(value, s.Name, "", settingUsage(s))
		if isTruth(s) {
			value.kind, flag.NoOptDefVal = "bool", "true"
		}
	}
}

// settingValue is the text of a flag, which apply checks.
type settingValue struct{ text, kind string }

func (v *settingValue) String() string        { return v.text }
func (v *settingValue) Set(text string) error { v.text = text; return nil }
func (v *settingValue) Type() string          { return v.kind }

func isTruth(s ecssim.Setting) bool { return len(s.Values) == 2 && s.Values[0] == "false" }

// settingUsage is a flag's line of --help.
func settingUsage(s ecssim.Setting) string {
	if isTruth(s) {
		return s.Means
	}
	values := strings.Join(s.Values, ", ")
	if s.List {
		values = "none, or any of " + values
	}
	return s.Means + ": " + values
}

// apply puts the values of the flags into a Config.
func (f *settingFlags) apply(config *ecssim.Config) error {
	for _, s := range ecssim.Settings() {
		value, own := f.values[s.Name]
		if !own || !f.flags.Changed(s.Name) {
			continue
		}
		if err := s.Set(config, *value); err != nil {
			var wrong *ecssim.ConfigError
			errors.As(err, &wrong)
			return badFlag("--"+s.Name, wrong.Value, wrong.Allowed)
		}
	}
	return nil
}
