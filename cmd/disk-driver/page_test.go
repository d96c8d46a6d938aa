package main

import (
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

func TestMain(m *testing.M) { golden.Main(m, main) }

func TestTheFlagsPageIsCurrent(t *testing.T) {
	golden.Flags(t, "../../docs/flags.md", "disk-driver", golden.Help(t))
}
