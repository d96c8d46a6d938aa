package main

import (
	"fmt"
	"slices"
	"strings"
)

// target is what a figure, or the ratio of two, is to be.
type target struct {
	text string
	met  func(float64) bool
}

func atLeast(v float64) target {
	return target{">= " + number(v, ""), func(got float64) bool { return got >= v }}
}

func atMost(v float64) target {
	return target{"<= " + number(v, ""), func(got float64) bool { return got <= v }}
}

// row is one figure of both provisioners.
type row struct{ Name, Ours, Upstream, Ratio, Target, Verdict string }

// table has the rows of the page.
type table struct{ rows []row }

// ratio takes down two figures whose ratio has a target.
func (t *table) ratio(name string, ours, upstream float64, unit string, want target) {
	t.rounds(name, [2][]float64{{ours}, {upstream}}, unit, want)
}

// rounds takes down the figures of several rounds, ours and upstream's of a round side by side. What has a target is the
// median of the rounds' ratios: the machine is not as fast in one round as in another.
func (t *table) rounds(name string, figures [2][]float64, unit string, want target) {
	ratios := quotients(figures[0], figures[1])
	ratio := median(ratios)
	text := short(ratio)
	if len(ratios) > 1 {
		text += fmt.Sprintf(" (%s to %s)", short(slices.Min(ratios)), short(slices.Max(ratios)))
	}
	t.add(row{Name: name, Ours: short(median(figures[0])) + unit, Upstream: short(median(figures[1])) + unit, Ratio: text, Target: "ratio " + want.text}, want.met(ratio))
}

func quotients(a, b []float64) []float64 {
	var ratios []float64
	for i := range a {
		ratios = append(ratios, a[i]/b[i])
	}
	return ratios
}

// bound takes down two figures of which ours has a target.
func (t *table) bound(name string, ours, upstream float64, unit string, most float64) {
	ratio := ""
	if upstream > 0 {
		ratio = short(ours / upstream)
	}
	t.add(row{Name: name, Ours: number(ours, "") + unit, Upstream: number(upstream, "") + unit, Ratio: ratio, Target: "<= " + number(most, "") + unit}, ours <= most)
}

// limit takes down a figure of ours alone.
func (t *table) limit(name string, ours float64, unit string, most float64) {
	t.add(row{Name: name, Ours: short(ours) + unit, Target: "<= " + number(most, "") + unit}, ours <= most)
}

func (t *table) add(r row, met bool) {
	r.Verdict = "ok"
	if !met {
		r.Verdict = "MISSED"
	}
	if len(t.rows) == 0 {
		fmt.Printf("%-90s %12s %12s %20s  %s\n", "name", "ours", "upstream's", "ratio", "target")
	}
	t.rows = append(t.rows, r)
	fmt.Printf("%-90s %12s %12s %20s  %s %s\n", r.Name, r.Ours, r.Upstream, r.Ratio, r.Target, r.Verdict)
}

// short is a number as people read it.
func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// markdown is this benchmark's part of the page.
func (t *table) markdown(s scale, commits []string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("## The provisioner, beside csi-provisioner v6.3.0")
	p("")
	p("Both on one real control plane, in turn, before a CSI driver that answers at once; `make bench-provisioner` writes this part of the page.")
	p("")
	p("| figure | ours | upstream's | ratio | target | |")
	p("|---|---|---|---|---|---|")
	for _, r := range t.rows {
		p("| %s | %s | %s | %s | %s | %s |", r.Name, r.Ours, r.Upstream, r.Ratio, r.Target, r.Verdict)
	}
	p("")
	p("### How it is measured")
	p("")
	for _, note := range []string{
		"etcd, kube-apiserver and kube-controller-manager (500 requests a second, 1 000 at once) run on loopback beside the provisioner and its driver, so all share the machine's CPUs. In the large cluster the controller-manager, which looks at every claim and volume again and again, takes up to half of them from either, and disk-provisioner waits for the API server most of the time.",
		"Requests are counted in the API server's audit log, by user agent. Events and leases are counted apart; the lists and watches that fill caches are not counted, nor what a start reads once (the journal, the CSIDriver). A claim alone costs one more write if nothing else is written for a minute: its entry is then taken out of the journal.",
		"Many claims at once stand ready before the provisioner starts, with selected node and provisioner written as scheduler and controller-manager would; a rate is taken from the first volume that is saved to the last.",
		"The huge cluster is a control plane of its own, in which persistentvolume-binder-controller does not run: it looks at every claim and volume every 15 s, and elsewhere it has a machine of its own. Nodes send no heartbeats. csi-provisioner does not run there; in the column of upstream's stand disk-provisioner's own rate with three nodes, before the others are made, and the rate at which the API server takes the same PersistentVolumes from a client that does nothing else, with as many requests at once (100), after each run. The idle minute begins 30 s after the last volume.",
		"Deletions are timed from the first request for a volume to the last volume that is let go, the burst of twice the QPS included.",
		"Both run with their defaults but for the limit of requests that a row names (without strict topology, that is); the journal and the events of disk-provisioner have limits of their own, 100 and 20 requests a second.",
		fmt.Sprintf("Rates of many claims in the small cluster and latencies, and all figures of the huge cluster, are the median of %d runs of each, in turn; takeovers and all figures of the large cluster of %d; a ratio is the median of the rounds' ratios; counts, and the rates at the defaults and of deletions, are one run.", s.runs, s.rounds),
		"The time of a claim is from the API server's answer to the controller-manager, which assigns its provisioner, to its answer to the provisioner, which saves its PersistentVolume. These claims are made at an even rate with their selected node, and the real controller-manager assigns them.",
		"A slowed control plane (etcd, API server, controller-manager, scheduler) has that part of the machine's CPU time, in slices of a millisecond by a cgroup, and claims come at as much lower a rate, for two cores at full speed have little left at 50 a second.",
		"What depends on the machine: rates, and the ratio of latencies. Where the API server is quick, csi-provisioner saves a volume within few milliseconds of a claim that is ready, and disk-provisioner must have the claim in its journal by then; where it is slow, both wait for it. A ratio's range over the rounds stands in brackets.",
		"A takeover is timed from the signal to the next PersistentVolume that is saved, of a claim made once the leader has ended; the Lease's times are both programs' defaults (15 s, renewed every 5 s). Each replica runs on a host name of its own, by which csi-provisioner tells its replicas apart.",
		"The requirement is that of a claim with a selected node, from caches that are full: topology.Index's against upstream's GenerateAccessibilityRequirements, each in a process of its own.",
		"csi-provisioner is built from its module v6.3.0 with the libraries that it requires itself (test/kube/upstream).",
		machine("make bench-provisioner") + " Measured: " + strings.Join(commits, "; ") + ".",
	} {
		p("- %s", note)
	}
	return b.String()
}
