package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// podsSizes are how many there are of everything.
type podsSizes struct {
	small                                          bool
	alone, crowd, replicas, updates, claims, nodes int
}

func (s *podsSizes) flags() {
	flag.BoolVar(&s.small, "small", false, "pods: a few of everything, to see that it works")
	flag.IntVar(&s.alone, "alone", 100, "pods: Pods that are started one at a time")
	flag.IntVar(&s.crowd, "crowd", 64, "pods: Pods at once on one node, and disks of the node that is drained")
	flag.IntVar(&s.replicas, "replicas", 4, "pods: replicas of the StatefulSet that is updated, at most one a node")
	flag.IntVar(&s.updates, "updates", 10, "pods: how many times it is updated")
	flag.IntVar(&s.claims, "pods-claims", 1000, "pods: claims at once over nodes that KWOK keeps")
	flag.IntVar(&s.nodes, "pods-nodes", 100, "pods: those nodes")
}

// chosen are the sizes to run with.
func (s podsSizes) chosen() podsSizes {
	if s.small {
		return podsSizes{small: true, alone: 2, crowd: 4, replicas: 2, updates: 1, claims: 20, nodes: 4}
	}
	return s
}

// podsRowOf is a scenario: where it runs, and how.
type podsScenario struct {
	key  string
	name func(podsSizes) string
	kwok bool // on nodes that KWOK keeps
	run  func(*podsBench, context.Context, volumeSource) (podsSample, error)
	// interleaved has every round of a scenario of many run with each source of volumes in turn.
	rounds func(podsSizes) int
	judge  func(podsRow) []podsFigure
}

// podsScenarios are all of them, in the order of the page.
func podsScenarios() []podsScenario {
	once := func(podsSizes) int { return 1 }
	return []podsScenario{
		{key: "alone", run: (*podsBench).startAlone, rounds: func(s podsSizes) int { return s.alone }, judge: judgeAlone,
			name: func(s podsSizes) string { return fmt.Sprintf("one Pod at a time, %d times", s.alone) }},
		{key: "crowd", run: (*podsBench).startCrowd, rounds: once, judge: judgeCrowd,
			name: func(s podsSizes) string { return fmt.Sprintf("%d Pods at once on one node", s.crowd) }},
		{key: "drain", run: (*podsBench).drain, rounds: once, judge: judgeDrain,
			name: func(s podsSizes) string { return fmt.Sprintf("a node with %d Pods is drained to four others", s.crowd) }},
		{key: "update", run: (*podsBench).update, rounds: once,
			name: func(s podsSizes) string {
				return fmt.Sprintf("rolling update of a StatefulSet with %d replicas, %d times", s.replicas, s.updates)
			}},
		{key: "kwok", kwok: true, run: (*podsBench).attachMany, rounds: once,
			name: func(s podsSizes) string {
				return fmt.Sprintf("%d Pods at once over %d nodes of KWOK, until their volumes are attached", s.claims, s.nodes)
			}},
	}
}

func podsKeys() (keys []string) {
	for _, s := range podsScenarios() {
		keys = append(keys, s.key)
	}
	return keys
}

// choosePods returns the scenarios of the keys, separated by commas; all for none.
func choosePods(keys string) ([]podsScenario, error) {
	if keys == "" {
		return podsScenarios(), nil
	}
	list := strings.Split(keys, ",")
	for _, key := range list {
		if !slices.Contains(podsKeys(), key) {
			return nil, fmt.Errorf("-rows has %q; allowed are %s", key, strings.Join(podsKeys(), ","))
		}
	}
	return slices.DeleteFunc(podsScenarios(), func(s podsScenario) bool { return !slices.Contains(list, s.key) }), nil
}

// podsOptions are what the command line says.
type podsOptions struct {
	sizes        podsSizes
	rows         string
	driver, node string // programs and arguments of another driver
	write        string
}

// benchPods measures how long Pods take to start on real nodes, in a cell of its own, and writes the page's section. What it
// measures is kept, and the page is written once every row was measured.
func benchPods(o podsOptions) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	wanted, err := choosePods(o.rows)
	if err != nil {
		return err
	}
	root, err := programs.FindRoot()
	if err != nil {
		return err
	}
	if !lab.InCell() {
		if _, err := programs.BuildNodes(ctx, root, os.Stdout); err != nil {
			return err
		}
	}
	cell := lab.Cell{Dir: filepath.Join(root, ".build", "bench-pods")}
	if code, outside, err := cell.Enter(); outside || err != nil {
		if err == nil && code != 0 {
			err = fmt.Errorf("failed; the programs' logs are in %s", cell.Dir)
		}
		return err
	}
	results := resultFile[podsRow]{path: filepath.Join(root, "test", "bench", "pods.json"), commit: commit()}
	sizes := o.sizes.chosen()
	var bench *podsBench
	defer func() { _ = bench.close() }()
	for _, s := range wanted {
		if bench == nil || bench.kwok != s.kwok {
			if err := bench.close(); err != nil {
				return err
			}
			if bench, err = openPods(ctx, root, cell.Dir, s.kwok, sizes, o); err != nil {
				return err
			}
		}
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
	if err := bench.close(); err != nil {
		return err
	}
	bench = nil
	if o.write == "" {
		return nil
	}
	return publishPods(results, o.write)
}

// publishPods writes the section and its picture from what was measured.
func publishPods(results resultFile[podsRow], page string) error {
	return results.publish(page, "pods", podsKeys(), func(rows []podsRow, commits []string) string {
		picture := filepath.Join(filepath.Dir(page), podsPicture)
		if err := os.WriteFile(picture, []byte(drawPods(rows)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		return podsPage(rows, commits)
	})
}

// measure runs a scenario with every source of volumes, in turn.
func (b *podsBench) measure(ctx context.Context, s podsScenario) (podsRow, error) {
	row := podsRow{Key: s.key, Name: s.name(b.sizes), ToAttached: s.kwok}
	samples := make([]podsSample, len(b.sources))
	for round := range s.rounds(b.sizes) {
		b.round = round
		for i, source := range b.sources {
			sample, err := s.run(b, ctx, source)
			if err != nil {
				return row, fmt.Errorf("round %d, %s: %w", round, source.name, err)
			}
			samples[i].add(sample)
		}
	}
	for i, source := range b.sources {
		row.Runs = append(row.Runs, samples[i].summary(source.name))
	}
	if s.judge != nil && !b.sizes.small {
		row.Figures = s.judge(row)
	}
	return row, nil
}

// close ends the lab, if there is one.
func (b *podsBench) close() error {
	if b == nil {
		return nil
	}
	return errors.Join(b.audit.Close(), b.Stop())
}
