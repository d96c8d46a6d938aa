package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// inCI stands for one version that is not the default, on which every other test runs.
const inCI = "ci"

// choose returns the versions that a text names, in their order.
func choose(text, commit string) ([]programs.Version, error) {
	if text == inCI {
		return chooseForCI(commit)
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

// chooseForCI returns one of the versions that are not the default, by the commit's hash.
func chooseForCI(commit string) ([]programs.Version, error) {
	hash, err := hex.DecodeString(commit)
	if err != nil || len(hash) < 8 {
		return nil, fmt.Errorf("commit %q is no hash", commit)
	}
	others := slices.DeleteFunc(slices.Clone(programs.Versions), func(v programs.Version) bool { return v == programs.Default })
	return []programs.Version{others[binary.BigEndian.Uint64(hash)%uint64(len(others))]}, nil
}

// commit is what is tested.
type commit struct {
	hash string
	name string // short, and marked where files differ from it
}

// readCommit reads it before the results, which are a part of the source, change.
func readCommit(ctx context.Context, root string) (c commit, err error) {
	if c.hash, err = git(ctx, root, "rev-parse", "HEAD"); err != nil {
		return c, err
	}
	if c.name, err = git(ctx, root, "rev-parse", "--short", "HEAD"); err != nil {
		return c, err
	}
	changed, err := git(ctx, root, "status", "--porcelain", "--", ".", ":!"+resultsPath, ":!"+pagePath)
	if changed != "" {
		c.name += "-dirty"
	}
	return c, err
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	said, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(said)), nil
}
