package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/explain/collect"
	"github.com/topodisk/topodisk/test/golden"
)

// whyBlock is a block of a page that shows what why prints of the facts in a file.
var whyBlock = regexp.MustCompile("(?s)<!-- made by make docs-update: why --from=(\\S+) -->\n```\n.*?```\n")

func TestTheTroubleshootingPageIsCurrent(t *testing.T) {
	for page, least := range map[string]int{
		"../../README.md": 1, "../../docs/zh/README.md": 1, "../../docs/troubleshooting.md": 20, "../../docs/zh/troubleshooting.md": 20,
	} {
		current, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		made := whyBlock.ReplaceAllStringFunc(string(current), func(block string) string {
			shown++
			marker, _, _ := strings.Cut(block, "\n")
			return marker + "\n```\n" + whyOf(t, whyBlock.FindStringSubmatch(block)[1]) + "```\n"
		})
		if shown < least {
			t.Errorf("%s shows what why prints only %d times", page, shown)
		}
		golden.Page(t, page, made)
	}
}

// pageWidth is how wide a page shows what why prints.
const pageWidth = 120

// whyOf returns the command line and what it prints of the facts in a file of the repository.
func whyOf(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	facts, err := collect.ReadDump(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	verdict, printed := explain.Why(facts), &bytes.Buffer{}
	if err := printVerdict(&screen{out: printed, width: pageWidth}, &verdict); err != nil {
		t.Fatal(err)
	}
	return commandOf(t, facts.Subject) + printed.String()
}

// commandOf returns what a user types to ask for a subject.
func commandOf(t *testing.T, of explain.Ref) string {
	t.Helper()
	k, known := findKind(of.Kind)
	if !known {
		t.Fatalf("no kind %s", of.Kind)
	}
	name := k.short
	if k == kinds[0] || k.short == "" {
		name = k.singular
	}
	if of.Namespace == "" {
		return fmt.Sprintf("$ kubectl topodisk why %s %s\n", name, of.Name)
	}
	return fmt.Sprintf("$ kubectl topodisk why %s %s --namespace %s\n", name, of.Name, of.Namespace)
}
