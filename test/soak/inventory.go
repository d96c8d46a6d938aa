package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Inventory names what there is, by kind: disks, PersistentVolumes, mounts.
type Inventory map[string][]string

// Same returns nil if what there is after the load has ended is exactly what there was before it began, and otherwise an
// error with a line for each kind that differs: what is left over and what is missing. Order does not count, number does.
func (before Inventory) Same(after Inventory) error {
	kinds := maps.Clone(before)
	if kinds == nil {
		kinds = Inventory{}
	}
	maps.Copy(kinds, after)
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		left, missing := without(after[kind], before[kind]), without(before[kind], after[kind])
		if len(left)+len(missing) > 0 {
			lines = append(lines, fmt.Sprintf("%s: left over %q, missing %q", kind, left, missing))
		}
	}
	if len(lines) > 0 {
		return fmt.Errorf("not as before the load:\n%s", strings.Join(lines, "\n"))
	}
	return nil
}

// without returns the names of a that are not in b, sorted; of a name that both have, as many as a has more.
func without(a, b []string) []string {
	count := map[string]int{}
	for _, name := range b {
		count[name]++
	}
	more := []string{}
	for _, name := range slices.Sorted(slices.Values(a)) {
		if count[name]--; count[name] < 0 {
			more = append(more, name)
		}
	}
	return more
}
