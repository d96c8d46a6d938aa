// Run runs the tests of packages as `go test` does, with the race detector if there is a C compiler, and says in its last
// line how many tests were skipped, why, and what would run them.
//
//	go run ./test/run ./...
//	go run ./test/run -importers 3m ./diskdriver/volume
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/topodisk/topodisk/test/need"
)

const module = "github.com/topodisk/topodisk"

func main() {
	fresh := flag.Bool("fresh", false, "run those that ask what the machine has as on a fresh Debian with Go, git and make")
	importers := flag.Duration("importers", 0, "also run tests of packages that import these, as far as they end within this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var r *results
	var err error
	switch {
	case *fresh:
		err = runFresh(ctx)
	case flag.NArg() == 0:
		fmt.Fprintln(os.Stderr, "run: no packages; name some, such as: go run ./test/run ./...")
		os.Exit(2)
	case *importers > 0:
		r, err = runWithImporters(ctx, flag.Args(), *importers, os.Stdout)
	default:
		r, err = run(ctx, flag.Args(), os.Stdout)
	}
	if err != nil {
		fmt.Println("FAIL:", err)
	}
	if r != nil {
		fmt.Println(r)
	}
	if err != nil {
		os.Exit(1)
	}
}

// goCommand runs the Go of make's GO, with what it has to know of the machine. The end of the context ends all that it has started.
func goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("GO"), "go"), args...)
	cmd.Env = append(os.Environ(), need.Machine())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	return cmd
}

// slowest is the package that is begun with: it waits for disks for minutes, while the others compute.
const slowest = "./diskdriver/node"

// run runs the tests, prints what they say and returns their results, of which there are none if they could not be run.
func run(ctx context.Context, packages []string, out io.Writer) (*results, error) {
	// The timeout is for a machine that is slow, or busy; make lint runs all that vet has.
	args, env, without := []string{"test", "-json", "-timeout=30m", "-vet=off", "-race"}, []string{}, ""
	why := noRaceDetector(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if why != "" {
		// Packages with C in them would need the compiler, too.
		args, env = args[:4], []string{"CGO_ENABLED=0"}
		without = "run without the race detector, which needs a C compiler (packages gcc, libc6-dev): " + why
		fmt.Fprintln(out, without)
		if os.Getenv("CI") == "true" {
			return nil, errors.New("CI=true, and the race detector is not to be left out")
		}
	}
	fmt.Fprintln(out, "building the tests: the first time it takes minutes until one of them says something")
	if slices.Contains(packages, "./...") {
		packages = append([]string{slowest}, packages...)
	}
	cmd := goCommand(ctx, append(args, packages...)...)
	cmd.Env = append(cmd.Env, env...)
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, err := report(ctx, events, out)
	results.without = without
	if ended := cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("go %s: %w", strings.Join(args, " "), ended))
	}
	return results, err
}

// noRaceDetector says why tests can't be built and run with the race detector. It tries with those of a small package.
func noRaceDetector(ctx context.Context) string {
	cmd := goCommand(ctx, "test", "-race", "-run", "^$", module+"/test/need")
	var says bytes.Buffer
	cmd.Stdout, cmd.Stderr = &says, &says
	if err := cmd.Run(); err != nil {
		for line := range strings.Lines(says.String()) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				return line
			}
		}
		return err.Error()
	}
	return ""
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// report prints what `go test` would print without -json, and counts, until the context ends.
func report(ctx context.Context, events io.Reader, out io.Writer) (*results, error) {
	r := &results{skips: map[string]int{}, passed: map[string]bool{}, broken: map[string]bool{}}
	texts := map[event]*strings.Builder{} // what a test or a package has said so far
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		select {
		case <-ctx.Done():
			return r, nil
		default:
		}
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				out.Write(line) //nolint:errcheck // as fmt.Fprint
			} else {
				r.take(e, texts, out)
			}
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
	}
}

// take is one event. A test's output is printed once it has failed, a package's last line always.
func (r *results) take(e event, texts map[event]*strings.Builder, out io.Writer) {
	of := event{Package: e.Package, Test: e.Test}
	if texts[of] == nil {
		texts[of] = &strings.Builder{}
	}
	text := texts[of]
	switch e.Action {
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "output":
		text.WriteString(e.Output)
		return
	case "pass", "fail", "skip":
		switch {
		case e.Test != "":
			r.count(e.Action, text.String())
		case e.Action == "fail":
			r.broken[e.Package] = true
		default:
			r.passed[e.Package] = true
		}
		switch {
		case e.Action == "fail" && e.Test == "":
			r.rest(e.Package, texts, out)
			fmt.Fprint(out, text)
		case e.Action == "fail":
			fmt.Fprint(out, text)
		case e.Test == "":
			fmt.Fprint(out, lastLine(text.String()))
		}
		delete(texts, of)
	}
}

// rest prints what those tests of a package have said that never ended.
func (r *results) rest(of string, texts map[event]*strings.Builder, out io.Writer) {
	for key, text := range texts {
		if key.Package == of && key.Test != "" {
			fmt.Fprint(out, text)
			delete(texts, key)
		}
	}
}

func lastLine(text string) string {
	text = strings.TrimSuffix(text, "\n")
	return text[strings.LastIndex(text, "\n")+1:] + "\n"
}
