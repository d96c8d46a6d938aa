package main

import (
	"context"
	"fmt"
	"os/exec"
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

// readCommit returns the commit that is tested, short and marked where files differ from it. It is read before the results, which are a
// part of the source, change.
func readCommit(ctx context.Context, root string) (string, error) {
	commit, err := git(ctx, root, "rev-parse", "--short", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := git(ctx, root, "status", "--porcelain", "--", ".", ":!"+resultsPath, ":!"+pagePath)
	if changed != "" {
		commit += "-dirty"
	}
	return commit, err
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	said, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(said)), nil
}
