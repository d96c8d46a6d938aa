package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// result is all that a run has written.
type result struct {
	About
	samples   []Sample
	events    []Event
	turns     []Turn
	inventory []Inventory // before and after the load
}

func readResult(dir string) (r result, err error) {
	text, err := os.ReadFile(filepath.Join(dir, runFile))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r.About); err != nil {
		return r, fmt.Errorf("%s: %w", runFile, err)
	}
	file, err := os.Open(filepath.Join(dir, samplesFile))
	if err != nil {
		return r, err
	}
	defer file.Close()
	if r.samples, err = ReadSamples(file); errors.Is(err, io.ErrUnexpectedEOF) { // killed while it wrote
		err = nil
	}
	errs := [4]error{err}
	r.events, errs[1] = readLines[Event](filepath.Join(dir, eventsFile))
	r.turns, errs[2] = readLines[Turn](filepath.Join(dir, turnsFile))
	r.inventory, errs[3] = readLines[Inventory](filepath.Join(dir, inventoryFile))
	return r, errors.Join(errs[:]...)
}

// report prints what a run has found, and returns an error if it is not as it should be.
func report(root, dir string, write bool) error {
	r, err := readResult(dir)
	if err != nil {
		return err
	}
	judgements, err := r.judge()
	if err != nil {
		return err
	}
	r.print(os.Stdout, judgements)
	if write && r.Plan.Trial() {
		fmt.Printf("no page is written: a verdict about growth needs %v\n", time.Duration(minWindows+2+fullPlan.First+fullPlan.Last)*fullRound)
	} else if write {
		if err := r.publish(filepath.Join(root, "docs"), judgements); err != nil {
			return err
		}
	}
	if wrong := r.faults(judgements); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// print prints the tables.
func (r result) print(out io.Writer, judgements []judgement) {
	length, _ := r.ended()
	fmt.Fprintf(out, "%v under load, %d rounds of %v, commit %s, %s\n\n", length.Round(time.Second), r.Plan.Rounds, r.Plan.Round, r.Commit, r.Machine)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(cells ...any) { fmt.Fprintln(w, strings.TrimRight(strings.Join(texts(cells), "\t"), "\t")) }
	row("series", "lives", "median window", "growth", "allowed", "verdict")
	for _, j := range judgements {
		row(cells(j)...)
	}
	row()
	row("waited for", "times", "median", "99 %", "longest", "allowed")
	for _, w := range r.waits() {
		row(w.cells()...)
	}
	_ = w.Flush() // an error of the terminal's
}

// cells are the row of a series.
func cells(j judgement) []any {
	name := j.name
	if j.unit != "" {
		name += " (" + j.unit + ")"
	}
	if len(j.Lives) == 0 {
		return []any{name, 0, "", "", "", "too short to be judged"}
	}
	verdict := "flat"
	if !j.Flat() {
		verdict = "NOT FLAT"
	}
	return []any{name, len(j.Lives), number(j.worst.Median), number(j.worst.Growth), number(j.allowed), verdict}
}

// cells are the row of what was waited for.
func (w waiting) cells() []any {
	return []any{w.what, w.times, seconds(w.half), seconds(w.most), seconds(w.longest), seconds(w.limit)}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func texts(cells []any) (list []string) {
	for _, c := range cells {
		list = append(list, fmt.Sprint(c))
	}
	return list
}
