package fit

import (
	"iter"
	"slices"
)

// Minimal returns an inclusion-minimal set of the reasons that together exclude all n nodes: without any one of them some node is left. It
// is nil if all reasons together leave some node. The reasons are given best first, for it does without the last first; nodes yields the
// indexes of those that a reason excludes, each once.
func Minimal[R any](reasons []R, n int, nodes func(R) iter.Seq[int]) []R {
	excludedBy := make([]int, n) // so many of the reasons that are kept
	for _, r := range reasons {
		for i := range nodes(r) {
			excludedBy[i]++
		}
	}
	if n == 0 || slices.Contains(excludedBy, 0) {
		return nil
	}
	kept := slices.Clone(reasons)
	for at := len(kept) - 1; at >= 0; at-- {
		if excludesAlone(nodes(kept[at]), excludedBy) {
			continue
		}
		for i := range nodes(kept[at]) {
			excludedBy[i]--
		}
		kept = slices.Delete(kept, at, at+1)
	}
	return kept
}

func excludesAlone(nodes iter.Seq[int], excludedBy []int) bool {
	for i := range nodes {
		if excludedBy[i] == 1 {
			return true
		}
	}
	return false
}
