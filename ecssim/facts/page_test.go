package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/golden"
)

const pageHead = `# What ECS does

Each row is a fact that the simulated ECS ([simulator.md](simulator.md)) is tested against, and that ` + "`make cloud-check`" + ` checks with the
real ECS. The source is a page of ECS's API reference unless the row says otherwise. Where sources disagree, the row has several
behaviors: the first is the simulator's default, and a flag of ` + "`ecs-simulator`" + ` chooses another one. *Asked with* is what the check
needs: nothing but a key, disks that it creates and deletes, an instance that it attaches them to, or a simulator, if the situation
can't be produced in the real ECS.

This page is generated from ` + "`ecssim/facts`" + ` by ` + "`make docs-update`" + `.

## Flags

| flag | default | values | meaning |
|---|---|---|---|
`

func TestTheFactsPageIsCurrent(t *testing.T) {
	var made strings.Builder
	made.WriteString(pageHead)
	for _, s := range ecssim.Settings() {
		values := codes(s.Values)
		if s.List {
			values = "`none`, or any of " + values
		}
		fmt.Fprintf(&made, "| `--%s` | `%s` | %s | %s |\n", s.Name, s.Default, values, s.Means)
	}
	all := Facts()
	for _, action := range actions(all) {
		fmt.Fprintf(&made, "\n## %s\n\n| fact | source | asked with | the simulator |\n|---|---|---|---|\n", action)
		for _, f := range all {
			if f.Action == action {
				fmt.Fprintf(&made, "| %s | %s | %s | %s |\n", escape(f.Says), escape(f.Source), f.Needs, ways(f))
			}
		}
	}
	golden.Page(t, "../../docs/ecs-facts.md", made.String())
}

// actions are those of the facts, in alphabetical order; pages that are no
// actions come first.
func actions(all []Fact) []string {
	names := map[string]bool{}
	for _, f := range all {
		names[f.Action] = true
	}
	isPage := func(name string) int {
		if strings.Contains(name, " ") || name == "Throttling" {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int { return cmp.Or(isPage(a)-isPage(b), strings.Compare(a, b)) })
}

// ways says what the simulator does, and the flags that choose.
func ways(f Fact) string {
	if len(f.Ways) == 0 {
		return "does so"
	}
	texts := []string{"**" + escape(f.Ways[0].Says) + "**"}
	for _, w := range f.Ways[1:] {
		var flags []string
		for _, name := range slices.Sorted(maps.Keys(w.Settings)) {
			if value := w.Settings[name]; !strings.HasPrefix(value, "+") && !strings.HasPrefix(value, "-") {
				flags = append(flags, "`--"+name+"="+value+"`")
				continue
			}
			verb := map[byte]string{'+': "with", '-': "without"}[w.Settings[name][0]]
			flags = append(flags, "`--"+name+"` "+verb+" `"+w.Settings[name][1:]+"`")
		}
		texts = append(texts, escape(w.Says)+": "+strings.Join(flags, " "))
	}
	return strings.Join(texts, "<br>")
}

func codes(values []string) string { return "`" + strings.Join(values, "`, `") + "`" }

func escape(text string) string { return strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(text) }
