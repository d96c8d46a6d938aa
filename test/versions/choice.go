package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// inCI stands for the oldest version: every other test runs on the newest. The results are not kept.
const inCI = "ci"

// choose returns the versions that a text names, in their order.
func choose(text string) ([]programs.Version, error) {
	if text == inCI {
		return programs.Versions[:1], nil
	}
	var chosen []programs.Version
	for word := range strings.SplitSeq(text, ",") {
		var v programs.Version
		if err := v.Set(strings.TrimSpace(word)); err != nil {
			return nil, fmt.Errorf("KUBE=%s: %q is no version that can be run: %w, or %s alone", text, word, err, inCI)
		}
		if !slices.Contains(chosen, v) {
			chosen = append(chosen, v)
		}
	}
	return chosen, nil
}
