package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
)

// Measures of the picture in pixels: panels, three beside each other, and the room around the plot of each.
const (
	columns     = 3
	panelWidth  = 400
	panelHeight = 170
	leftRoom    = 56
	rightRoom   = 14
	topRoom     = 30
	bottomRoom  = 26
	legendRoom  = 66
)

// panel is one plot.
type panel struct {
	title string
	lives [][]point
}

type point struct{ x, y float64 } // hours, and a value

// colours tell lives apart. They differ in lightness, too.
var colours = []string{"#1f5fa8", "#d2691e", "#2e8b57", "#8b3a8b", "#b8860b", "#5f6b7a"}

// ratesOver is the time that the rate of a counter is taken over.
const ratesOver = 2 * time.Minute

// picture draws every series that is judged: a line for each life, a thin mark for each fault, and where the soak restarts what is
// installed a darker ground.
func (r result) picture() string {
	panels := r.panels()
	rows := (len(panels) + columns - 1) / columns
	width, height := columns*panelWidth, legendRoom+rows*panelHeight
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" font-family="system-ui, sans-serif" font-size="12" fill="#222">`, width, height, width)
	p(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	length, _ := r.ended()
	p(`<text x="12" y="24" font-size="17" font-weight="600">%s under load, with faults and rollouts</text>`, hours(length))
	p(`<text x="12" y="46">Across: hours since the load began. A line is one process from its start to its end. <tspan fill="#c33">|</tspan> is a fault. On grey ground the controller is replaced and its leader killed.</text>`)
	for i, each := range panels {
		r.draw(p, each, float64(i%columns*panelWidth), float64(legendRoom+i/columns*panelHeight), length.Hours())
	}
	p(`</svg>`)
	return b.String()
}

func hours(d time.Duration) string { return number(d.Hours()) + " hours" }

// draw draws one panel.
func (r result) draw(p func(string, ...any), each panel, left, top, length float64) {
	x0, x1 := left+leftRoom, left+panelWidth-rightRoom
	y0, y1 := top+panelHeight-bottomRoom, top+topRoom
	highest := 0.0
	for _, life := range each.lives {
		for _, at := range life {
			highest = max(highest, at.y)
		}
	}
	step := niceStep(highest / 3)
	limit := max(step*math.Ceil(highest/step), step)
	x := func(h float64) float64 { return x0 + (x1-x0)*h/length }
	y := func(v float64) float64 { return y0 - (y0-y1)*v/limit }
	p(`<text x="%.0f" y="%.0f" font-weight="600">%s</text>`, left+12, top+18, html.EscapeString(each.title))
	r.drawGround(p, x, y0, y1, length)
	for v := 0.0; v <= limit*1.0001; v += step {
		p(`<path d="M%.1f %.1fH%.1f" stroke="#ddd" stroke-width="0.7"/><text x="%.0f" y="%.1f" text-anchor="end" font-size="11">%s</text>`, x0, y(v), x1, x0-5, y(v)+4, tick(v))
	}
	for h, every := 0.0, niceStep(length/4); h <= length*1.0001; h += every {
		p(`<path d="M%.1f %.1fv4" stroke="#888"/><text x="%.1f" y="%.1f" text-anchor="middle" font-size="11">%s</text>`, x(h), y0, x(h), y0+16, tick(h))
	}
	var marks strings.Builder
	for _, e := range r.events {
		if e.Name != loadEnded {
			fmt.Fprintf(&marks, "M%.1f %.1fv-5", x(e.At.Hours()), y0)
		}
	}
	p(`<path d="%s" stroke="#c33" stroke-width="0.8"/>`, marks.String())
	for i, life := range each.lives {
		var path strings.Builder
		for k, at := range life {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(k, 1)], x(at.x), y(at.y))
		}
		p(`<path d="%s" fill="none" stroke="%s" stroke-width="1.1" stroke-linecap="round"/>`, path.String(), colours[i%len(colours)])
	}
	p(`<path d="M%.1f %.1fV%.1fH%.1f" fill="none" stroke="#888"/>`, x0, y1, y0, x1)
}

// drawGround darkens the parts of the soak that restart what is installed.
func (r result) drawGround(p func(string, ...any), x func(float64) float64, y0, y1, length float64) {
	for round := range r.Plan.Rounds {
		begin := (time.Duration(round) * r.Plan.Round).Hours()
		end := min((time.Duration(round+1) * r.Plan.Round).Hours(), length)
		if r.Plan.Part(round) != livingOn && begin < end {
			p(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#eee"/>`, x(begin), y1, x(end)-x(begin), y0-y1)
		}
	}
}

// panels are those of the series that are judged, in their order.
func (r result) panels() (list []panel) {
	by := map[string][]Sample{}
	for _, s := range r.samples {
		by[s.Series] = append(by[s.Series], s)
	}
	for _, s := range r.Plan.judged() {
		each := panel{title: s.name}
		switch {
		case s.rule.Kind == Counter:
			each.title += ", a minute"
		case s.unit != "":
			each.title += ", " + s.unit
		}
		for _, life := range lives(by[s.name]) {
			if line := s.points(life); len(line) > 1 {
				each.lives = append(each.lives, line)
			}
		}
		list = append(list, each)
	}
	return list
}

// points are the values of a level, and the rates a minute of a counter.
func (s judgedSeries) points(life []Sample) (line []point) {
	if s.rule.Kind != Counter {
		for _, at := range life {
			line = append(line, point{at.At.Hours(), scale(s.unit, at.Value)})
		}
		return line
	}
	for from := 0; from < len(life)-1; {
		to := from + 1
		for to < len(life)-1 && life[to].At-life[from].At < ratesOver {
			to++
		}
		took := life[to].At - life[from].At
		line = append(line, point{(life[from].At + took/2).Hours(), (life[to].Value - life[from].Value) / took.Minutes()})
		from = to
	}
	return line
}

// niceStep is the least of 1, 2, 5, 10, 20, 50, ... and their tenths and so on that is not below a value.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	i := slices.IndexFunc([]float64{1, 2, 5, 10}, func(f float64) bool { return f*power >= v*0.999 })
	return []float64{1, 2, 5, 10}[i] * power
}

// tick is the text beside a line of the grid.
func tick(v float64) string {
	switch {
	case v >= 10000:
		return fmt.Sprintf("%.0f k", v/1000)
	case v >= 10 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
