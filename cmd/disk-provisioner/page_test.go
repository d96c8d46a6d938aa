package main

import (
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

func TestMain(m *testing.M) { golden.Main(m, main) }

func TestTheFlagsPageIsCurrent(t *testing.T) {
	golden.Flags(t, "../../docs/flags.md", "disk-provisioner", golden.Help(t))
	golden.Flags(t, "../../docs/flags.md", "disk-provisioner audit", golden.Help(t, "audit"))
	golden.Flags(t, "../../docs/flags.md", "disk-provisioner capacity off", golden.Help(t, "capacity", "off"))
	for _, command := range []string{"list", "show", "end"} {
		golden.Flags(t, "../../docs/flags.md", "disk-provisioner journal "+command, golden.Help(t, "journal", command))
	}
}

// U8: --help names the commands, and a command's own --help its own flags.
func TestHelpIsOfTheCommand(t *testing.T) {
	if help := golden.Help(t); !strings.Contains(help, "disk-provisioner audit") {
		t.Errorf("--help does not name audit:\n%s", help)
	}
	if help := golden.Help(t, "audit"); !strings.Contains(help, "--cluster-id") || strings.Contains(help, "--worker-threads") {
		t.Errorf("audit --help:\n%s", help)
	}
}
