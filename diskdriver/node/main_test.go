package node

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

var (
	// Long has `make test-long` run what takes minutes.
	Long = flag.Bool("long", false, "run the conformance suite, and more power losses and kills")
	seed = flag.Uint64("seed", 1, "of the first power loss and the first kill")
)

// helperKey in the environment names what this test binary does instead of running tests.
const helperKey = "TOPODISK_NODE_TEST_HELPER"

// helpers are what it may do; each ends the process.
var helpers = map[string]func(args []string) error{
	"sweeper": sweep,
	"plugin":  bePlugin,
}

func TestMain(m *testing.M) {
	name := os.Getenv(helperKey)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := helpers[name](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// helper is a command that runs a helper.
func helper(name string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), helperKey+"="+name)
	return cmd, nil
}

// again is the command that runs a test with a seed again.
func again(t *testing.T, seed uint64) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("go test ./diskdriver/node -run %s -args -seed %d", name, seed)
}
