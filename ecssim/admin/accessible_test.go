package admin_test

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// path returns the elements that e is in, the page first.
func (e *element) path(target *element) []*element {
	for _, c := range e.children {
		if c == target {
			return []*element{e}
		}
		if below := c.path(target); below != nil {
			return append([]*element{e}, below...)
		}
	}
	return nil
}

func TestPageIsAccessible(t *testing.T) {
	var p *element
	synctest.Test(t, func(t *testing.T) {
		s, _ := lively(t)
		p = parse(t, page(t, s, ""))
	})
	t.Run("labels", func(t *testing.T) { everyControlHasALabel(t, p) })
	t.Run("headings", func(t *testing.T) { headingsAreInOrder(t, p) })
	t.Run("tables", func(t *testing.T) { tablesSayWhatTheyAre(t, p) })
	t.Run("links", func(t *testing.T) { linksWithinThePageLead(t, p) })
	if lang := p.all("html")[0].attr["lang"]; lang != "en" {
		t.Errorf("the page is in the language %q", lang)
	}
	live := 0
	for _, e := range p.all("p", "div", "section", "span") {
		if e.attr["role"] == "status" || e.attr["aria-live"] != "" || e.attr["role"] == "alert" {
			live++
		}
	}
	if live != 1 {
		t.Errorf("%d regions are read out, want the answers of actions only", live)
	}
}

func everyControlHasALabel(t *testing.T, p *element) {
	seen := map[string]bool{}
	for _, e := range p.all("button") {
		name := e.label()
		if name == "" || e.attr["type"] == "" || seen[name] {
			t.Errorf("button %q of type %q: want a name of its own, and a type", name, e.attr["type"])
		}
		seen[name] = true
	}
	if len(seen) < 30 {
		t.Errorf("only %d buttons", len(seen))
	}
	fields := 0
	for _, e := range p.all("input", "select", "textarea") {
		if e.attr["type"] == "hidden" {
			continue
		}
		fields++
		label := slices.ContainsFunc(p.path(e), func(above *element) bool { return above.name == "label" && above.label() != "" })
		if !label && e.attr["aria-label"] == "" {
			t.Errorf("field %q has no label", e.attr["name"])
		}
	}
	if fields < 9 {
		t.Errorf("only %d fields", fields)
	}
}

func headingsAreInOrder(t *testing.T, p *element) {
	level := 0
	headings := p.all("h1", "h2", "h3", "h4", "h5", "h6")
	for n, h := range headings {
		l := int(h.name[1] - '0')
		if l > level+1 || (l == 1) != (n == 0) || h.label() == "" {
			t.Errorf("heading %q of level %d comes after one of level %d", h.label(), l, level)
		}
		level = l
	}
	if len(headings) < 11 {
		t.Errorf("only %d headings", len(headings))
	}
}

func tablesSayWhatTheyAre(t *testing.T, p *element) {
	tables := p.all("table")
	for _, table := range tables {
		captions := table.all("caption")
		if len(captions) != 1 || captions[0].label() == "" {
			t.Fatalf("a table has no caption: %s", table.label())
		}
		caption := captions[0].label()
		for _, th := range table.all("th") {
			if th.attr["scope"] == "" {
				t.Errorf("%s: the heading %q has no scope", caption, th.label())
			}
		}
		columns := table.all("thead")[0].all("th")
		for _, row := range table.all("tbody")[0].all("tr") {
			cells := row.all("th", "td")
			if len(cells) != len(columns) {
				t.Errorf("%s: a row has %d cells under %d headings", caption, len(cells), len(columns))
				continue
			}
			for n, cell := range cells {
				if cell.name == "td" && cell.attr["data-label"] != columns[n].label() {
					t.Errorf("%s: a card calls %q what its column calls %q", caption, cell.attr["data-label"], columns[n].label())
				}
			}
		}
		above := p.path(table)
		region := above[len(above)-1]
		if region.attr["role"] != "region" || region.attr["tabindex"] != "0" || region.attr["aria-label"] == "" {
			t.Errorf("%s can't be scrolled by keyboard", caption)
		}
	}
	if len(tables) < 10 {
		t.Errorf("only %d tables", len(tables))
	}
}

func linksWithinThePageLead(t *testing.T, p *element) {
	ids := map[string]bool{}
	for _, e := range p.all("h2", "main", "p", "time", "button", "form", "datalist") {
		if id := e.attr["id"]; id != "" {
			if ids[id] {
				t.Errorf("the ID %q is there twice", id)
			}
			ids[id] = true
		}
	}
	links := p.all("a")
	if links[0].attr["href"] != "#main" {
		t.Errorf("the first link is %q, want the one that skips to the content", links[0].attr["href"])
	}
	for _, a := range links {
		if _, id, ok := strings.Cut(a.attr["href"], "#"); ok && !ids[id] {
			t.Errorf("the link %q leads nowhere", a.attr["href"])
		}
	}
	for _, list := range p.all("input") {
		if id := list.attr["list"]; id != "" && !ids[id] {
			t.Errorf("the list %q is not there", id)
		}
	}
	for _, section := range p.all("section") {
		if !ids[section.attr["aria-labelledby"]] {
			t.Errorf("a section is named by %q, which is not there", section.attr["aria-labelledby"])
		}
	}
}

// luminance is the relative luminance of a colour #rrggbb, as WCAG 2 has it.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	sum := 0.0
	for n, weight := range []float64{0.2126, 0.7152, 0.0722} {
		value, err := strconv.ParseUint(colour[1+2*n:3+2*n], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(value) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func TestColoursHaveContrast(t *testing.T) {
	code, css := call(t, newServer(t, nil), "GET", "/_sim/page.css", "")
	if code != http.StatusOK {
		t.Fatal(code)
	}
	variable := regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`)
	if bare := regexp.MustCompile(`#[0-9a-f]{3,8}\b|rgb|hsl`).FindAllString(variable.ReplaceAllString(css, ""), -1); len(bare) > 0 {
		t.Errorf("colours that are no variables: %q", bare)
	}
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(css, -1)
	if len(schemes) != 2 {
		t.Fatalf("%d schemes, want light and dark", len(schemes))
	}
	for n, scheme := range schemes {
		colours := map[string]float64{}
		for _, v := range variable.FindAllStringSubmatch(scheme[1], -1) {
			colours[v[1]] = luminance(t, v[2])
		}
		pairs := []string{"on-pressed/pressed", "text/button"}
		for _, text := range []string{"text", "dim", "good", "bad", "warn", "link"} {
			for _, back := range []string{"back", "panel", "fresh"} {
				pairs = append(pairs, text+"/"+back)
			}
		}
		for _, pair := range pairs {
			a, b, _ := strings.Cut(pair, "/")
			text, hasText := colours[a]
			back, hasBack := colours[b]
			if !hasText || !hasBack {
				t.Errorf("scheme %d has no %s", n, pair)
				continue
			}
			if contrast := (max(text, back) + 0.05) / (min(text, back) + 0.05); contrast < 4.5 {
				t.Errorf("scheme %d: the contrast of %s is %s, want 4.5 or more", n, pair, fmt.Sprintf("%.2f", contrast))
			}
		}
	}
}
