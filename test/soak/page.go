package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// publish writes docs/soak.md and the picture that it shows.
func (r result) publish(docs string, judgements []judgement) error {
	page, err := r.page(judgements)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, "soak.svg"), []byte(r.picture()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "soak.md"), page, 0o644)
}

//go:embed page.md
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"hours": hours, "minutes": minutes, "seconds": seconds, "number": number, "rows": rows,
}).Parse(pageText))

// page is what the run has found, and how it was found.
func (r result) page(judgements []judgement) ([]byte, error) {
	length, _ := r.ended()
	data := map[string]any{
		"Plan": r.Plan, "Between": r.Plan.between(), "FaultLasts": r.Plan.Round / 16, "Begin": r.Begin, "Commit": r.Commit, "Machine": r.Machine,
		"Length": length, "Turns": len(r.turns), "MinWindows": minWindows, "PollEvery": pollEvery, "SampleEvery": sampleEvery,
		"RecentGrowth": r.Plan.recentEventsGrowth(), "RecentEvents": recentEvents,
	}
	var wrong []string
	for _, w := range r.faults(judgements) {
		wrong = append(wrong, strings.ReplaceAll(w, "\n", "; "))
	}
	var series, waited, load, happened [][]any
	for _, j := range judgements {
		series = append(series, cells(j))
	}
	for _, w := range r.waits() {
		waited = append(waited, w.cells())
	}
	for _, line := range lines {
		load = append(load, []any{line.does, line.turns})
	}
	for _, f := range faults {
		times, longest := r.happened(f)
		happened = append(happened, []any{number(f.at * r.Plan.Round.Minutes()), f.name, cmp.Or(f.in, "all"), times, seconds(longest)})
	}
	data["Wrong"], data["Series"], data["Waits"], data["Load"], data["Faults"] = wrong, series, waited, load, happened
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, data)
	return b.Bytes(), err
}

// rows are those of a table.
func rows(table [][]any) string {
	var b strings.Builder
	for _, cells := range table {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(texts(cells), " | "))
	}
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
