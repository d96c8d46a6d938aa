package main

import (
	"fmt"
	"slices"
	"strings"
)

// queuePage is this benchmark's part of the page.
func queuePage(rows []queueFigures, commits []string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	chart := rows[0]
	p("## Attaches behind detaches that hang")
	p("")
	p("csi-attacher v4.13.0 has one queue and one set of workers for attaches and detaches (kubernetes-csi/external-attacher#761, #706), and a call")
	p("keeps its worker until disk-driver answers. Here %s detaches hang in ECS, and %d attaches to other nodes arrive at the same time. Everything runs on a", grouped(chart.Hanging), chart.Attaches)
	p("real API server, with the shipped disk-driver; `make bench WHAT=attach-queue` writes this part of the page.")
	p("")
	p("| csi-attacher and disk-driver | %d attaches | p50 | p99 | p99 / idle | target | | their detaches, p50 | p99 |", chart.Attaches)
	p("|---|---|---|---|---|---|---|---|---|")
	for _, f := range rows {
		v := variants[slices.IndexFunc(variants, func(v variant) bool { return v.name == f.Variant })]
		p("| %s | idle | %s s | %s s | | | | %s s | %s s |", v.says, short(f.Idle.Attach.P50), short(f.Idle.Attach.P99),
			short(f.Idle.Detach.P50), short(f.Idle.Detach.P99))
		for _, r := range []struct {
			when string
			queueRound
		}{{"right after %s detaches", f.Behind}, {"once %s detaches have hung for minutes", f.Settled}} {
			if r.Attach.P99 == 0 {
				continue
			}
			ratio := r.Attach.P99 / f.Idle.Attach.P99
			p("| | "+r.when+" | %s s | %s s | %s | %s | %s s | %s s |", grouped(f.Hanging), short(r.Attach.P50), short(r.Attach.P99),
				short(ratio), v.verdict(ratio), short(r.Detach.P50), short(r.Detach.P99))
		}
	}
	p("")
	p("| csi-attacher and disk-driver | memory of csi-attacher, idle and at its peak | of disk-driver |")
	p("|---|---|---|")
	for _, f := range rows {
		v := variants[slices.IndexFunc(variants, func(v variant) bool { return v.name == f.Variant })]
		p("| %s | %d MiB, %d MiB | %d MiB, %d MiB |", v.says, f.AttacherIdle, f.AttacherPeak, f.DriverIdle, f.DriverPeak)
	}
	p("")
	for _, note := range []string{
		"A wait is from the request that makes the VolumeAttachment to the watch event that shows it attached; their detaches are of the same disks, once all are attached. Idle and behind are measured one after the other, with the same disks.",
		fmt.Sprintf("ECS's latencies are the simulator's profile `real` without its spread; an instance detaches %d disks at a time, and as many hang at each. The detaches never end.", disksPerInstance),
		"The rows with 500 workers are for comparison and have no target: every detach that hangs keeps one of them for 2 minutes. The chart starts more workers than volumes hang here, and disk-driver limits how many of them attaches or detaches can keep (`--max-waiting-calls`).",
		"csi-attacher still has a limit: if more volumes hang than it has workers, all others wait until the driver answers. To solve this, upstream needs separate queues and workers for attaches and detaches, or must not keep a worker for a call that waits. It should also not write the status when a retry fails as before, because each failure is a write to the API server from one budget for all.",
		machine("make bench WHAT=attach-queue") + " Measured: " + strings.Join(commits, "; ") + ".",
	} {
		p("- %s", note)
	}
	return b.String()
}

// verdict returns the cells of the target and of whether a ratio reaches it; they are empty for what is only compared.
func (v variant) verdict(ratio float64) string {
	switch {
	case !v.shipped:
		return " | "
	case ratio > queueLimit:
		return fmt.Sprintf("<= %s | MISSED", short(queueLimit))
	}
	return fmt.Sprintf("<= %s | ok", short(queueLimit))
}

// grouped writes a number with a space before its last three digits.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d %03d", n/1000, n%1000)
}
