package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// A driver is told to the tests once for each kind of its classes: the manifest's tag stands in the names of the tests.
var drivers = []string{"driver.yaml", sharedDriver, "zone.yaml"}

// sharedDriver has disks that several nodes can have.
const sharedDriver = "shared.yaml"

// ours begins the name of what the tests of a driver are below. The program holds others of Kubernetes' tests, too.
const ours = "External Storage"

// Beginnings of the tests' names, as regular expressions.
const (
	ordinary = ours + ` \[Driver: [^]]+\] \[Testpattern: `
	shared   = ours + ` \[Driver: [^]]+\] of several nodes \[Testpattern: `
	zone     = ours + ` \[Driver: [^]]+\] of one zone \[Testpattern: `
)

// all are all tests that are about the driver, each with the class that it needs.
var all = []string{
	ordinary,
	shared + `.*(ROX mode|block volmode.*multiVolume.*(from pods on different node|read-only volume))`,
	zone + `.*(volumegroupsnapshot|performance|volume-modify-stress|immediate-binding)`,
}

// quick are a few minutes of them, in which everything that the driver can do is seen once, but for what is restored from a
// group of snapshots.
var quick = []string{
	ordinary + `Dynamic PV \(ext4\)\] volumes should store data`,
	ordinary + `Dynamic PV \(default fs\)\] volumes should allow exec`,
	ordinary + `Dynamic PV \(block volmode\)\] volumes should store data`,
	ordinary + `Dynamic PV \(default fs\)\] capacity`,
	ordinary + `Dynamic PV \(default fs\)\] subPath should support existing directory$`,
	ordinary + `Dynamic PV \(default fs\)\] provisioning should provision storage with mount options`,
	ordinary + `Dynamic PV \(default fs\)\] provisioning should provision storage with snapshot data source \[`,
	ordinary + `Dynamic PV \(block volmode\)\] provisioning should provision storage with pvc data source$`,
	ordinary + `Dynamic PV \(default fs\)\] provisioning should mount multiple PV`,
	ordinary + `Dynamic PV \(default fs\)\] fsgroupchangepolicy \(OnRootMismatch\).*skips`,
	ordinary + `Dynamic PV \(default fs\)\] read-write-once-pod( \[MinimumKubeletVersion:[^]]+\])? should block`, // the label is of versions before 1.35
	ordinary + `Dynamic PV \(default fs\)\] volume-modify .*should modify volume with no VAC`,
	ordinary + `Dynamic PV \(default fs\)\(allowExpansion\)\] volume-expand should resize volume when PVC is edited while pod is using it`,
	ordinary + `Dynamic PV \(block volmode\)\(allowExpansion\)\] volume-expand should resize volume when PVC is edited while pod is using it`,
	ordinary + `Dynamic PV \(default fs\)\(allowExpansion\)\] volume-expand Verify if offline`,
	ordinary + `Dynamic PV \(filesystem volmode\)\] volumeLimits should verify`,
	ordinary + `Dynamic PV \(filesystem volmode\)\] multiVolume .*same volume mode and retain data across pod recreation on different node`,
	ordinary + `Dynamic PV \(filesystem volmode\)\] volumeMode should not mount`,
	ordinary + `Dynamic PV \(immediate binding\)\] topology should provision`,
	ordinary + `Dynamic PV \(delayed binding\)\] topology`,
	ordinary + `Generic Ephemeral-volume \(default fs\) \(late-binding\)\] ephemeral should create read/write`,
	ordinary + `Dynamic Snapshot \(delete policy\)\] snapshottable \[.*\(persistent\)`,
	shared + `Dynamic PV \(block volmode\)\] multiVolume .*from pods on different node`,
	zone + `.*volumegroupsnapshotclass .*should use default`,
}

