package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// saved is what became of a suite on a version, where and when. The file of them is a part of the source: a later run replaces what
// it runs again.
type saved struct {
	outcome
	Kubernetes   string // release
	Commit, Date string
	Machine      machine
}

// machine is what a result may depend on besides.
type machine struct {
	Kernel, Containerd, E2fsprogs, Xfsprogs string
}

// results are by version and suite.
type results map[programs.Version]map[string]saved

func readResults(root string) (results, error) {
	all := results{}
	data, err := os.ReadFile(filepath.Join(root, resultsPath))
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(data, &all)
}

// save replaces the result of a suite on a version.
func save(ctx context.Context, root string, v programs.Version, s suite, commit string, got outcome) error {
	all, err := readResults(root)
	if err != nil {
		return err
	}
	release, err := v.Release(root)
	if err != nil {
		return err
	}
	if all[v] == nil {
		all[v] = map[string]saved{}
	}
	got.Minutes = float64(int(got.Minutes*10)) / 10
	all[v][s.name] = saved{outcome: got, Kubernetes: release, Commit: commit, Date: time.Now().UTC().Format(time.DateOnly), Machine: thisMachine(ctx, root, v)}
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, resultsPath), append(data, '\n'), 0o644)
}

// thisMachine asks the programs that a run uses for their versions.
func thisMachine(ctx context.Context, root string, v programs.Version) machine {
	containerd := filepath.Join(v.BuiltNodes(root).Containerd, "containerd")
	return machine{
		Kernel:     said(ctx, 0, "uname", "-r"),
		Containerd: strings.TrimSuffix(strings.TrimPrefix(said(ctx, 2, containerd, "--version"), "v"), "+unknown"),
		E2fsprogs:  said(ctx, 1, "mkfs.ext4", "-V"),
		Xfsprogs:   said(ctx, 2, "mkfs.xfs", "-V"),
	}
}

// said returns a word of what a program says; empty if it isn't there.
func said(ctx context.Context, word int, program string, args ...string) string {
	text, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	words := strings.Fields(string(text))
	if err != nil || len(words) <= word {
		return ""
	}
	return words[word]
}
