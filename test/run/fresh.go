package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// runFresh runs `make test` as on a fresh Debian: the programs that can be found are those of the packages that every Debian
// has, and Go, git and make. It fails if the tests do, or if their last line doesn't say what was missing. It runs the tests
// of packages that ask what the machine has (test/need), for those of others are the same on every machine.
func runFresh(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "fresh")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is for temporary files
	if err := link(dir); err != nil {
		return err
	}
	all, err := list(ctx, "./...")
	if err != nil {
		return err
	}
	said, err := makeTest(ctx, dir, pathsOf(all, goPackage.asksTheMachine))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last, want := lines[len(lines)-1], []string{" skipped: ", "without the race detector", "gcc"}
	if os.Geteuid() == 0 {
		want = append(want, "package xfsprogs", "package fdisk")
	} else {
		want = append(want, "for want of root")
	}
	for _, text := range want {
		if !strings.Contains(last, text) {
			return fmt.Errorf("the last line of make test doesn't say %q", text)
		}
	}
	return nil
}

// makeTest runs make test of packages with what a directory has, and returns what it prints.
func makeTest(ctx context.Context, dir string, packages []string) (string, error) {
	var said bytes.Buffer
	test := exec.CommandContext(ctx, filepath.Join(dir, "make"), "test", "PACKAGES="+strings.Join(packages, " "))
	test.Cancel = func() error { return test.Process.Signal(os.Interrupt) }
	test.Stdout, test.Stderr = io.MultiWriter(os.Stdout, &said), os.Stderr
	for _, setting := range os.Environ() {
		name, _, _ := strings.Cut(setting, "=")
		if !slices.Contains([]string{"PATH", "CI", "GO", "CC", "CGO_ENABLED", "GOFLAGS", "FRESH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}, name) {
			test.Env = append(test.Env, setting)
		}
	}
	test.Env = append(test.Env, "PATH="+dir)
	err := test.Run()
	return said.String(), err
}

// link makes links to the programs of a fresh machine in a directory.
func link(dir string) error {
	for _, name := range []string{"go", "git", "make"} {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	list, err := exec.Command("dpkg-query", "--show", "--showformat=${Package} ${Essential} ${Priority}\n").Output()
	if err != nil {
		return fmt.Errorf("dpkg-query, which says what every Debian has: %w", err)
	}
	args := []string{"--listfiles"}
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) == 3 && (fields[1] == "yes" || fields[2] == "required") {
			args = append(args, fields[0])
		}
	}
	files, err := exec.Command("dpkg", args...).Output()
	if err != nil {
		return fmt.Errorf("dpkg %s: %w", strings.Join(args, " "), err)
	}
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		if folder := filepath.Base(filepath.Dir(file)); folder != "bin" && folder != "sbin" {
			continue
		}
		if path, err := exec.LookPath(file); err == nil {
			if err := os.Symlink(path, filepath.Join(dir, filepath.Base(file))); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		}
	}
	return nil
}
