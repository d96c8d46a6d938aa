package actions

import (
	"os"
	"strings"
	"testing"
)

// docs/simulator.md shows how to add an action by one that is there.
func TestPageShowsAnAction(t *testing.T) {
	page, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("describeregions.go")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("action.go")
	if err != nil {
		t.Fatal(err)
	}
	const row = "\tdescribeRegionsAction,\n"
	if !strings.Contains(string(page), "```\n"+string(file)+"```\n") {
		t.Error("the page does not show describeregions.go as it is")
	}
	if !strings.Contains(string(page), "```\n"+row+"```\n") || !strings.Contains(string(table), row) {
		t.Errorf("the page and the table do not both have the row %q", row)
	}
}
