package main

import (
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

func TestMain(m *testing.M) { golden.Main(m, main) }

func TestTheFlagsPageIsCurrent(t *testing.T) {
	golden.Flags(t, "../../docs/flags.md", "disk-driver", golden.Help(t))
	golden.Flags(t, "../../docs/flags.md", "disk-driver check", golden.Help(t, "check"))
}

// U8: --help names the commands and leaves out flags that have no place in a container.
func TestHelpNamesCommandsAndNoLogFiles(t *testing.T) {
	help := golden.Help(t)
	for text, want := range map[string]bool{"disk-driver check": true, "--logging-format": true, "--log_file": false, "--logtostderr": false, "--stderrthreshold": false} {
		if strings.Contains(help, text) != want {
			t.Errorf("--help has %s: %t, want %t\n%s", text, !want, want, help)
		}
	}
}

func TestCheckReadsTheKubeconfigVariable(t *testing.T) {
	missing := t.TempDir() + "/no-such-file"
	if _, err := golden.Run(t, []string{"KUBECONFIG=" + missing}, "check"); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("got %v, want an error that names %s", err, missing)
	}
}
