package ecs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/golden"
)

const codesPage = "../../docs/ecs-codes.md"

// TestTheCodesPageIsCurrent holds docs/ecs-codes.md against the tables of codes.
func TestTheCodesPageIsCurrent(t *testing.T) {
	golden.Page(t, codesPage, codesText())
}

const codesPageIntro = `# Error codes of ECS

<!-- Made from the tables in diskdriver/ecs/codes.go, by make docs-update. -->

What the driver takes each code of ECS for; [errors.md](errors.md) says what follows from a kind. A code that ends in ` + "`*`" + `
stands for all that begin so, unless a longer one is listed. Besides the code count

- an answer with HTTP status 500 or above, and one without a code: of a call that changes something *unknown outcome*, of a
  read *unreachable*;
- a code that isn't listed: *unexpected*, for ECS has answered;
- a CreateDisk whose message says that the zone is out of stock: *out of stock*, whatever the code; and one that doesn't find
  what the request names: *invalid*.
`

func codesText() string {
	text := codesPageIntro
	for _, kind := range slices.Sorted(maps.Values(codes)) {
		heading := "\n## " + kind.String() + "\n"
		if strings.Contains(text, heading) {
			continue
		}
		text += heading + "\n" + list(codes, kind, "")
		for _, action := range slices.Sorted(maps.Keys(codesOf)) {
			text += list(codesOf[action], kind, "Of "+action+": ")
		}
	}
	return text
}

// list is a line for each code of the Kind.
func list(table map[string]disk.Kind, kind disk.Kind, of string) string {
	var text strings.Builder
	for _, code := range slices.Sorted(maps.Keys(table)) {
		if table[code] == kind {
			fmt.Fprintf(&text, "- %s`%s`\n", of, code)
		}
	}
	return text.String()
}

// TestThePolicyGrantsWhatIsCalled holds the RAM policy of deploy/ram-policy.json,
// which docs/credentials.md shows, against the actions.
func TestThePolicyGrantsWhatIsCalled(t *testing.T) {
	text, err := os.ReadFile("../../deploy/ram-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/credentials.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```json\n"+string(text)+"```") {
		t.Error("docs/credentials.md shows another policy than deploy/ram-policy.json")
	}
	var policy struct {
		Statement []struct {
			Effect    string
			Action    []string
			Condition map[string]map[string]string
		}
	}
	if err := json.Unmarshal(text, &policy); err != nil || len(policy.Statement) != 2 {
		t.Fatalf("deploy/ram-policy.json has no policy of two statements: %v", err)
	}
	free, tagged := policy.Statement[0], policy.Statement[1]
	var want []string
	for _, a := range actions {
		want = append(want, "ecs:"+a.name)
	}
	slices.Sort(want)
	granted := slices.Concat(free.Action, tagged.Action)
	slices.Sort(granted)
	if diff := cmp.Diff(granted, slices.Compact(want)); diff != "" {
		t.Errorf("deploy/ram-policy.json grants other actions than the driver calls (-granted, +called):\n%s", diff)
	}
	// What destroys or changes a disk is for the cluster's own.
	own := []string{"ecs:DeleteDisk", "ecs:ModifyDiskAttribute", "ecs:ModifyDiskSpec", "ecs:ResizeDisk"}
	if diff := cmp.Diff(own, tagged.Action); diff != "" || tagged.Condition["StringEquals"]["acs:ResourceTag/"+disk.ClusterTag] == "" || free.Condition != nil {
		t.Errorf("conditions %v and %v; (-for tagged disks alone, +granted so):\n%s", free.Condition, tagged.Condition, diff)
	}
}
