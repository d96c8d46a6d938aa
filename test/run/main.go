// Run runs the tests of packages as `go test` does, with the race detector if there is a C compiler, and says in its last
// line how many tests were skipped, why, and what would run them.
//
//	go run ./test/run ./...
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/test/need"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "run: no packages; name some, such as: go run ./test/run ./...")
		os.Exit(2)
	}
	summary, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Println("FAIL:", err)
	}
	if summary != "" {
		fmt.Println(summary)
	}
	if err != nil {
		os.Exit(1)
	}
}

// goCommand runs the Go of make's GO, with what it has to know of the machine.
func goCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), args...)
	cmd.Env = append(os.Environ(), need.Machine())
	cmd.Stderr = os.Stderr
	return cmd
}

// slowest is the package that is begun with: it waits for disks for minutes, while the others compute.
const slowest = "./diskdriver/node"

// run runs the tests, prints what they say and returns the last line.
func run(packages []string, out io.Writer) (summary string, err error) {
	// The timeout is for a machine that is slow, or busy; make lint runs all that vet has.
	args, env, without := []string{"test", "-json", "-timeout=30m", "-vet=off", "-race"}, []string{}, ""
	if why := noRaceDetector(); why != "" {
		// Packages with C in them would need the compiler, too.
		args, env = args[:4], []string{"CGO_ENABLED=0"}
		without = "run without the race detector, which needs a C compiler (packages gcc, libc6-dev): " + why
		fmt.Fprintln(out, without)
		if os.Getenv("CI") == "true" {
			return "", errors.New("CI=true, and the race detector is not to be left out")
		}
	}
	fmt.Fprintln(out, "building the tests: the first time it takes minutes until one of them says something")
	if slices.Contains(packages, "./...") {
		packages = append([]string{slowest}, packages...)
	}
	cmd := goCommand(append(args, packages...)...)
	cmd.Env = append(cmd.Env, env...)
	events, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	results, err := report(events, out)
	if ended := cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("go %s: %w", strings.Join(args, " "), ended))
	}
	summary = results.String()
	if without != "" {
		summary += "; " + without
	}
	return summary, err
}

// noRaceDetector says why tests can't be built and run with the race detector. It tries with those of a small package.
func noRaceDetector() string {
	cmd := goCommand("test", "-race", "-run", "^$", "github.com/topodisk/topodisk/test/need")
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

// report prints what `go test` would print without -json, and counts.
func report(events io.Reader, out io.Writer) (*results, error) {
	r := &results{skips: map[string]int{}}
	texts := map[event]*strings.Builder{} // what a test or a package has said so far
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
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
		if e.Test != "" {
			r.count(e.Action, text.String())
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
