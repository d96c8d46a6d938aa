package main

import (
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/test/golden"
)

func TestMain(m *testing.M) { golden.Main(m, main) }

func TestTheDriverHasItsDefaultName(t *testing.T) {
	if defaultDriver != diskdriver.DefaultName {
		t.Errorf("--driver-name is %s by default, and %s is the driver's name", defaultDriver, diskdriver.DefaultName)
	}
}

// ran runs the program in this process and returns the exit code and what it printed.
func ran(t *testing.T, args ...string) (code int, out, diagnostics string) {
	t.Helper()
	streams, _, o, e := genericiooptions.NewTestIOStreams()
	code = run(t.Context(), streams, args)
	return code, o.String(), e.String()
}

// refuses holds what the program says of command lines, to each of which more is added, against what it should. Where they are wrong
// as such it names the help.
func refuses(t *testing.T, usage bool, lines map[string]string, more ...string) {
	t.Helper()
	for line, want := range lines {
		code, out, diagnostics := ran(t, append(strings.Fields(line), more...)...)
		if code != exitFailed || out != "" || !strings.Contains(diagnostics, want) || usage && !strings.Contains(diagnostics, "--help' for usage.") {
			t.Errorf("%s: exit code %d, printed %q and %q; want %d and %q", line, code, out, diagnostics, exitFailed, want)
		}
	}
}

func TestWrongCommandLinesAreRefused(t *testing.T) {
	refuses(t, true, map[string]string{
		"foo":                     `error: command "foo" is unknown; allowed are `,
		"version x":               `error: argument "x" is not allowed: allowed are flags`,
		"version --size=1":        "error: unknown flag: --size\nSee 'kubectl topodisk version --help' for usage.",
		"options --kubeconfig":    "error: flag needs an argument: --kubeconfig",
		"version --request-timeo": "error: unknown flag: --request-timeo",
		"version -o=xml":          "error: --output=xml is not allowed: allowed are json, yaml, kyaml, go-template, ",
	})
}

func TestProgramsGetAnObject(t *testing.T) {
	for format, want := range map[string]string{
		"yaml":                  "apiVersion: topodisk.io/v1alpha1\nkind: Version\nversion: dev\n",
		"jsonpath={.version}":   "dev",
		"go-template={{.kind}}": "Version",
	} {
		if code, out, diagnostics := ran(t, "version", "--output", format); code != exitFine || out != want || diagnostics != "" {
			t.Errorf("--output=%s: exit code %d, printed %q and %q, want %q", format, code, out, diagnostics, want)
		}
	}
}

// Help shows a command's own flags, and few of the many that all commands have.
func TestHelpIsShort(t *testing.T) {
	for _, command := range append([]string{"version", "options", "plan"}, explained...) {
		help := golden.Help(t, strings.Fields(command)...)
		if !strings.Contains(help, "--namespace") || !strings.Contains(help, "show this help") ||
			strings.Contains(help, "--as-group") || strings.Contains(help, "Global Flags") {
			t.Errorf("%s --help:\n%s", command, help)
		}
	}
	if options := golden.Help(t); !strings.Contains(options, "version") || strings.Contains(options, "\n  completion ") {
		t.Errorf("--help:\n%s", options)
	}
	if code, options, _ := ran(t, "options"); code != exitFine || !strings.Contains(options, "--as-group") {
		t.Errorf("options ends with %d:\n%s", code, options)
	}
}

// explained are the commands that docs/flags.md has a section of.
var explained = []string{"why", "plan install", "plan takeover", "plan drain", "plan soldout", "audit", "volumes"}

func TestTheFlagsPageIsCurrent(t *testing.T) {
	for _, command := range explained {
		golden.Flags(t, "../../docs/flags.md", "kubectl topodisk "+command, golden.Help(t, strings.Fields(command)...))
	}
}
