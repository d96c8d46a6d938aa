package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// Names of tests, as Ginkgo has them.
const (
	fits      = "External Storage [Driver: x] [Testpattern: Dynamic PV (ext4)] volumes should store data"
	windows   = "External Storage [Driver: x] [Testpattern: Dynamic PV (ntfs)] [Feature:Windows] volumes should store data"
	groups    = "External Storage [Driver: x] [Testpattern:  (delete policy)] volumegroupsnapshottable [Feature:volumegroupsnapshot] VolumeGroupSnapshottable  should create snapshots"
	zoneGroup = "External Storage [Driver: x] of one zone [Testpattern:  (delete policy)] volumegroupsnapshottable [Feature:volumegroupsnapshot] VolumeGroupSnapshottable  should create snapshots"
	zoneFits  = "External Storage [Driver: x] of one zone [Testpattern: Dynamic PV (ext4)] volumes should store data"
	writers   = "External Storage [Driver: x] of several nodes [Testpattern: Dynamic PV (block volmode)] multiVolume [Slow] should concurrently access the single volume from pods on different node"
	readers   = "External Storage [Driver: x] of several nodes [Testpattern: Dynamic PV (default fs)] provisioning should provision storage with pvc data source (ROX mode)"
	stops     = "External Storage [Driver: x] [Testpattern: Dynamic PV (default fs)] subPath should unmount if pod is force deleted while kubelet is down [Disruptive] [Slow] [LinuxOnly]"
	contexts  = "External Storage [Driver: x] [Testpattern: Dynamic PV (filesystem volmode)] disruptive [Disruptive] [LinuxOnly] Should test that pv used in a pod that is deleted while the kubelet is down is usable by a new pod with a different SELinux context when kubelet returns [Feature:SELinux]"
	foreign   = "[sig-node] Pods should run"
)

func TestEveryTestHasItsClassOrItsReason(t *testing.T) {
	for name, want := range map[string]struct {
		chosen bool
		reason string
	}{
		fits:      {true, ""},
		windows:   {true, "Windows"},
		groups:    {true, "a separate class"},
		zoneGroup: {true, ""},
		zoneFits:  {false, ""},
		writers:   {true, ""},
		readers:   {true, ""},
		stops:     {true, ""},
		contexts:  {true, "SELinux"},
		foreign:   {false, ""},
	} {
		if got := chosen(name); got != want.chosen {
			t.Errorf("%s: chosen is %v, want %v", name, got, want.chosen)
		}
		if got := reasonFor(name); (got == "") != (want.reason == "") || !strings.Contains(got, want.reason) {
			t.Errorf("%s: left out for %q, want %q", name, got, want.reason)
		}
	}
}

func TestFlagsNameTheTestsAndWhatIsLeftOut(t *testing.T) {
	for name, row := range map[string]struct {
		options options
		runs    []string
	}{
		"all":   {options{}, []string{fits, zoneGroup, writers, readers, stops}},
		"quick": {options{quick: true}, []string{fits, writers}},
		"focus": {options{focus: "volumegroup"}, []string{zoneGroup}},
	} {
		var focus, skip []string
		for _, flag := range row.options.flags() {
			if pattern, is := strings.CutPrefix(flag, "--focus="); is {
				focus = append(focus, pattern)
			} else if pattern, is := strings.CutPrefix(flag, "--skip="); is {
				skip = append(skip, pattern)
			}
		}
		in, out := regexp.MustCompile(strings.Join(focus, "|")), regexp.MustCompile(strings.Join(skip, "|"))
		for _, test := range []string{fits, windows, groups, zoneGroup, zoneFits, writers, readers, stops, contexts, foreign} {
			runs := in.MatchString(test) && !out.MatchString(test)
			if runs != slices.Contains(row.runs, test) {
				t.Errorf("%s: %s runs: %v", name, test, runs)
			}
		}
	}
}

func TestWordsThatMisleadAreExplained(t *testing.T) {
	for words, want := range map[string]string{
		`Driver "x" does not support snapshots - skipping`: "other kinds of volumes",
		"Driver x doesn't support RWX -- skipping":         "several nodes",
		`volume type "DynamicPV" is not ephemeral`:         "both kinds",
		"raw block volumes cannot be read-only":            "",
	} {
		if got := meaning(words); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: explained by %q, want %q", words, got, want)
		}
	}
}

func TestOldVersionsNeedNotPassWhatTheyLack(t *testing.T) {
	lacking := func(v programs.Version) int { return len(quick) - len(options{version: v, quick: true}.expected()) }
	if lacking("1.33") != len(since) || lacking("1.36") != 0 || lacking(programs.Default) != 0 {
		t.Errorf("of the quick tests %d, %d and %d are not expected; want %d of 1.33, and none of later ones", lacking("1.33"), lacking("1.36"), lacking(programs.Default), len(since))
	}
}

func TestManifestsFitTheFirstVersion(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.CopyFS(dir, manifests), fitFirstVersion(dir)); err != nil {
		t.Fatal(err)
	}
	for _, driver := range drivers {
		text, err := os.ReadFile(filepath.Join(dir, driver))
		if err != nil || strings.Contains(string(text), "AttributesClass") || !strings.Contains(string(text), "DriverInfo") {
			t.Errorf("%s, %v:\n%s", driver, err, text)
		}
		if got := strings.Contains(string(text), "RequiredAccessModes: [ReadWriteMany]"); got != (driver == sharedDriver) {
			t.Errorf("%s claims volumes that several nodes write to: %v", driver, got)
		}
	}
}

func TestImagesOfTheSuiteAreRead(t *testing.T) {
	got := readSuiteImages([]byte(`
	configs[Agnhost] = Config{list.PromoterE2eRegistry, "agnhost", "2.63.0"}
	configs[AgnhostPrivate] = Config{list.PrivateRegistry, "agnhost", "2.6"}
	configs[Pause] = Config{list.GcRegistry, "pause", "3.10.2"}
`))
	want := map[string]string{"Agnhost": "registry.k8s.io/e2e-test-images/agnhost:2.63.0", "Pause": "registry.k8s.io/pause:3.10.2"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
