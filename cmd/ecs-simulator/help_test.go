package main

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
	"github.com/topodisk/topodisk/test/need"
)

func TestTheFlagsPageIsCurrent(t *testing.T) {
	golden.Flags(t, "../../docs/flags.md", "ecs-simulator", golden.Help(t))
}

func TestTheExampleOfHelpWorks(t *testing.T) {
	help := golden.Help(t)
	if !strings.Contains(help, "\n  "+startExample+"\n  "+callExample+"\n") {
		t.Fatalf("--help lacks the example:\n%s", help)
	}
	if o, err := parse(strings.Fields(startExample)[1:], io.Discard); err != nil || "http://"+o.listen != callExample[strings.LastIndex(callExample, " ")+1:] {
		t.Errorf("the example listens on %q (%v), and calls another address", o.listen, err)
	}
	more := slices.DeleteFunc(strings.Fields(startExample)[1:], func(arg string) bool { return slices.Contains(place, arg) })
	_, at := started(t, more...)
	form := url.Values{}
	for _, pair := range strings.Split(callExample, " -d ")[1:] {
		name, value, _ := strings.Cut(strings.Fields(pair)[0], "=")
		form.Set(name, value)
	}
	reply, err := http.PostForm(at, form)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	if text, err := io.ReadAll(reply.Body); err != nil || !diskID.Match(text) {
		t.Errorf("the call of the example: %d %s (%v), want a disk", reply.StatusCode, text, err)
	}
}

// The page's commands for CI are run as they are written there, with the test binary as ecs-simulator.
func TestTheCommandsOfThePageWork(t *testing.T) {
	need.Has(t, need.Programs("curl")...)
	page, err := os.ReadFile("../../docs/ecs-on-a-laptop.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)<!-- run by make test -->\n```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 1 {
		t.Fatalf("the page has %d blocks that make test runs, want the one for CI", len(blocks))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "ecs-simulator")); err != nil {
		t.Fatal(err)
	}
	shell := golden.Command(t, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}, "-c", blocks[0][1])
	shell.Path, shell.Args[0], shell.Dir = "/bin/sh", "sh", dir
	if said, err := shell.CombinedOutput(); err != nil || !diskID.Match(said) {
		t.Errorf("got %v, want a disk:\n%s", err, said)
	}
}

// A terminal of 80 columns shows the introduction as it is, apart from the commands.
func TestTheIntroductionOfHelpIsNarrow(t *testing.T) {
	for line := range strings.Lines(summary) {
		if len(line) > 81 && !strings.Contains(line, startExample) && !strings.Contains(line, callExample) {
			t.Errorf("a line of more than 80 characters: %s", line)
		}
	}
}
