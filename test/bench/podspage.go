package main

import (
	"fmt"
	"strings"
)

// print shows a row as it was measured.
func (r podsRow) print() {
	fmt.Printf("%s (load average before: %.1f)\n", r.Name, r.Load)
	for _, run := range r.Runs {
		fmt.Printf("  %-32s %4d Pods  p50 %7.3f s  p99 %7.3f s  all %8.3f s  of ECS %6.3f / %6.3f  beyond %6.3f / %6.3f\n",
			run.Source, run.Pods, run.Total.P50, run.Total.P99, run.Wall, run.ECS.P50, run.ECS.P99, run.Beyond.P50, run.Beyond.P99)
		fmt.Printf("    ")
		for i, name := range stepNames {
			fmt.Printf(" %s %.3f / %.3f", name, run.Steps[i].P50, run.Steps[i].P99)
			if run.Shares[i].P99 > 0 {
				fmt.Printf(" (ECS %.3f / %.3f)", run.Shares[i].P50, run.Shares[i].P99)
			}
		}
		fmt.Println()
	}
	for _, f := range r.Figures {
		fmt.Printf("  %s: %.3f s, target <= %.3f s %s\n", f.Name, f.Got, f.Limit, f.verdict())
	}
}

// headline is the sentence that one figure is quoted from.
func headline(rows []podsRow) string {
	var parts []string
	for _, r := range rows {
		if run := r.of(sourceOurs); !r.ToAttached {
			parts = append(parts, fmt.Sprintf("%.1f s at %s", run.Total.P99, r.Name))
		}
	}
	return "**Stateful Pod start p99 = " + strings.Join(parts, "; ") + "** (`make bench WHAT=pods`)."
}

// podsPage is the section of docs/benchmarks.md.
func podsPage(rows []podsRow, commits []string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("## Pods, from their creation until they run")
	p("")
	p("%s", headline(rows))
	p("")
	p("What a user waits for is a Pod that runs. Each scenario runs on the same cluster with topodisk, with a CSI driver that answers")
	p("immediately, and with emptyDir instead of a claim. The difference is what topodisk and ECS add. ECS is the shipped `ecs-simulator` with")
	p("its latencies `real`, which vary by their spread.")
	p("")
	p("![For each scenario and source of volumes, the steps of the Pod at p50 and of the Pod at p99 until it runs](%s)", podsPicture)
	p("")
	p("| figure | measured | target | |")
	p("|---|---|---|---|")
	for _, r := range rows {
		for _, f := range r.Figures {
			p("| %s | %.2f s | <= %.2f s | %s |", f.Name, f.Got, f.Limit, f.verdict())
		}
	}
	p("")
	p("Times of a Pod in seconds, p50 / p99:")
	p("")
	p("| scenario | volumes of | Pods | created to running | of it ECS's own | beyond that | all Pods |")
	p("|---|---|---|---|---|---|---|")
	for _, r := range rows {
		for _, run := range r.Runs {
			p("| %s | %s | %d | %s | %s | %s | %.1f s |", r.Name, run.Source, run.Pods, both(run.Total), both(run.ECS), both(run.Beyond), run.Wall)
		}
	}
	p("")
	p("Where the time goes, p50 / p99 of each step by itself; in brackets ECS's own part of it:")
	p("")
	p("| scenario | volumes of | %s |", strings.Join(stepNames, " | "))
	p("|---|---|%s", strings.Repeat("---|", len(stepNames)))
	for _, r := range rows {
		for _, run := range r.Runs {
			cells := []string{r.Name, run.Source}
			for i := range stepNames {
				cell := both(run.Steps[i])
				if run.Shares[i].P99 > 0 {
					cell += " (" + both(run.Shares[i]) + ")"
				}
				cells = append(cells, cell)
			}
			p("| %s |", strings.Join(cells, " | "))
		}
	}
	p("")
	p("### How it is measured")
	p("")
	var loads []string
	for _, r := range rows {
		loads = append(loads, fmt.Sprintf("`%s` %.1f", r.Key, r.Load))
	}
	for _, note := range []string{
		"etcd, the API server, controller-manager and scheduler run on loopback. Five nodes in one zone have a kubelet and containerd each, in namespaces of their own, and disks are files behind loop devices. All share the machine's CPUs, so many Pods at once take as long as the machine needs to start so many containers; emptyDir shows how long.",
		"topodisk is `disk-driver` and `disk-provisioner` with csi-attacher, csi-resizer and the node plugin, with the flags of the chart. The driver that answers immediately and the one that only waits have a provisioner and an attacher with the same flags; their volumes are directories of the node. All run all the time, and scenarios of many rounds take turns.",
		"The instances are of a type that takes 64 disks and attaches up to 32 at a time (`" + podsNodeType + "`). Calls are not throttled.",
		"Scheduled: the scheduler has named the node in the claim, or bound the Pod if its claim has a volume. Provisioned: the PersistentVolume is saved. Bound: the Pod is bound to the node; the scheduler looks once a second whether its claims are. Attached: the VolumeAttachment says so. Staged: NodeStageVolume and NodePublishVolume have ended. Started: the API server reports the running Pod.",
		"These times are from the API server's audit log, the kubelets' logs and, for the running Pod, a watch. ECS's own time is from the simulator's ledger: CreateDisk until its reply; the rest until the disk is Available once the Pod is bound, because ECS attaches none before; in a drain DetachDisk until the disk is detached, but not the wait for other disks; AttachDisk until the disk is In_use, and from then until the node sees the device. A part of ECS's own time may pass while Kubernetes waits for something else.",
		"A single Pod is started when nothing is left of the one before. A drain begins with the first eviction and ends when all Pods run on other nodes; the minimum that ECS needs for it is all detaches, five at a time, one read and the shortest attach. In a rolling update each Pod returns to its node.",
		"With KWOK a Pod runs as soon as it is bound, so the time ends when the volume is attached, and for emptyDir when the Pod runs.",
		"The kubelet reports its status once a second instead of every ten seconds, except in the row that names its default periods. With any driver, a Pod with an attached volume waits until the kubelet has reported the volume as in use, by default for up to ten seconds. In that row each Pod begins when the one before is gone, so how long it waits for the report depends on what ran before it. That row shows what a user waits for, not what a driver adds.",
		"The kubelet checks whether a volume is attached 0.5, 1.5, 3.5 and 7.5 seconds after the first check. Therefore a longer attach in ECS delays the Pod by more than the difference. The driver that only waits shows by how much: each of its volumes is created and attached, and seen by the node, after as long as ECS took for topodisk's in the same round. ECS tells of a disk only in the answer to a read, which takes 0.12 s at the median. topodisk needs two of them for an attach, which show the new disk Available and then In_use. So attaching takes 0.24 s longer than with that driver at the median, and also the time from each change to the next read.",
		"`DRIVER=` and `NODE_DRIVER=` run another driver in addition: they are the program and arguments of its controller and of its node plugin. {socket}, {region} and {ecs} are replaced by what they are to use, and {node}, {instance} and {zone} by those of the node.",
		"Load average of the machine before each row: " + strings.Join(loads, ", ") + ". A row's own preparation and the row before it are part of it. p99 of at most 100 values is the longest.",
		machine("make bench WHAT=pods") + " Measured: " + strings.Join(commits, "; ") + ".",
	} {
		p("- %s", note)
	}
	return b.String()
}

func both(q quantiles) string { return fmt.Sprintf("%.2f / %.2f", q.P50, q.P99) }
