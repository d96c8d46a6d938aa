// Package hostile tries what programs print with text that its author has chosen to harm the reader: in the place of any text that a
// document has, whether an API server would check it or not.
package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/topodisk/topodisk/internal/escape"
)

// Text runs a program where a shell reads it, hides what follows it on a terminal, and begins a line of its own.
const Text = " ;touch OWNED;'touch OWNED'\"`touch OWNED`$(touch OWNED)\x1b[8m\x1b]0;title\a\u009b2J\u202e\u2066\r\nINJECTED line\u2028\u0085\x7f\t#"

// freeKeys are the fields whose keys are texts, too.
var freeKeys = []string{"annotations", "labels", "matchLabels", "nodeSelector", "parameters", "volumeAttributes"}

// Variants returns copies of a JSON document. Each has one of its texts with Text behind it wherever it stands, so that what refers to an
// object by its name still does.
func Variants(t testing.TB, document []byte) iter.Seq2[string, []byte] {
	t.Helper()
	var tree any
	if err := json.Unmarshal(document, &tree); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	change(tree, "", func(text string) string { found[text] = true; return text })
	var texts []string
	for text := range found {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return func(yield func(string, []byte) bool) {
		for _, text := range texts {
			var variant bytes.Buffer
			to := json.NewEncoder(escape.NewWriter(&variant)) // as it may stand in YAML
			err := to.Encode(change(tree, "", func(other string) string {
				if other == text {
					return other + Text
				}
				return other
			}))
			if err != nil {
				t.Fatal(err)
			}
			if !yield(text, variant.Bytes()) {
				return
			}
		}
	}
}

// change returns a copy of the value of a field of JSON with all its texts changed.
func change(value any, field string, to func(string) string) any {
	switch v := value.(type) {
	case string:
		return to(v)
	case []any:
		var changed []any
		for _, inner := range v {
			changed = append(changed, change(inner, field, to))
		}
		return changed
	case map[string]any:
		changed := map[string]any{}
		for key, inner := range v {
			name := key
			if slices.Contains(freeKeys, field) {
				name = to(key)
			}
			changed[name] = change(inner, key, to)
		}
		return changed
	}
	return value
}

var injected = regexp.MustCompile(`(?m)^\s*INJECTED`)

// Harm says how a text that was printed harms who reads it; empty: in no way.
func Harm(printed string) string {
	for _, r := range printed {
		if !unicode.IsGraphic(r) && r != '\n' && r != '\t' {
			return fmt.Sprintf("%q is printed", r)
		}
	}
	if injected.MatchString(printed) {
		return "a line is injected"
	}
	return ""
}

// Commands runs commands in a shell in which all programs are told to do nothing, and fails the test if anything else runs. Only those that
// have the text in them are run, and each once.
type Commands struct {
	t         testing.TB
	directory string
	seen      map[string]bool
}

// NewCommands returns Commands with the programs that they begin with.
func NewCommands(t testing.TB, programs ...string) *Commands {
	t.Helper()
	bin := t.TempDir()
	for _, program := range programs {
		if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil { //nolint:gosec // it is a program
			t.Fatal(err)
		}
	}
	touch, err := exec.LookPath("touch")
	if err == nil {
		err = os.Symlink(touch, filepath.Join(bin, "touch"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	return &Commands{t, t.TempDir(), map[string]bool{}}
}

// Run runs a command with each shell that there is.
func (c *Commands) Run(command string) {
	c.t.Helper()
	if c.seen[command] || !strings.Contains(command, "OWNED") {
		return
	}
	c.seen[command] = true
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		if _, err := os.Stat(shell); err != nil {
			continue
		}
		run := exec.Command(shell, "-c", command)
		run.Dir = c.directory
		var said bytes.Buffer
		run.Stderr = &said
		if err := run.Run(); err != nil || said.Len() > 0 {
			c.t.Errorf("%s: %v %s\n%s", shell, err, &said, command)
		}
		if _, err := os.Stat(filepath.Join(c.directory, "OWNED")); err == nil {
			c.t.Fatalf("%s runs what is in a name:\n%s", shell, command)
		}
	}
}

// Ran returns how many commands were run.
func (c *Commands) Ran() int { return len(c.seen) }
