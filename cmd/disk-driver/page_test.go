package main

import (
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

func TestMain(m *testing.M) { golden.Main(m, main) }

func TestTheFlagsPageIsCurrent(t *testing.T) {
	golden.Flags(t, "../../docs/flags.md", "disk-driver", golden.Help(t))
}

// U8: --help leaves out flags that have no place in a container.
func TestHelpNamesNoLogFiles(t *testing.T) {
	help := golden.Help(t)
	for text, want := range map[string]bool{"--logging-format": true, "--log_file": false, "--logtostderr": false, "--stderrthreshold": false} {
		if strings.Contains(help, text) != want {
			t.Errorf("--help has %s: %t, want %t\n%s", text, !want, want, help)
		}
	}
}
