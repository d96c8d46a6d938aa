package docs_test

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

// translated are the English pages that there is a Chinese one of.
var translated = map[string]string{
	"README.md":                "docs/zh/README.md",
	"docs/README.md":           "docs/zh/contents.md",
	"docs/advisory-2026-01.md": "docs/zh/advisory-2026-01.md",
	"docs/ecs-on-a-laptop.md":  "docs/zh/ecs-on-a-laptop.md",
	"docs/errors.md":           "docs/zh/errors.md",
	"docs/install.md":          "docs/zh/install.md",
	"docs/kubectl-topodisk.md": "docs/zh/kubectl-topodisk.md",
	"docs/parameters.md":       "docs/zh/parameters.md",
	"docs/pilot.md":            "docs/zh/pilot.md",
	"docs/simulator.md":        "docs/zh/simulator.md",
	"docs/takeover.md":         "docs/zh/takeover.md",
	"docs/troubleshooting.md":  "docs/zh/troubleshooting.md",
}

func TestEveryChinesePageIsHeldAgainstItsOriginal(t *testing.T) {
	for name := range pages(t) {
		if path.Dir(name) == "docs/zh" && !slices.Contains(slices.Collect(maps.Values(translated)), name) {
			t.Errorf("%s: which page it translates is not known here", name)
		}
	}
}

// A Chinese page has the parts of the English one in its order, with the same commands and code, and each section has the same
// code, numbers and links: what one of them gains, the other must.
func TestChinesePagesKeepStep(t *testing.T) {
	texts := pages(t)
	for english, chinese := range translated {
		want, got := sectionsOf(texts[english]), sectionsOf(texts[chinese])
		for n := range max(len(want), len(got)) {
			w, g := at(want, n), at(got, n)
			if part := differs(w.parts, g.parts); part != "" {
				t.Errorf("%s, section %q, and %s, section %q, part at %s", english, w.heading, chinese, g.heading, part)
				break
			}
			// docs/zh has one README.md, so the list of the pages has another name there.
			prose := strings.ReplaceAll(g.prose, "](contents.md", "](README.md")
			if difference := golden.Disagreement(w.prose, prose); difference != "" {
				t.Errorf("%s, section %q, and %s, section %q: %s", english, w.heading, chinese, g.heading, difference)
			}
		}
	}
}

// differs returns the first part that only one of two sections has.
func differs(want, got []string) string {
	for n := range max(len(want), len(got)) {
		if w, g := at(want, n), at(got, n); w != g {
			return fmt.Sprintf("part %d: %q and %q", n+1, w, g)
		}
	}
	return ""
}

// at returns an element of a list, or the zero value behind its end.
func at[E any](list []E, n int) (e E) {
	if n < len(list) {
		e = list[n]
	}
	return e
}

// section is a heading and what follows it, up to the next one.
type section struct {
	heading string
	parts   []string // what is the same in every language
	prose   string   // the rest, with its code and links
	broken  []string // lines that go on in the next one
}

var (
	item = regexp.MustCompile(`^(-|[0-9]+\.) `)
	mark = regexp.MustCompile(`^<!-- (run|prepares|needs|made) .* -->$`)

	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// sectionsOf reads a page: a part is a heading by its level, a paragraph, an item of a list, a row of a table by the number of its
// cells and its first one if that is code, and each line of a block, with the mark that says what runs it.
func sectionsOf(text string) []section {
	text = comment.ReplaceAllStringFunc(text, func(c string) string {
		if mark.MatchString(c) {
			return c
		}
		return ""
	})
	var all []section
	inCode, goesOn := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		isCode := inCode || strings.HasPrefix(line, "```") || strings.HasPrefix(line, "    ") && !goesOn
		if strings.HasPrefix(line, "#") && !isCode {
			level, heading, _ := strings.Cut(line, " ")
			all = append(all, section{heading: heading, parts: []string{level}})
			goesOn = false
			continue
		}
		if len(all) == 0 {
			continue
		}
		s := &all[len(all)-1]
		switch {
		case isCode:
			inCode = inCode != strings.HasPrefix(line, "```")
			s.parts, goesOn = append(s.parts, line), false
		case line == "":
			goesOn = false
		case mark.MatchString(line):
			s.parts, goesOn = append(s.parts, line), false
		case strings.HasPrefix(line, "|"):
			s.parts, goesOn = append(s.parts, rowOf(line)), false
			s.prose += line + "\n"
		case goesOn && !item.MatchString(line):
			s.broken = append(s.broken, line)
			s.prose += line + "\n"
		case item.MatchString(line):
			s.parts, goesOn = append(s.parts, "an item"), true
			s.prose += line + "\n"
		default:
			s.parts, goesOn = append(s.parts, "a paragraph"), true
			s.prose += line + "\n"
		}
	}
	return all
}

// rowOf describes a row of a table by its cells, and by the code that it begins with.
func rowOf(line string) string {
	cells := strings.Split(strings.Trim(line, "| "), " | ")
	if strings.HasPrefix(cells[0], "`") {
		return fmt.Sprintf("a row of %d cells for %q", len(cells), inBackticks.FindAllString(cells[0], -1))
	}
	return fmt.Sprintf("a row of %d cells", len(cells))
}

// Markdown shows a line break in a paragraph as a space, and Chinese has none between its characters.
func TestChineseParagraphsAreOneLine(t *testing.T) {
	for name, text := range pages(t) {
		if path.Dir(name) != "docs/zh" {
			continue
		}
		for _, s := range sectionsOf(text) {
			for _, line := range s.broken {
				t.Errorf("%s, section %q: a paragraph or item is broken before %q", name, s.heading, line)
			}
		}
	}
}

// Whoever reads Chinese stays there: a page leads to the English one only where there is no other, or as its original.
func TestChinesePagesLeadToChineseOnes(t *testing.T) {
	for name, text := range pages(t) {
		if path.Dir(name) != "docs/zh" {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			to, _, _ := strings.Cut(match[1], "#")
			if chinese, exists := translated[path.Join(path.Dir(name), to)]; exists && chinese != name {
				t.Errorf("%s links to %s, of which there is %s", name, to, chinese)
			}
		}
	}
}

// otherWords are words that other clouds or older pages have for what the list of words in docs/zh/README.md names.
var otherWords = map[string]string{
	"持久卷": "存储卷", "申领": "PVC", "云硬盘": "云盘", "磁盘类型": "云盘类型", "可用域": "可用区", "实例类型": "实例规格", "快照组": "快照一致性组",
	"账户": "账号", "没有主人": "无归属", "制备": "供给", "限频": "限流",
}

func TestChinesePagesHaveOneWordForOneThing(t *testing.T) {
	for name, text := range pages(t) {
		if path.Dir(name) != "docs/zh" {
			continue
		}
		for word, instead := range otherWords {
			if strings.Contains(text, word) {
				t.Errorf("%s says %s; the other pages say %s", name, word, instead)
			}
		}
	}
}
