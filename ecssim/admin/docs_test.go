package admin_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs is docs/simulator.md.
func docs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDocsListEveryRoute(t *testing.T) {
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /_sim/[a-z]*)` \\|").FindAllStringSubmatch(docs(t), -1) {
		documented = append(documented, row[1])
	}
	var answer struct{ Routes []string }
	_, text := call(t, newServer(t, nil), "GET", "/_sim/nothing", "")
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	slices.Sort(documented)
	slices.Sort(answer.Routes)
	if !slices.Equal(documented, answer.Routes) {
		t.Errorf("docs/simulator.md has the routes\n%s\nwant\n%s", strings.Join(documented, "\n"), strings.Join(answer.Routes, "\n"))
	}
}

func TestDocsCommandsWork(t *testing.T) {
	command := regexp.MustCompile(`(?m)^curl -s(?: -X ([A-Z]+))?(?: -d '([^']*)')? http://127\.0\.0\.1:8080(/_sim/\S*)$`)
	s := newServer(t, nil)
	text := docs(t)
	commands := command.FindAllStringSubmatch(text, -1)
	if all := strings.Count(text, "\ncurl "); len(commands) != all || all < 9 {
		t.Fatalf("%d of %d commands are of the form that this test knows, want all of 9 or more", len(commands), all)
	}
	for _, c := range commands {
		method := c[1]
		if method == "" && c[2] != "" {
			method = http.MethodPost // as curl does with -d
		} else if method == "" {
			method = http.MethodGet
		}
		if status, answer := call(t, s, method, c[3], c[2]); status != http.StatusOK {
			t.Errorf("%s: %d %s", c[0], status, answer)
		}
	}
}
