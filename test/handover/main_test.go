//go:build e2e

package handover

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// built is the directory of the programs.
var built = flag.String("programs", "", "directory of the programs, such as those of an older commit; empty: build them")

// randomFor is how long TestRandomCallers calls.
var randomFor = flag.Duration("random", 30*time.Minute, "how long random callers call; at most a minute with -short")

func TestMain(m *testing.M) {
	flag.Parse()
	if *built == "" {
		root, err := programs.FindRoot()
		if err == nil {
			*built, err = programs.BuildTopodisk(context.Background(), root, os.Stderr)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
