package chart

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sidecars are Kubernetes' own programs: the module of test/kube that builds each, and where its flags are made.
var sidecars = map[string]struct{ module, path, main string }{
	"csi-attacher":    {"sidecars", "github.com/kubernetes-csi/external-attacher/v4", "cmd/csi-attacher/main.go"},
	"csi-resizer":     {"sidecars", "github.com/kubernetes-csi/external-resizer/v2", "cmd/csi-resizer/main.go"},
	"csi-provisioner": {"upstream", "github.com/kubernetes-csi/external-provisioner/v6", "cmd/csi-provisioner/csi-provisioner.go"},
	"csi-snapshotter": {"", "github.com/kubernetes-csi/external-snapshotter/v8", "cmd/csi-snapshotter/main.go"},
}

// snapshotter is the version of csi-snapshotter that the chart installs.
const snapshotter = "v8.6.0"

var flagDefinition = regexp.MustCompile(`(?:flag|flags|pflag)\.\w+\((?:&?[\w.]+, *)?(?:utilflag\.\w+\([^)]*\)+, *|cflag\.\w+\([^)]*\)+, *)?"([a-z][a-z0-9-]+)"`)

// directory downloads a module and returns where it is.
func directory(t *testing.T, dir, path string) (at, version string) {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", path)
	download.Dir = dir
	output, err := download.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("go mod download %s: %v\n%s%s", path, err, output, exit.Stderr)
	}
	var module struct{ Dir, Version string }
	if err := json.Unmarshal(output, &module); err != nil || module.Dir == "" {
		t.Fatalf("go mod download %s says %s: %v", path, output, err)
	}
	return module.Dir, module.Version
}

// flagsInSource returns the flags that Go files define.
func flagsInSource(t *testing.T, files ...string) []string {
	t.Helper()
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range flagDefinition.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
	}
	return names
}

// flagsOfLog are the flags that a program has from the logging library, if it lets it write JSON.
func flagsOfLog(t *testing.T, main string) []string {
	t.Helper()
	text, err := os.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	for _, needed := range []string{"logsapi.Add", "component-base/logs/json/register"} {
		if !strings.Contains(string(text), needed) {
			t.Errorf("%s has no %s", main, needed)
		}
	}
	return []string{"v", "logging-format"}
}

// A sidecar that is given a flag which it doesn't know ends at once.
func TestSidecarsKnowTheirFlagsAtTheTestedVersion(t *testing.T) {
	libDir, _ := directory(t, "../kube/sidecars", "github.com/kubernetes-csi/csi-lib-utils")
	common := flagsInSource(t, filepath.Join(libDir, "standardflags/flags.go"))
	if !slices.Contains(common, "kube-api-qps") {
		t.Fatalf("csi-lib-utils defines only %v", common)
	}
	schema, err := ReadSchema(repo)
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]string{}
	schema.Walk("", func(path string, s *Schema) {
		if name, ok := strings.CutSuffix(path, ".tag"); ok {
			tags[name] = strings.Trim(string(s.Default), `"`)
		}
	})
	pod := controllerPod(t, preset(t, "full", ""))
	for name, of := range sidecars {
		dir, path := filepath.Join("../kube", of.module), of.path
		if of.module == "" {
			dir, path = ".", of.path+"@"+snapshotter
		}
		at, version := directory(t, dir, path)
		known := append(flagsInSource(t, filepath.Join(at, of.main)), append(common, flagsOfLog(t, filepath.Join(at, of.main))...)...)
		for _, arg := range container(t, pod, name).Args {
			flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !slices.Contains(known, flag) {
				t.Errorf("%s %s is given %s; it knows %v", name, version, arg, known)
			}
		}
		words := strings.Split(name, "-")
		if value := words[0] + strings.ToUpper(words[1][:1]) + words[1][1:]; tags[value] != version {
			t.Errorf("%s.tag is %s, and test/kube has %s", value, tags[value], version)
		}
	}
}
