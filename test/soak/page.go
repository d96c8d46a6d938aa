package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// publish writes docs/soak.md and the picture that it shows.
func (r result) publish(docs string, judgements []judgement) error {
	if err := os.WriteFile(filepath.Join(docs, "soak.svg"), []byte(r.picture()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "soak.md"), []byte(r.page(judgements)), 0o644)
}

// page is what the run has found, and how it was found.
func (r result) page(judgements []judgement) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	length, _ := r.ended()
	p("# Soak")
	p("")
	p("Whether topodisk can run for long: `make soak HOURS=n` installs the chart on real nodes, puts a mixed load on it, has faults and rollouts")
	p("happen again and again, and judges whether memory, goroutines, open files, API requests, ECS calls and objects stay flat. It writes this")
	p("page.")
	p("")
	if wrong := r.faults(judgements); len(wrong) == 0 {
		p("In %s under load %d claims and updates came and went. All series are flat, none of the load failed or took longer than allowed, and", hours(length), len(r.turns))
		p("nothing was left over: no disk, snapshot, PersistentVolume, VolumeAttachment, mount, loop device or record in the journal.")
	} else {
		p("In %s under load %d claims and updates came and went. Not as it should be:", hours(length), len(r.turns))
		p("")
		for _, w := range wrong {
			p("- %s", strings.ReplaceAll(w, "\n", "; "))
		}
	}
	p("")
	p("![Memory, goroutines, open files, requests and objects over the time of the soak](soak.svg)")
	p("")
	p("## What stays flat")
	p("")
	p("Each line is of the life that came closest to what is allowed.")
	p("")
	p("| series | lives judged | median round | growth over the life | allowed | |")
	p("|---|---|---|---|---|---|")
	for _, j := range judgements {
		p("| %s |", strings.Join(texts(cells(j)), " | "))
	}
	p("")
	p("A life is that of one process, from its start to its end. Its first round is left out; then each round gives one value: the median of")
	p("memory, goroutines and files, the increase of requests and calls, and of what the load itself makes and deletes the least of the round, for")
	p("what is left over is there at each moment. A series is not flat if the values of a life rise with significance (Mann-Kendall, 5 %%) and")
	p("the line through them (Theil-Sen) rises by more than allowed. A life needs %d rounds after the first to be judged.", minWindows)
	p("")
	p("The memory of disk-provisioner may grow by %s MiB more than that of others. Client-go remembers the last %d objects that a leader has", number(r.Plan.recentEventsGrowth()), recentEvents)
	p("written events of, so that it counts a repeated event instead of writing another. `make crash` has a test that makes more claims than that")
	p("and finds the heap flat from then on.")
	p("")
	p("## How long the load waited")
	p("")
	p("| waited for | times | median | 99 %% | longest | allowed |")
	p("|---|---|---|---|---|---|")
	for _, w := range r.waits() {
		p("| %s | %d | %s | %s | %s | %s |", w.what, w.times, seconds(w.half), seconds(w.most), seconds(w.longest), seconds(w.limit))
	}
	p("")
	p("Times count from when the load has made the object, with the faults and the other work of the machine; they are read every %v.", pollEvery)
	p("")
	p("## The load")
	p("")
	p("Every round of %s has the same load, which begins at equal distances:", minutes(r.Plan.Round))
	p("")
	p("| load | a round |")
	p("|---|---|")
	for _, line := range lines {
		p("| %s | %d |", line.does, line.turns)
	}
	p("")
	p("## Faults and rollouts")
	p("")
	p("Times are minutes since the beginning of a round. The first %d rounds and the last replace what is installed and kill the leader. In the", r.Plan.First)
	p("%d rounds between at least one process of each kind lives on, for only a long life shows a leak of memory: there the driver is killed beside", r.Plan.between())
	p("a provisioner that goes on, the node plugin of one node of three is killed, and the API server stands still instead of ending.")
	p("")
	p("| minute | what | rounds | times | longest |")
	p("|---|---|---|---|---|")
	for _, f := range faults {
		times, longest := r.happened(f)
		where := f.in
		if where == "" {
			where = "all"
		}
		p("| %s | %s | %s | %d | %s |", number(f.at*r.Plan.Round.Minutes()), f.name, where, times, seconds(longest))
	}
	p("")
	p("ECS misbehaves for %s each time. \"Longest\" is until the call had returned, or the rollout was over.", seconds(r.Plan.Round/16))
	p("")
	p("## How it is measured")
	p("")
	p("- Three nodes with kubelet and containerd in namespaces of one machine, a control plane built from source, disks that are loop devices, and ECS")
	p("  as [the simulator](simulator.md) has it. The chart is installed with its defaults: two controllers.")
	p("- Every %v: the page of metrics of each process of topodisk, objects in the API server, the simulator's state, mounts and loop devices of the", sampleEvery)
	p("  nodes. They are written as they are taken; `soak report` judges them again without another run.")
	p("- Command: `make soak HOURS=%s`. Machine: %s. Commit %s, %s.", number(r.Plan.Length().Hours()), r.Machine, r.Commit, r.Begin.Format("2006-01-02"))
	return b.String()
}

func minutes(d time.Duration) string { return number(d.Minutes()) + " minutes" }

// happened says how often a fault was, in the parts that it is of, and how long the longest took.
func (r result) happened(f fault) (times int, longest time.Duration) {
	for _, e := range r.events {
		if e.Name == f.name && f.isIn(r.Plan.Part(e.Round)) {
			times, longest = times+1, max(longest, e.Took)
		}
	}
	return times, longest
}
