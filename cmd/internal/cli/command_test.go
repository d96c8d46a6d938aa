package cli

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestParseNamesTheCommands(t *testing.T) {
	commands := []Command{{Name: "audit"}, {Name: "capacity off"}}
	for _, row := range []struct {
		args     []string
		commands []Command
		want     string
	}{
		{args: []string{"--size=1"}, commands: commands},
		{args: []string{"capacity", "on"}, commands: commands,
			want: `argument "capacity" is not allowed: allowed are flags, or at first "audit", or at first "capacity off"`},
		{args: []string{"more", "--size=1"}, want: `argument "more" is not allowed: allowed are flags`},
		{args: []string{"--large", "true"}, want: `argument "true" is not allowed: allowed are flags; a value belongs to its flag, such as --large=true`},
	} {
		flags := pflag.NewFlagSet("program", pflag.ContinueOnError)
		flags.Int("size", 0, "")
		flags.Bool("large", false, "")
		got := ""
		if err := Parse(flags, row.args, row.commands...); err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("%q: got %q, want %q", row.args, got, row.want)
		}
	}
}
