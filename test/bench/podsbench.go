package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// podsSizes are how many there are of everything.
type podsSizes struct {
	small             bool // nothing is judged
	alone, usual      int  // Pods that are started one at a time, also with the kubelet's default periods
	crowd             int  // Pods at once on one node, and disks of the node that is drained
	replicas, updates int  // of the StatefulSet that is updated, one a node
	claims, nodes     int  // claims at once over nodes that KWOK keeps
}

var (
	podsAll = podsSizes{alone: 100, usual: 100, crowd: 64, replicas: podsNodes, updates: 10, claims: 1000, nodes: 100}
	podsFew = podsSizes{small: true, alone: 2, usual: 1, crowd: 4, replicas: 2, updates: 1, claims: 20, nodes: 4}
)

// podsScenario is a row of the page: where it runs, and how.
type podsScenario struct {
	key    string
	name   func(podsSizes) string
	where  podsPlace
	paced  bool // also with the driver that only waits
	run    func(*podsBench, context.Context, volumeSource) (podsSample, error)
	rounds func(podsSizes) int
	judge  func(podsRow) []podsFigure
}

// podsScenarios are all of them, in the order of the page.
func podsScenarios() []podsScenario {
	once := func(podsSizes) int { return 1 }
	return []podsScenario{
		{key: "alone", paced: true, run: (*podsBench).startAlone, rounds: func(s podsSizes) int { return s.alone }, judge: judgeAlone,
			name: func(s podsSizes) string { return fmt.Sprintf("one Pod at a time, %d times", s.alone) }},
		{key: "crowd", paced: true, run: (*podsBench).startCrowd, rounds: once, judge: judgeCrowd,
			name: func(s podsSizes) string { return fmt.Sprintf("%d Pods at once on one node", s.crowd) }},
		{key: "drain", run: (*podsBench).drain, rounds: once, judge: judgeDrain,
			name: func(s podsSizes) string { return fmt.Sprintf("a node with %d Pods is drained to four others", s.crowd) }},
		{key: "update", run: (*podsBench).update, rounds: once,
			name: func(s podsSizes) string {
				return fmt.Sprintf("rolling update of a StatefulSet with %d replicas, %d times", s.replicas, s.updates)
			}},
		{key: "usual", where: onUsualNodes, paced: true, run: (*podsBench).startAlone, rounds: func(s podsSizes) int { return s.usual },
			name: func(s podsSizes) string {
				return fmt.Sprintf("one Pod at a time, %d times, with the kubelet's default periods", s.usual)
			}},
		{key: "kwok", where: onKWOK, run: (*podsBench).attachMany, rounds: once,
			name: func(s podsSizes) string {
				return fmt.Sprintf("%d Pods at once over %d nodes of KWOK, until their volumes are attached", s.claims, s.nodes)
			}},
	}
}

func (s podsScenario) named() string { return s.key }

// podsOptions are what the command line says.
type podsOptions struct {
	sizes        podsSizes
	rows         string
	driver, node string // programs and arguments of another driver
	write        string
}

// benchPods measures how long Pods take to start on real nodes, and writes the page's section. What it measures is kept, and the
// page is written from what is kept. Each kind of lab is in a sandbox of its own, and in a process of its own.
func benchPods(ctx context.Context, root string, o podsOptions) error {
	wanted, err := chooseRows(o.rows, podsScenarios(), podsScenario.named)
	if err != nil {
		return err
	}
	if len(wanted) == 0 {
		return publishPods(podsResults(root), o.write)
	}
	if !sandbox.Inside() {
		if _, err := programs.Default.BuildNodes(ctx, root, os.Stdout); err != nil {
			return err
		}
	}
	if places := podsPlaces(wanted); len(places) > 1 {
		return benchEach(ctx, places)
	}
	box := sandbox.In(root, "bench-pods")
	if code, outside, err := box.Enter(nil); outside || err != nil {
		if err == nil && code != 0 {
			err = errors.New("failed")
		}
		return err
	}
	return benchInSandbox(ctx, root, box, wanted, o)
}

// podsPlaces are the keys of the scenarios, separated by commas, by the kind of lab that they run on.
func podsPlaces(wanted []podsScenario) map[podsPlace]string {
	places := map[podsPlace]string{}
	for _, s := range wanted {
		if places[s.where] != "" {
			places[s.where] += ","
		}
		places[s.where] += s.key
	}
	return places
}

// benchEach runs this program once for each kind of lab.
func benchEach(ctx context.Context, places map[podsPlace]string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, where := range slices.Sorted(maps.Keys(places)) {
		command := exec.CommandContext(ctx, self, append(slices.Clone(os.Args[1:]), "-rows="+places[where])...)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
		if err := command.Run(); err != nil {
			return fmt.Errorf("-rows=%s: %w", places[where], err)
		}
	}
	return nil
}

// benchInSandbox runs scenarios that share a kind of lab.
func benchInSandbox(ctx context.Context, root string, box sandbox.Sandbox, wanted []podsScenario, o podsOptions) (err error) {
	results := podsResults(root)
	bench, err := openPods(ctx, root, box.Dir, wanted[0].where, o.sizes, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bench.audit.Close(), bench.Stop()) }()
	for _, s := range wanted {
		begin := time.Now()
		row, err := bench.measure(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.key, err)
		}
		row.print()
		fmt.Printf("  (%s took %s)\n", s.key, time.Since(begin).Round(time.Second))
		if o.write == "" {
			continue
		}
		if err := results.save(s.key, []podsRow{row}); err != nil {
			return err
		}
	}
	if o.write == "" {
		return nil
	}
	return publishPods(results, o.write)
}

// podsResults is where the rows are kept.
func podsResults(root string) resultFile[podsRow] {
	return resultFile[podsRow]{path: filepath.Join(root, "test", "bench", "pods.json"), commit: commit()}
}

// publishPods writes the section and its picture from what was measured.
func publishPods(results resultFile[podsRow], page string) error {
	return results.publish(page, "pods", rowKeys(podsScenarios(), podsScenario.named), func(rows []podsRow, commits []string) string {
		picture := filepath.Join(filepath.Dir(page), podsPicture)
		if err := os.WriteFile(picture, []byte(drawPods(rows)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		return podsPage(rows, commits)
	})
}

// measure runs a scenario with every source of volumes, in turn.
func (b *podsBench) measure(ctx context.Context, s podsScenario) (podsRow, error) {
	row := podsRow{Key: s.key, Name: s.name(b.sizes), ToAttached: s.where == onKWOK, Load: loadAverage()}
	sources := slices.DeleteFunc(slices.Clone(b.sources), func(v volumeSource) bool { return v.paced && !s.paced })
	samples := make([]podsSample, len(sources))
	for round := range s.rounds(b.sizes) {
		b.round = round
		for i, source := range sources {
			sample, err := s.run(b, ctx, source)
			if err != nil {
				return row, fmt.Errorf("round %d, %s: %w", round, source.name, err)
			}
			samples[i].add(sample)
		}
	}
	for i, source := range sources {
		row.Runs = append(row.Runs, samples[i].summary(source.name))
	}
	if s.judge != nil && !b.sizes.small {
		row.Figures = s.judge(row)
	}
	return row, nil
}

// loadAverage is that of the machine over the last minute: what else runs on it makes figures worse.
func loadAverage() (load float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	fmt.Sscan(string(text), &load) //nolint:errcheck // the kernel's format
	return load
}
