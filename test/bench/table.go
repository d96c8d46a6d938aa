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
	t.add(row{Name: name, Ours: short(median(figures[0])) + unit, Upstream: short(median(figures[1])) + unit,
		Ratio: text, Target: "ratio " + want.text}, want.met(ratio))
}

// differences takes down the figures of several rounds. What has a target is the median of the rounds' differences: how much longer ours take.
func (t *table) differences(name string, figures [2][]float64, unit string, most float64) {
	longer := make([]float64, len(figures[0]))
	for i := range longer {
		longer[i] = figures[0][i] - figures[1][i]
	}
	text := fmt.Sprintf("%+.1f%s (%+.1f to %+.1f)", median(longer), unit, slices.Min(longer), slices.Max(longer))
	t.add(row{Name: name, Ours: short(median(figures[0])) + unit, Upstream: short(median(figures[1])) + unit,
		Ratio: text, Target: "at most " + number(most, "") + unit + " longer"}, median(longer) <= most)
}

// beside takes down two figures that have no target.
func (t *table) beside(name string, ours, upstream float64, unit string) {
	t.add(row{Name: name, Ours: short(ours) + unit, Upstream: short(upstream) + unit, Ratio: short(ours / upstream)}, true)
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
	t.add(row{Name: name, Ours: number(ours, "") + unit, Upstream: number(upstream, "") + unit,
		Ratio: ratio, Target: "<= " + number(most, "") + unit}, ours <= most)
}

// limit takes down a figure of ours alone.
func (t *table) limit(name string, ours float64, unit string, most float64) {
	t.add(row{Name: name, Ours: short(ours) + unit, Target: "<= " + number(most, "") + unit}, ours <= most)
}

func (t *table) add(r row, met bool) {
	switch {
	case r.Target == "":
	case met:
		r.Verdict = "ok"
	default:
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
	p("Both provisioners run on one real control plane, in turn or at the same time, with a CSI driver that answers immediately or takes ECS's time. `make bench WHAT=provisioner` writes this part of the page.")
	p("")
	p("| figure | ours | upstream's | ratio or difference | target | |")
	p("|---|---|---|---|---|---|")
	for _, r := range t.rows {
		p("| %s | %s | %s | %s | %s | %s |", r.Name, r.Ours, r.Upstream, r.Ratio, r.Target, r.Verdict)
	}
	p("")
	p("### How it is measured")
	p("")
	for _, note := range []string{
		"etcd, kube-apiserver and kube-controller-manager (500 requests a second, bursts of 1 000) run on loopback beside the provisioner and its driver, so all share the machine's CPUs. In the large cluster the controller-manager, which checks every claim and volume repeatedly, uses up to half of the CPU time with either provisioner, and disk-provisioner waits for the API server most of the time.",
		"Requests are counted in the API server's audit log, by user agent. Events and leases are counted separately. The lists and watches that fill caches are not counted, and neither are the objects that a start reads once (the journal, the CSIDriver). A single claim costs one more write if nothing else is written for ten seconds: its record is then removed from the journal.",
		"Where many claims are provisioned at once, they exist before the provisioner starts, with selected node and provisioner as scheduler and controller-manager write them. Rates are measured from the first saved volume to the last. A first burst of csi-provisioner is not measured: an API server that has just started closes all watches of PersistentVolumes during the first burst, because its cache of their events is still small.",
		"The huge cluster is a separate control plane without persistentvolume-binder-controller: that controller checks every claim and volume every 15 s, and normally runs on another machine. Nodes send no heartbeats. csi-provisioner does not run there. Instead, the column of upstream has disk-provisioner's own rate with three nodes, before the other nodes are created, and the rate at which the API server accepts the same PersistentVolumes from a client that does nothing else, with as many parallel requests as disk-provisioner has there (400), after each run. The idle minute begins 30 s after the last volume.",
		"Both run with their defaults, so without strict topology, and with --kube-api-qps and --kube-api-burst of 100 000, except in the row of the defaults. The journal and the events of disk-provisioner have separate limits, 100 and 20 requests a second.",
		fmt.Sprintf("Rates of many claims in the small cluster are the median of %d runs of each, in turn, and latencies of as many in which both run; all figures of the huge cluster of %d; takeovers, the rows of two namespaces and all figures of the large cluster of %d; a ratio is the median of the rounds' ratios; counts, and the rates at the defaults, are one run.", s.runs, s.hugeRuns, s.rounds),
		"For latencies both run at the same time, each with a driver of its own, and the claims alternate between them: each has half of them, and also watches the other's. The machine's speed changes too much from one second to the next for runs after each other.",
		fmt.Sprintf("The time of a claim begins with the API server's answer to the controller-manager, which assigns the provisioner, and ends with its answer to the provisioner, which saves the PersistentVolume. These claims are created at an even rate with their selected node, and the real controller-manager assigns them. Each program has %d of them in a round. The driver takes the time that ECS takes to create a disk: one that answers immediately would count milliseconds that no user sees behind half a second of ECS.", s.steady),
		fmt.Sprintf("Where two namespaces have claims, the %d claims of the one exist before the provisioner starts, and the %d of the other are created when it has saved a twentieth of them.", s.crowd, fewClaims),
		"Rows that were here until 2026-11-28 are gone: a claim alone and deletions (a write more or less, which no user notices), a control plane slowed to a half and a tenth and 20 requests a second (their figures said the same as the others), and the computation of one claim's topology (`make bench WHAT=topology` has it).",

		"A takeover is timed from the signal to the next saved PersistentVolume, of a claim that is created after the leader has ended. The Lease's times are the defaults of both programs (15 s, renewed every 5 s). Each replica runs with a different host name, because csi-provisioner distinguishes its replicas by it.",
		"csi-provisioner is built from its module v6.3.0, with the versions of libraries that this module requires (test/kube/upstream).",
		machine("make bench WHAT=provisioner") + " Measured: " + strings.Join(commits, "; ") + ".",
	} {
		p("- %s", note)
	}
	return b.String()
}
