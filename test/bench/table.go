package main

import (
	"fmt"
	"slices"
)

// target is what a figure, or the ratio of two, is to be.
type target struct {
	text string
	met  func(float64) bool
}

func atLeast(v float64) target {
	return target{">= " + number(v, ""), func(got float64) bool { return got >= v }}
}

func atMost(v float64) target {
	return target{"<= " + number(v, ""), func(got float64) bool { return got <= v }}
}

// row is one figure of both provisioners.
type row struct{ Name, Ours, Upstream, Ratio, Target, Verdict string }

// table has the rows of the page.
type table struct{ rows []row }

// ratio takes down two figures whose ratio has a target.
func (t *table) ratio(name string, ours, upstream float64, unit string, want target) {
	t.rounds(name, [2][]float64{{ours}, {upstream}}, unit, want)
}

// rounds takes down the figures of several rounds, ours and upstream's of a round side by side. What has a target is the
// median of the rounds' ratios: the machine is not as fast in one round as in another.
func (t *table) rounds(name string, figures [2][]float64, unit string, want target) {
	ratios := quotients(figures[0], figures[1])
	ratio := median(ratios)
	text := short(ratio)
	if len(ratios) > 1 {
		text += fmt.Sprintf(" (%s to %s)", short(slices.Min(ratios)), short(slices.Max(ratios)))
	}
	t.add(row{Name: name, Ours: short(median(figures[0])) + unit, Upstream: short(median(figures[1])) + unit,
		Ratio: text, Target: "ratio " + want.text}, want.met(ratio))
}

// differences takes down the figures of several rounds. What has a target is the median of the rounds' differences: how much longer ours take.
func (t *table) differences(name string, figures [2][]float64, unit string, most float64) {
	longer := make([]float64, len(figures[0]))
	for i := range longer {
		longer[i] = figures[0][i] - figures[1][i]
	}
	text := fmt.Sprintf("%+.1f%s (%+.1f to %+.1f)", median(longer), unit, slices.Min(longer), slices.Max(longer))
	t.add(row{Name: name, Ours: short(median(figures[0])) + unit, Upstream: short(median(figures[1])) + unit,
		Ratio: text, Target: "at most " + number(most, "") + unit + " longer"}, median(longer) <= most)
}

// beside takes down two figures that have no target.
func (t *table) beside(name string, ours, upstream float64, unit string) {
	t.add(row{Name: name, Ours: short(ours) + unit, Upstream: short(upstream) + unit, Ratio: short(ours / upstream)}, true)
}

func quotients(a, b []float64) []float64 {
	var ratios []float64
	for i := range a {
		ratios = append(ratios, a[i]/b[i])
	}
	return ratios
}

// bound takes down two figures of which ours has a target.
func (t *table) bound(name string, ours, upstream float64, unit string, most float64) {
	ratio := ""
	if upstream > 0 {
		ratio = short(ours / upstream)
	}
	t.add(row{Name: name, Ours: number(ours, "") + unit, Upstream: number(upstream, "") + unit,
		Ratio: ratio, Target: "<= " + number(most, "") + unit}, ours <= most)
}

// limit takes down a figure of ours alone.
func (t *table) limit(name string, ours float64, unit string, most float64) {
	t.add(row{Name: name, Ours: short(ours) + unit, Target: "<= " + number(most, "") + unit}, ours <= most)
}

func (t *table) add(r row, met bool) {
	if r.Target != "" {
		r.Verdict = verdict(met)
	}
	if len(t.rows) == 0 {
		fmt.Printf("%-90s %12s %12s %20s  %s\n", "name", "ours", "upstream's", "ratio", "target")
	}
	t.rows = append(t.rows, r)
	fmt.Printf("%-90s %12s %12s %20s  %s %s\n", r.Name, r.Ours, r.Upstream, r.Ratio, r.Target, r.Verdict)
}

// short is a number as people read it.
func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// markdown is this benchmark's part of the page.
func (t *table) markdown(s scale, commits []string) string {
	var rows [][]any
	for _, r := range t.rows {
		rows = append(rows, []any{r.Name, r.Ours, r.Upstream, r.Ratio, r.Target, r.Verdict})
	}
	return render("provisioner", map[string]any{
		"Rows": rows, "Runs": s.runs, "HugeRuns": s.hugeRuns, "Rounds": s.rounds, "Steady": s.steady, "Crowd": s.crowd, "Few": fewClaims,
		"Measured": measured("provisioner", commits),
	})
}
