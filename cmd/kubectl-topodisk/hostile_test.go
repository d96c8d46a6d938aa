package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/explain/collect"
	"github.com/topodisk/topodisk/test/hostile"
)

// formats are what why prints for programs.
var formats = []string{
	"json", "yaml", "kyaml", "jsonpath={.message}{\"\\n\"}{.evidence}{\"\\n\"}{.next}", "jsonpath-as-json={.message}",
	"go-template={{.message}}{{range .evidence}}{{.value}}{{end}}{{.next}}",
}

// Every text of every dump is replaced by one that is meant to harm, in turn. Of all of them some are tried with the program itself.
func TestNoTextOfAClusterHarmsItsReader(t *testing.T) {
	files, err := filepath.Glob(dumps + "*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d dumps: %v", len(files), err)
	}
	commands := hostile.NewCommands(t, "kubectl")
	shown, n, tried := 0, 0, map[string]int{}
	for _, path := range files {
		facts, err := json.Marshal(factsIn(t, path))
		if err != nil {
			t.Fatal(err)
		}
		for text, variant := range hostile.Variants(t, facts) {
			var changed explain.Facts
			if json.Unmarshal(variant, &changed) == nil {
				for _, c := range explain.Why(&changed).Next {
					commands.Run(c.String())
				}
			}
			if tried[text]++; tried[text] > 3 { // it stands in most dumps, in the same places
				continue
			}
			n++
			format, printed := formats[n%len(formats)], printedOf(t, variant, formats[n%len(formats)])
			if n%50 == 0 {
				_, out, diagnostics := ran(t, "why", "--from="+fileWith(t, string(variant)), "--output="+format)
				_, text, more := ran(t, "why", "--from="+fileWith(t, string(variant)))
				printed = append(printed, out, diagnostics, text, more)
			}
			for _, p := range printed {
				if harm := hostile.Harm(p); harm != "" {
					t.Fatalf("%s, %q, %s: %s:\n%s", path, text, format, harm, p)
				}
				if strings.Contains(p, "OWNED") {
					shown++
				}
			}
		}
	}
	if shown < 80 || commands.Ran() < 20 {
		t.Errorf("only %d of %d texts are shown, and only %d commands have one", shown, n, commands.Ran())
	}
}

// printedOf returns what why prints of facts for people and for programs, which must be what their parsers read; nothing if a text is none
// that can be changed, such as a time.
func printedOf(t *testing.T, facts []byte, format string) []string {
	t.Helper()
	read, err := collect.ReadDump(bytes.NewReader(facts))
	if err != nil {
		return nil
	}
	verdict := explain.Why(read)
	var people, programs bytes.Buffer
	out := newOutput()
	*out.flags.OutputFormat = format
	if err := errors.Join(printVerdict(&screen{out: &people}, &verdict), out.print(&screen{out: &programs}, "Verdict", &verdict)); err != nil {
		t.Fatal(err)
	}
	parses(t, format, programs.String())
	return []string{people.String(), programs.String()}
}

func factsIn(t *testing.T, path string) *explain.Facts {
	t.Helper()
	facts, err := (&whyOptions{factory: &factory{}, from: path}).readFile()
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// parses holds what is printed for programs to be what their parsers read.
func parses(t *testing.T, format, printed string) {
	t.Helper()
	var into any
	var err error
	switch {
	case strings.HasPrefix(format, "jsonpath="):
	case strings.Contains(format, "yaml"):
		err = yaml.Unmarshal([]byte(printed), &into)
	case strings.Contains(format, "json"):
		err = json.Unmarshal([]byte(printed), &into)
	}
	if err != nil {
		t.Errorf("%s: %v:\n%s", format, err, printed)
	}
}

// A value keeps its meaning for programs, whatever is in it.
func TestValuesAreWholeForPrograms(t *testing.T) {
	for _, format := range []string{"json", "yaml", "kyaml"} {
		out := newOutput()
		*out.flags.OutputFormat = format
		var printed bytes.Buffer
		if err := out.print(&screen{out: &printed}, "Verdict", &explain.Verdict{Message: hostile.Text}); err != nil {
			t.Fatal(err)
		}
		var read struct{ Message string }
		if err := yaml.Unmarshal(printed.Bytes(), &read); err != nil || read.Message != hostile.Text || hostile.Harm(printed.String()) != "" {
			t.Errorf("%s: %v, %q, %s:\n%s", format, err, read.Message, hostile.Harm(printed.String()), &printed)
		}
	}
}

func TestADumpHarmsNobody(t *testing.T) {
	facts := factsIn(t, dumps+"attach-limit.yaml")
	facts.Events = []corev1.Event{{Message: hostile.Text}}
	var dump bytes.Buffer
	if err := collect.WriteDump(&dump, facts); err != nil {
		t.Fatal(err)
	}
	if harm := hostile.Harm(dump.String()); harm != "" {
		t.Errorf("%s:\n%s", harm, &dump)
	}
	read, err := collect.ReadDump(&dump)
	if err != nil || read.Events[0].Message != hostile.Text {
		t.Errorf("%v, read %q", err, read.Events[0].Message)
	}
}

// What the API server answers and warns of is shown by kubectl's own library.
func TestAnErrorHarmsNobody(t *testing.T) {
	status, err := json.Marshal(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": hostile.Text})
	if err != nil {
		t.Fatal(err)
	}
	file := kubeconfigOf(t, answering(403, string(status)))
	for _, line := range []string{"why pod db", "volumes", "volumes -A --watch --output=json", "audit", "plan install", "plan takeover", "plan drain z"} {
		_, out, diagnostics := ran(t, append(strings.Fields(line), "--kubeconfig="+file)...)
		if harm := hostile.Harm(out) + hostile.Harm(diagnostics); harm != "" || out+diagnostics == "" {
			t.Errorf("%s: %s:\n%s%s", line, harm, out, diagnostics)
		}
	}
}

// answering answers all requests alike.
func answering(code int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, text)
	})
}
