package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// suite is what is run on each version.
type suite struct {
	name, title string
	// run writes what it says to out. Its error is for what failed, if the counts don't tell or say less.
	run func(ctx context.Context, root string, v programs.Version, out io.Writer) (counts, error)
}

var suites = []suite{
	{"demo", "the demo", runDemo},
	{"e2e", "the end-to-end tests", runEndToEnd},
	{"storage", "Kubernetes' tests of storage, the quick ones", runStorage},
}

func chooseSuites(text string) (chosen []suite, err error) {
	for word := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.name == word })
		if i < 0 {
			return nil, fmt.Errorf("-suites=%s: %q is none: allowed are demo, e2e, storage", text, word)
		}
		chosen = append(chosen, suites[i])
	}
	return chosen, nil
}

// counts are how many tests ended in which way.
type counts struct {
	Passed, Failed, Skipped int
}

// outcome is what became of a suite.
type outcome struct {
	counts
	Minutes float64
}

func (o outcome) summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", o.Passed, o.Failed, o.Skipped)
}

// runSuite runs a suite on a version; its output goes to a file of .build.
func runSuite(ctx context.Context, root string, v programs.Version, s suite) (outcome, error) {
	path := filepath.Join(root, ".build", "versions", string(v)+"-"+s.name+".log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return outcome{}, err
	}
	log, err := os.Create(path)
	if err != nil {
		return outcome{}, err
	}
	defer log.Close()
	fmt.Printf("Kubernetes %s: %s: the log is %s\n", v, s.title, path)
	begin := time.Now()
	n, err := s.run(ctx, root, v, log)
	if err == nil && n.Failed > 0 {
		err = errors.New("tests failed")
	}
	if err != nil && n.Failed == 0 {
		n.Failed = 1 // what ended before it could count
	}
	return outcome{counts: n, Minutes: time.Since(begin).Minutes()}, err
}

func runDemo(ctx context.Context, root string, v programs.Version, out io.Writer) (counts, error) {
	if err := command(ctx, root, out, "go", "run", "./test/demo", "-kube="+string(v)).Run(); err != nil {
		return counts{Failed: 1}, err
	}
	return counts{Passed: 1}, nil
}

// runEndToEnd counts tests, not their cases.
func runEndToEnd(ctx context.Context, root string, v programs.Version, out io.Writer) (n counts, err error) {
	cmd := command(ctx, root, out, "go", "test", "-tags=e2e", "-count=1", "-timeout=60m", "-json", "./test/e2e", "-args", "-kube="+string(v))
	cmd.Stdout = nil
	events, err := cmd.StdoutPipe()
	if err != nil {
		return n, err
	}
	if err := cmd.Start(); err != nil {
		return n, err
	}
	n, err = countEvents(events, out, os.Stdout)
	return n, errors.Join(err, cmd.Wait())
}

// countEvents counts the tests of `go test -json`, and writes what they say; what a failed test or package said goes to failed, too.
func countEvents(events io.Reader, out, failed io.Writer) (n counts, err error) {
	said := map[string]string{}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			fmt.Fprintln(out, lines.Text())
			continue
		}
		fmt.Fprint(out, event.Output)
		test, _, isCase := strings.Cut(event.Test, "/")
		said[test] += event.Output
		if isCase {
			continue
		}
		if event.Action == "fail" {
			fmt.Fprint(failed, said[test])
		}
		if test == "" {
			continue
		}
		switch event.Action {
		case "pass":
			n.Passed++
		case "fail":
			n.Failed++
		case "skip":
			n.Skipped++
		}
	}
	return n, lines.Err()
}

func runStorage(ctx context.Context, root string, v programs.Version, out io.Writer) (n counts, err error) {
	program, result := filepath.Join(root, ".build", "run", "storage"), filepath.Join(root, ".build", "versions", string(v)+"-storage.json")
	if err := command(ctx, root, out, "go", "build", "-o", program, "./test/storage").Run(); err != nil {
		return n, err
	}
	if err := os.Remove(result); err != nil && !errors.Is(err, os.ErrNotExist) {
		return n, err
	}
	failed := command(ctx, root, out, program, "-quick", "-kube="+string(v), "-counts="+result).Run()
	text, err := os.ReadFile(result)
	if err != nil {
		return n, errors.Join(failed, err)
	}
	return n, errors.Join(failed, json.Unmarshal(text, &n))
}

func command(ctx context.Context, root string, out io.Writer, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it takes its lab away then
	cmd.WaitDelay = 5 * time.Minute                                       // the storage tests have three to clear up
	return cmd
}
