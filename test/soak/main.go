// Soak runs the installed chart on real nodes for hours, with a mixed load, faults and rollouts, and judges whether memory,
// goroutines, open files, API requests, ECS calls and objects stay flat, whether every claim was served in time, and whether
// the load leaves anything behind:
//
//	soak run -hours 2              writes what it measures below .build/soak as it goes, then its report
//	soak report [-dir directory]   reports again on what a run has written, be it ended or killed
//
// With -write both write docs/soak.md and docs/soak.svg. The run needs root, and Debian 12 for the image.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/sandbox"
)

func main() { programs.Main("soak", run) }

func run(ctx context.Context, root string) (int, error) {
	args := os.Args[1:]
	if len(args) == 0 || args[0] != "run" && args[0] != "report" {
		return 1, errors.New("the first argument is run or report")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	hours := flags.String("hours", "2", "how long the load goes on")
	dir := flags.String("dir", "", "what a run has written; empty for the last one")
	write := flags.Bool("write", false, "write docs/soak.md and docs/soak.svg, unless the soak is too short for them")
	if err := flags.Parse(args[1:]); err != nil {
		return 1, err
	}
	plan, err := parseHours(*hours)
	if err != nil {
		return 1, err
	}
	if args[0] == "report" {
		if *dir == "" {
			if *dir, err = lastRun(root); err != nil {
				return 1, err
			}
		}
		return 0, report(root, *dir, *write)
	}
	code, err := soak(ctx, root, plan)
	if err != nil || !sandbox.Inside() && code != 0 || sandbox.Inside() {
		return code, err
	}
	last, err := lastRun(root)
	if err != nil {
		return 1, err
	}
	return 0, report(root, last, *write)
}

// soak runs the load in a sandbox of its own.
func soak(ctx context.Context, root string, plan Plan) (code int, err error) {
	box := sandbox.In(root, "soak-lab")
	if code, outside, err := box.Enter(func() error { return build(ctx, root) }); outside || err != nil {
		return code, err
	}
	e, err := start(ctx, root, box.Dir, plan)
	if err != nil {
		return 1, err
	}
	return 0, errors.Join(e.soak(ctx), e.lab.Stop())
}

// runs is where each run has a directory named after the time of its beginning.
func runs(root string) string { return filepath.Join(root, ".build", "soak") }

func newRun(root string) (string, error) {
	dir := filepath.Join(runs(root), time.Now().UTC().Format("20060102T150405Z"))
	return dir, os.MkdirAll(dir, 0o755)
}

func lastRun(root string) (string, error) {
	found, err := filepath.Glob(filepath.Join(runs(root), "*Z"))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("there is no run in %s", runs(root))
	}
	if err != nil {
		return "", err
	}
	return slices.Max(found), nil
}
