package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// figure is one measured value and what it should be.
type figure struct {
	name       string
	value      float64
	unit       string
	target     float64 // the value is to be no more
	comparison string
}

func (f figure) verdict() string {
	if f.value <= f.target {
		return "ok"
	}
	return "MISSED"
}

// report collects the figures and the tables beside them.
type report struct {
	figures []figure
	runs    []string // rows of the table of lifecycles
	cpu     []string // rows of the table of CPU time
	notes   []string
}

// add takes a figure down and prints its row.
func (r *report) add(f figure) {
	if len(r.figures) == 0 {
		fmt.Printf("%-78s %10s %10s\n", "name", "value", "target")
	}
	r.figures = append(r.figures, f)
	fmt.Printf("%-78s %10s %10s %s\n", f.name, number(f.value, f.unit), "<= "+number(f.target, f.unit), f.verdict())
}

func number(v float64, unit string) string {
	text := strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
	if unit != "" {
		text += " " + unit
	}
	return text
}

// markdown is the whole report.
func (r *report) markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("## The ECS client")
	p("")
	p("The cost of the ECS client, measured against the simulator. `make bench-ecs` writes this part of the page.")
	p("A lifecycle creates, attaches, resizes, detaches and deletes one disk, each step as soon as the one before is done.")
	p("")
	p("| figure | measured | target | | for comparison |")
	p("|---|---|---|---|---|")
	for _, f := range r.figures {
		p("| %s | %s | <= %s | %s | %s |", f.name, number(f.value, f.unit), number(f.target, f.unit), f.verdict(), f.comparison)
	}
	p("")
	p("### Lifecycles")
	p("")
	p("100 instances; all lifecycles begin at the same time. Latencies are those of the simulator's profile `real`, without spread, so that runs can be compared.")
	p("An operation that returns `Pending` or `Throttled` is retried like a sidecar does, with pauses from 1 s to 5 min.")
	p("")
	p("| lifecycles | clock | calls a minute and action | instances | calls a lifecycle | mutating calls an operation | throttled | conflicts | time | answers to retry later |")
	p("|---|---|---|---|---|---|---|---|---|---|")
	for _, row := range r.runs {
		p("%s", row)
	}
	p("")
	p("### Where the CPU time goes")
	p("")
	for _, row := range r.cpu {
		p("%s", row)
	}
	p("")
	p("### How it is measured")
	p("")
	for _, note := range append(r.notes, machine("make bench-ecs")+fmt.Sprintf(" Commit %s, %s.", commit(), time.Now().UTC().Format("2006-01-02"))) {
		p("- %s", note)
	}
	return b.String()
}

// writeSection puts one benchmark's part of the page in its place, and leaves the other parts as they are.
func writeSection(path, name, text string) error {
	page, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		page = []byte("# Benchmarks\n")
	} else if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, _ := strings.Cut(rest, end)
	if !found {
		before += "\n"
	}
	return os.WriteFile(path, []byte(before+begin+"\n"+strings.TrimSpace(text)+"\n\n"+end+after), 0o644)
}

// machine says what the wall-clock figures were measured on.
func machine(command string) string {
	return fmt.Sprintf("Command: `%s`. Machine: %s, %d CPUs, %s, %s/%s.", command, processor(), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
		}
	}
	return "unknown processor"
}
