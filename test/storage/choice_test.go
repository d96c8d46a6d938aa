package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
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
	foreign   = "[sig-node] Pods should run"
)

func TestEveryTestHasItsClassOrItsReason(t *testing.T) {
	for name, want := range map[string]struct {
		chosen bool
		reason string
	}{
		fits:      {true, ""},
		windows:   {true, "Windows"},
		groups:    {true, "class of their own"},
		zoneGroup: {true, ""},
		zoneFits:  {false, ""},
		writers:   {true, ""},
		readers:   {true, ""},
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
		"all":   {options{}, []string{fits, zoneGroup, writers, readers}},
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
		for _, test := range []string{fits, windows, groups, zoneGroup, zoneFits, writers, readers, foreign} {
			runs := in.MatchString(test) && !out.MatchString(test)
			if runs != slices.Contains(row.runs, test) {
				t.Errorf("%s: %s runs: %v", name, test, runs)
			}
		}
	}
}