// left are tests that are left out, each with the reason.
var left = []struct{ tests, reason string }{
	{`\[Feature:Windows\]|ntfs`, "Nodes with Windows: the driver supports Linux only."},
	{`Inline-volume|CSI Ephemeral`, "Inline volumes: the driver needs a PersistentVolume for each disk; generic ephemeral volumes are tested."},
	{`Pre-provisioned PV`, "Volumes that the tests create themselves: they support this only for the drivers in their own source. `make e2e` tests volumes that another driver created."},
	{`seLinuxMount|different SELinux context`, "The nodes' kernel has no SELinux."},
	{`snapshotmetadata`, "The driver doesn't report which blocks of a snapshot have changed."},
	{`any volume data source`, "The test's populator and validator are available only as images of a registry, not as Go modules."},
	{ordinary + `.*(ROX mode|volumegroupsnapshot|performance|volume-modify-stress|immediate-binding|block volmode.*multiVolume.*single volume from pods on different node)`,
		"Tested with a separate class: see the tests of several nodes and of one zone."},
}

// meant are words of tests that skip themselves, with what they come to, where that isn't plain.
var meant = []struct{ words, comesTo string }{
	{`does not support snapshots`, "This test takes snapshots only of the other kinds of volumes: it passes with ext4, xfs and block volumes."},
	{`doesn't support RWX`, "Several nodes that write to one file system destroy it. Block volumes are tested with a separate class: see the tests of several nodes."},
	{`is (not )?ephemeral`, "The same test exists for both kinds of volumes, and skips one of them."},
}

// meaning returns what the words of a test that skips itself come to; empty if they are plain.
func meaning(words string) string {
	for _, m := range meant {
		if matches(m.words, words) {
			return m.comesTo
		}
	}
	return ""
}

// reasonFor returns why a test is left out; empty if it isn't.
func reasonFor(name string) string {
	for _, l := range left {
		if matches(l.tests, name) {
			return l.reason
		}
	}
	return ""
}

func matches(tests, name string) bool { return regexp.MustCompile(tests).MatchString(name) }

// firstWithGroups has the tests of groups of snapshots, and serves MutatingAdmissionPolicy in admissionregistration.k8s.io/v1,
// which those need.
const firstWithGroups programs.Version = "1.36"

// since are tests that earlier versions don't have, or can't run.
var since = map[string]programs.Version{
	`volume-modify`:            programs.FirstWithAttributesClasses,
	`volumegroupsnapshotclass`: firstWithGroups,
}

// expected are the focused tests of which some have to pass.
func (o options) expected() []string {
	return slices.DeleteFunc(slices.Clone(o.focused()), func(tests string) bool {
		for words, first := range since {
			if !o.version.AtLeast(first) && strings.Contains(tests, words) {
				return true
			}
		}
		return false
	})
}

// focused returns the tests that the options name, whatever is left out of them.
func (o options) focused() []string {
	switch {
	case o.focus != "":
		return []string{ours + ".*" + o.focus}
	case o.quick:
		return quick
	}
	return all
}

// part are tests that run together: those with some labels, so many at a time.
type part struct {
	labels string // a filter of Ginkgo
	procs  int
	report string // file
}

// parts are the tests in the order in which they are run: those that stop kubelets by themselves, when all others are over.
func (o options) parts() []part {
	parts := []part{{"!Disruptive", o.procs, "e2e-storage.json"}, {"Disruptive", 1, "e2e-storage-disruptive.json"}}
	if o.quick { // none of them stops kubelets
		return parts[:1]
	}
	return parts
}

// flags returns the tests that the options name as flags of Ginkgo.
func (o options) flags() (flags []string) {
	for _, tests := range o.focused() {
		flags = append(flags, "--focus="+tests)
	}
	for _, l := range left {
		flags = append(flags, "--skip="+l.tests)
	}
	return flags
}

// chosen says whether a test is one of all, whatever is left out.
func chosen(name string) bool {
	return slices.ContainsFunc(all, func(tests string) bool { return matches(tests, name) })
}
