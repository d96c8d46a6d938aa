package main

import (
	"fmt"
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

// rival is one figure of ours beside upstream's.
type rival struct{ name, ours, upstream, ratio, target, verdict string }

// duel collects the figures of both.
type duel struct{ rows []rival }

// ratio takes down two figures whose ratio has a target.
func (d *duel) ratio(name string, ours, upstream float64, unit string, t target) {
	d.add(rival{name: name, ours: short(ours) + unit, upstream: short(upstream) + unit, ratio: number(ours/upstream, ""), target: "ratio " + t.text}, t.met(ours/upstream))
}

// bound takes down two figures of which ours has a target.
func (d *duel) bound(name string, ours, upstream, most float64) {
	t := atMost(most)
	ratio := ""
	if upstream > 0 {
		ratio = number(ours/upstream, "")
	}
	d.add(rival{name: name, ours: number(ours, ""), upstream: number(upstream, ""), ratio: ratio, target: t.text}, t.met(ours))
}

// seconds is bound for times.
func (d *duel) seconds(name string, ours, upstream, most float64) {
	d.add(rival{name: name, ours: short(ours) + " s", upstream: short(upstream) + " s", ratio: number(ours/upstream, ""), target: "<= " + number(most, "s")}, ours <= most)
}

func (d *duel) add(r rival, met bool) {
	r.verdict = "ok"
	if !met {
		r.verdict = "MISSED"
	}
	if len(d.rows) == 0 {
		fmt.Printf("%-90s %12s %12s %8s  %s\n", "name", "ours", "upstream's", "ratio", "target")
	}
	d.rows = append(d.rows, r)
	fmt.Printf("%-90s %12s %12s %8s  %s %s\n", r.name, r.ours, r.upstream, r.ratio, r.target, r.verdict)
}

// short is a number as people read it.
func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// markdown is this benchmark's part of the page.
func (d *duel) markdown(s scale) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("## The provisioner, beside csi-provisioner v6.3.0")
	p("")
	p("Both on one real control plane, in turn, before a CSI driver that answers at once; `make bench-provisioner` writes this part of the page.")
	p("")
	p("| figure | ours | upstream's | ratio | target | |")
	p("|---|---|---|---|---|---|")
	for _, r := range d.rows {
		p("| %s | %s | %s | %s | %s | %s |", r.name, r.ours, r.upstream, r.ratio, r.target, r.verdict)
	}
	p("")
	p("### How it is measured")
	p("")
	for _, note := range []string{
		"etcd, kube-apiserver and kube-controller-manager (500 requests a second, 1 000 at once) run on loopback beside the provisioner and its driver, so all share the machine's CPUs.",
		"Requests are counted in the API server's audit log, by user agent. Events and leases are counted apart; the lists and watches that fill caches are not counted.",
		"Claims stand ready before the provisioner starts, with selected node and provisioner written as scheduler and controller-manager would; a rate is taken from the first volume that is saved to the last.",
		fmt.Sprintf("Rates of many claims in the small cluster (3 nodes) are the median of %d runs of each, in turn; all other figures are one run.", s.runs),
		"csi-provisioner is built from its module v6.3.0 with the libraries that it requires itself (test/kube/upstream).",
		machine("make bench-provisioner"),
	} {
		p("- %s", note)
	}
	return b.String()
}
