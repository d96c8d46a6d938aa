package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// podsPicture is the file beside the page.
const podsPicture = "pod-start.svg"

// stepColors are told apart by those who see no red or green, too, and on paper.
var stepColors = []string{"#4e6a8c", "#f2b134", "#c9d3df", "#d95f30", "#7a9e48", "#2b2f36"}

// Sizes of the picture in pixels.
const (
	pictureWidth = 960
	nameWidth    = 330 // left of the bars
	barsWidth    = pictureWidth - nameWidth - 80
	barHeight    = 15
	barGap       = 4
	rowGap       = 46
)

// drawPods draws for each scenario, with each source of volumes, the steps of the Pod at p50 and of the Pod at p99, one behind the
// other. Each scenario has a scale of its own.
func drawPods(rows []podsRow) string {
	var bars strings.Builder
	y := 64
	for _, row := range rows {
		y = drawPodsRow(&bars, row, y) + rowGap
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", pictureWidth, y-rowGap/2)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", pictureWidth, y-rowGap/2)
	for i, name := range stepNames {
		x := 20 + 140*i
		fmt.Fprintf(&b, `<rect x="%d" y="14" width="14" height="14" fill="%s"/><text x="%d" y="26" fill="#1d2b38">%s</text>`+"\n", x, stepColors[i], x+20, name)
	}
	b.WriteString(bars.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// drawPodsRow draws one scenario from y on, and returns where it ends.
func drawPodsRow(b *strings.Builder, row podsRow, y int) int {
	fmt.Fprintf(b, `<text x="20" y="%d" fill="#1d2b38" font-weight="bold">%s</text>`+"\n", y, html.EscapeString(row.Name))
	y += 12
	top, scale := y, scaleOf(row)
	for _, run := range row.Runs {
		for i, steps := range [][]float64{run.Middle, run.Last} {
			if i == 0 {
				fmt.Fprintf(b, `<text x="20" y="%d" fill="#44576b">%s</text>`+"\n", y+barHeight, html.EscapeString(run.Source))
			}
			fmt.Fprintf(b, `<text x="%d" y="%d" fill="#44576b" text-anchor="end">%s</text>`+"\n", nameWidth-8, y+12, []string{"p50", "p99"}[i])
			drawBar(b, steps, y, scale)
			y += barHeight + barGap
		}
		y += barGap
	}
	drawScale(b, top, y, scale)
	return y + 14
}

// drawBar draws the steps of one Pod.
func drawBar(b *strings.Builder, steps []float64, y int, scale float64) {
	at := 0.0
	for i, seconds := range steps {
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, nameWidth+at*scale, y, seconds*scale, barHeight, stepColors[i])
		at += seconds
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="#1d2b38">%.1f s</text>`+"\n", nameWidth+at*scale+5, y+12, at)
}

// scaleOf is how many pixels a second has.
func scaleOf(row podsRow) float64 {
	longest := 0.001
	for _, run := range row.Runs {
		for _, steps := range [][]float64{run.Middle, run.Last} {
			longest = max(longest, sum(steps))
		}
	}
	return barsWidth / longest
}

func sum(values []float64) (all float64) {
	for _, v := range values {
		all += v
	}
	return all
}

// drawScale draws the seconds below the bars.
func drawScale(b *strings.Builder, top, bottom int, scale float64) {
	tick := tickOf(barsWidth / scale)
	for at := 0.0; at*scale <= barsWidth; at += tick {
		x := nameWidth + at*scale
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" stroke="#8aa0b8" stroke-width="0.5"/><text x="%.1f" y="%d" fill="#5b6b7b" font-size="10" text-anchor="middle">%g s</text>`+"\n",
			x, top, bottom, x, bottom+11, at)
	}
}

// tickOf is a round number of which four to ten make up the longest bar.
func tickOf(longest float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(longest/4)))
	for _, of := range slices.Backward([]float64{1, 2, 5}) {
		if of*power <= longest/4 {
			return of * power
		}
	}
	return power
}
