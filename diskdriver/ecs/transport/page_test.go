package transport

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
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/golden"
)

const codesPage = "../../../docs/ecs-codes.md"

// TestTheCodesPageIsCurrent holds docs/ecs-codes.md against the tables of codes.
func TestTheCodesPageIsCurrent(t *testing.T) {
	golden.Page(t, codesPage, codesText())
}

const codesPageIntro = `# Error codes of ECS

<!-- Made from the tables in diskdriver/ecs/transport/codes.go, by make docs-update. -->

This page lists the kind of error that the driver derives from each code of ECS; [errors.md](errors.md) explains the kinds. A code
that ends in ` + "`*`" + ` matches all codes with that prefix, unless a longer one is listed. Some kinds don't depend on the code alone:

- An answer with HTTP status 500 or above, or one without a code, is *unknown outcome* for a call that changes something, and
  *unreachable* for a read.
- A code that isn't listed is *unexpected*, because ECS has answered.
- A CreateDisk whose message says that the zone is out of stock is *out of stock*, whatever the code. A CreateDisk that doesn't find
  an object that the request names is *invalid*.
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
// which docs/security.md shows, against the actions.
func TestThePolicyGrantsWhatIsCalled(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/ram-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```json\n"+string(text)+"```") {
		t.Error("docs/security.md shows another policy than deploy/ram-policy.json")
	}
	var policy ecssim.Policy
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	var granted, want []string
	for _, statement := range policy.Statement {
		if statement.Effect == "Deny" {
			continue
		}
		granted = append(granted, statement.Action...)
		for _, action := range statement.Action {
			// What changes a disk or a snapshot is for the cluster's own, as far as
			// RAM knows the tags: instances have whose tags they have.
			free := strings.HasPrefix(action, "ecs:Describe") || slices.Equal(statement.Resource, []string{"acs:ecs:*:*:instance/*"}) || action == "ecs:DeleteSnapshotGroup"
			conditions := statement.Condition["StringEquals"]
			tag := "acs:ResourceTag/" + disk.OwnerTag
			if conditions[tag] == nil {
				tag = "acs:RequestTag/" + disk.OwnerTag
			}
			if !free && !slices.Equal(conditions[tag], []string{"REPLACE-WITH-THE-CLUSTER-ID"}) {
				t.Errorf("%s of %s is granted under %v, want the cluster's tag", action, statement.Resource, statement.Condition)
			}
		}
	}
	for _, name := range Actions {
		want = append(want, "ecs:"+name)
	}
	slices.Sort(want)
	slices.Sort(granted)
	if diff := cmp.Diff(slices.Compact(granted), slices.Compact(want)); diff != "" {
		t.Errorf("deploy/ram-policy.json grants other actions than the driver calls (-granted, +called):\n%s", diff)
	}
}
