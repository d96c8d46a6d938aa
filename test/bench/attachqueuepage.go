package main

import (
	"fmt"
	"slices"
)

// queuePage is this benchmark's part of the page.
func queuePage(figures []queueFigures, commits []string) string {
	var rows, memory [][]any
	for _, f := range figures {
		v := variants[slices.IndexFunc(variants, func(v variant) bool { return v.name == f.Variant })]
		rows = append(rows, append([]any{v.says, "idle"}, f.Idle.cells("", "", "")...))
		if f.Behind.Attach.P99 > 0 {
			rows = append(rows, append([]any{"", "right after " + grouped(f.Hanging) + " detaches"}, v.cells(f.Behind, f.Idle)...))
		}
		if f.Settled.Attach.P99 > 0 {
			rows = append(rows, append([]any{"", "once " + grouped(f.Hanging) + " detaches have hung for minutes"}, v.cells(f.Settled, f.Idle)...))
		}
		memory = append(memory, []any{v.says, idleAndPeak(f.AttacherIdle, f.AttacherPeak), idleAndPeak(f.DriverIdle, f.DriverPeak)})
	}
	return render("attach-queue", map[string]any{
		"Hanging": grouped(figures[0].Hanging), "Attaches": figures[0].Attaches, "Rows": rows, "Memory": memory, "AtATime": disksPerInstance,
		"Measured": measured("attach-queue", commits),
	})
}

func idleAndPeak(idle, peak int) string { return fmt.Sprintf("%d MiB, %d MiB", idle, peak) }

// cells are the times of a round, with what its attaches are held against between them and the detaches.
func (r queueRound) cells(ratio, target, verdict string) []any {
	return []any{short(r.Attach.P50) + " s", short(r.Attach.P99) + " s", ratio, target, verdict, short(r.Detach.P50) + " s", short(r.Detach.P99) + " s"}
}

// cells are those of a round behind detaches that hang. What is only compared has no target.
func (v variant) cells(r, idle queueRound) []any {
	ratio := r.Attach.P99 / idle.Attach.P99
	if !v.shipped {
		return r.cells(short(ratio), "", "")
	}
	return r.cells(short(ratio), "<= "+short(queueLimit), verdict(ratio <= queueLimit))
}

// grouped writes a number with a space before its last three digits.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d %03d", n/1000, n%1000)
}
