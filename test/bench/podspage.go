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
	var figures, times, steps [][]any
	var loads []string
	for _, r := range rows {
		loads = append(loads, fmt.Sprintf("`%s` %.1f", r.Key, r.Load))
		for _, f := range r.Figures {
			figures = append(figures, []any{f.Name, inSeconds(f.Got), "<= " + inSeconds(f.Limit), f.verdict()})
		}
		for _, run := range r.Runs {
			times = append(times, []any{r.Name, run.Source, run.Pods, both(run.Total), both(run.ECS), both(run.Beyond), fmt.Sprintf("%.1f s", run.Wall)})
			steps = append(steps, append([]any{r.Name, run.Source}, run.stepCells()...))
		}
	}
	return render("pods", map[string]any{
		"Headline": headline(rows), "Picture": podsPicture, "Figures": figures, "Times": times,
		"StepNames": strings.Join(stepNames, " | "), "StepRule": strings.Repeat("---|", len(stepNames)), "Steps": steps,
		"NodeType": podsNodeType, "Loads": strings.Join(loads, ", "), "Measured": measured("pods", commits),
	})
}

// stepCells are each step's time, and ECS's own part of it.
func (run podsRun) stepCells() (cells []any) {
	for i := range stepNames {
		cell := both(run.Steps[i])
		if run.Shares[i].P99 > 0 {
			cell += " (" + both(run.Shares[i]) + ")"
		}
		cells = append(cells, cell)
	}
	return cells
}

func inSeconds(v float64) string { return fmt.Sprintf("%.2f s", v) }

func both(q quantiles) string { return fmt.Sprintf("%.2f / %.2f", q.P50, q.P99) }
