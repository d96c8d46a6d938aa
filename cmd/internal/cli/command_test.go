package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

func TestCommandsAreFoundByTheirWords(t *testing.T) {
	for line, want := range map[string]string{
		"audit --v=2":      "2 program audit: [--v=2]\n",
		"capacity off --x": "2 program capacity off: [--x]\n",
		"capacity on":      "2 program: [capacity on]\n",
		"--v=2 audit":      "2 program: [--v=2 audit]\n",
		"":                 "2 program: []\n",
		"audit --help":     "0 ",
		"ok":               "3 ",
	} {
		refuse := func(_ context.Context, args []string, _, _ io.Writer) (int, error) {
			switch {
			case slices.Contains(args, "--help"):
				return 2, pflag.ErrHelp
			case slices.Contains(args, "ok"):
				return 3, nil
			}
			return 2, fmt.Errorf("%v", args)
		}
		var said strings.Builder
		code := run(t.Context(), "program", []Command{{"audit", "", refuse}, {"capacity off", "", refuse}, {"", "", refuse}}, strings.Fields(line), io.Discard, &said)
		if got := fmt.Sprint(code, " ", said.String()); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

func TestWrongValuesSayWhatIsAllowed(t *testing.T) {
	for line, want := range map[string]string{
		"--wait=x":  `invalid argument "x" for "--wait" flag: time: invalid duration "x"; allowed is a number with a unit, such as 90s or 5m`,
		"--wait=5":  "; allowed is a number with a unit, such as 90s or 5m",
		"--calls=x": "; allowed is a whole number",
		"--qps=x":   "; allowed is a number",
		"--facts=x": "; allowed is true or false",
		"--v=x":     "; allowed is a whole number",
		"--tags=a":  "a must be formatted as key=value",
		"--none=x":  "unknown flag: --none",
	} {
		flags := pflag.NewFlagSet("program", pflag.ContinueOnError)
		flags.Duration("wait", 0, "")
		flags.Int("calls", 0, "")
		flags.Float32("qps", 0, "")
		flags.Bool("facts", false, "")
		flags.StringToString("tags", nil, "")
		var log Log
		log.AddFlags(flags)
		if err := Parse(flags, []string{line}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func TestAClientsErrorNamesTheFlag(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", "/nowhere:/else")
	for line, want := range map[string]string{
		"--kubeconfig=":                       "name one with --kubeconfig=FILE or $KUBECONFIG",
		"--kubeconfig=/nowhere":               "--kubeconfig=/nowhere: stat /nowhere",
		"--kubeconfig= --master=http://a b":   "--kubeconfig=: ",
		"--kubeconfig= --master=http://a:1/b": "",
		"":                                    "--kubeconfig=/nowhere:/else: ",
	} {
		var cluster Cluster
		flags := pflag.NewFlagSet("program", pflag.ContinueOnError)
		cluster.AddFlags(flags)
		if err := flags.Parse(strings.SplitN(line, " ", 2)); err != nil {
			t.Fatal(err)
		}
		tuned := false
		_, err := cluster.Client(func(*rest.Config) { tuned = true })
		if want == "" && (err != nil || !tuned) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", line, err, want)
		}
	}
	if _, err := (&Cluster{}).Client(); !errors.Is(err, rest.ErrNotInCluster) || strings.Contains(err.Error(), "KUBECONFIG") {
		t.Errorf("a program without the flag: %v", err)
	}
}

func TestParseNamesTheCommands(t *testing.T) {
	commands := []Command{{Name: "audit"}, {Name: "capacity off"}}
	for _, row := range []struct {
		args     []string
		commands []Command
		want     string
	}{
		{args: []string{"--size=1"}, commands: commands},
		{args: []string{"capacity", "on"}, commands: commands,
			want: `argument "capacity" is not allowed: allowed are flags, and before them one of the commands audit, capacity off`},
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
