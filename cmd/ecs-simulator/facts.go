package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/facts"
)

// settingFlags are the flags of ecssim.Settings, and of the report that has
// their values.
type settingFlags struct {
	report string
	flags  *pflag.FlagSet
	values map[string]*string
}

// add defines a flag for each setting that has none yet.
func (f *settingFlags) add(flags *pflag.FlagSet) {
	f.flags, f.values = flags, map[string]*string{}
	flags.StringVar(&f.report, "facts", "", "report of make cloud-check: the simulator behaves as it observed, but for what other flags say")
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
func (f *settingFlags) apply(config *ecssim.Config, warnings io.Writer) error {
	if err := f.readReport(config, warnings); err != nil {
		return err
	}
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

// readReport puts what a report observed into a Config, and prints what it
// can't.
func (f *settingFlags) readReport(config *ecssim.Config, warnings io.Writer) error {
	if f.report == "" {
		return nil
	}
	text, err := os.ReadFile(f.report)
	if err != nil {
		return fmt.Errorf("--facts %q: %w", f.report, err)
	}
	report, err := facts.ReadReport(text)
	if err != nil {
		return fmt.Errorf("--facts %q: %w", f.report, err)
	}
	not, err := report.Apply(config, f.flags.Changed)
	for _, warning := range not {
		_, _ = fmt.Fprintf(warnings, "ecs-simulator: --facts %q: %s\n", f.report, warning)
	}
	return err
}
