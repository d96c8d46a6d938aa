package golden

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// ChinesePage holds the Chinese page of one that the code makes against the English text: it has the same headings, paragraphs and
// rows, each translated by an entry of a file. A text without an entry is an error, and so is an entry without a text, so a change
// of the English text always asks for its Chinese. Cells below the headings in kept stay as they are.
func ChinesePage(t testing.TB, page, english, file string, kept ...string) {
	t.Helper()
	d := readDictionary(t, file)
	made := d.page(english, kept)
	for text := range d.missing {
		t.Errorf("%s has no Chinese for %q", file, text)
	}
	for text := range d.chinese {
		if !d.used[text] {
			t.Errorf("%s translates %q, which is no text of %s any more", file, text, page)
		}
	}
	if !t.Failed() {
		Page(t, page, made)
	}
}

// dictionary is the Chinese of each text of a page.
type dictionary struct {
	chinese       map[string]string
	used, missing map[string]bool
}

// readDictionary reads the translations, and holds each against its English text.
func readDictionary(t testing.TB, file string) dictionary {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var entries []struct{ English, Chinese string }
	if err := yaml.UnmarshalStrict(text, &entries); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	d := dictionary{chinese: map[string]string{}, used: map[string]bool{}, missing: map[string]bool{}}
	for _, e := range entries {
		if _, twice := d.chinese[e.English]; twice || e.Chinese == "" {
			t.Errorf("%s: %q stands there twice or without Chinese", file, e.English)
		}
		if difference := Disagreement(e.English, e.Chinese); difference != "" {
			t.Errorf("%s: %q and %q: %s", file, e.English, e.Chinese, difference)
		}
		d.chinese[e.English] = e.Chinese
	}
	return d
}

// of translates one text.
func (d dictionary) of(english string) string {
	chinese, known := d.chinese[english]
	if !known {
		d.missing[english] = true
	}
	d.used[english] = true
	return chinese
}

// page translates a page of headings, paragraphs, tables and indented code. A paragraph becomes one line, for a line break between
// Chinese characters is shown as a space.
func (d dictionary) page(english string, kept []string) string {
	var text strings.Builder
	var columns []string
	for block := range strings.SplitSeq(strings.TrimSpace(english), "\n\n") {
		switch level, heading, _ := strings.Cut(block, " "); {
		case strings.HasPrefix(block, "    "):
			text.WriteString(block + "\n")
		case strings.HasPrefix(block, "#"):
			text.WriteString(level + " " + d.of(heading) + "\n")
		case strings.HasPrefix(block, "| "):
			columns = nil
			for row := range strings.SplitSeq(block, "\n") {
				text.WriteString(d.row(row, &columns, kept))
			}
		default:
			text.WriteString(d.of(strings.Join(strings.Fields(block), " ")) + "\n")
		}
		text.WriteString("\n")
	}
	return strings.TrimSuffix(text.String(), "\n")
}

var onlyCode = regexp.MustCompile("^(`[^`]+`(, )?)*$")

// row translates a row of a table. The first one has the columns' headings.
func (d dictionary) row(row string, columns *[]string, kept []string) string {
	if strings.HasPrefix(row, "|---") {
		return row + "\n"
	}
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(row, "| "), " |"), " | ")
	isHeading := *columns == nil
	if isHeading {
		*columns = slices.Clone(cells)
	}
	for n, cell := range cells {
		if isHeading || !slices.Contains(kept, (*columns)[n]) && !onlyCode.MatchString(cell) {
			cells[n] = d.of(cell)
		}
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	linkTo   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	number   = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)*`)
	month    = regexp.MustCompile(`[0-9]+ 月`)
)

// Disagreement says what one of two texts has and the other, which translates it, has not: code, numbers and where links lead to.
// It is empty if they have the same.
func Disagreement(english, chinese string) string {
	for _, kind := range []struct {
		name string
		of   func(string) []string
	}{{"code", codeOf}, {"numbers", numbersOf}, {"links", linksOf}} {
		if a, b := kind.of(english), kind.of(chinese); !slices.Equal(a, b) {
			return fmt.Sprintf("%s %q, in Chinese %q", kind.name, a, b)
		}
	}
	return ""
}

func codeOf(text string) []string {
	var all []string
	for _, match := range codeSpan.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Join(strings.Fields(match[1]), " "))
	}
	return sorted(all)
}

// numbersOf returns the numbers of a text but for months, which only Chinese writes as such.
func numbersOf(text string) []string {
	text = month.ReplaceAllString(text, "")
	text = linkTo.ReplaceAllString(codeSpan.ReplaceAllString(text, ""), "]")
	return sorted(number.FindAllString(text, -1))
}

// linksOf returns the pages that a text links to, whatever the folder: the Chinese page, where there is one, is of the same name.
// The anchors within them are in the language of the page.
func linksOf(text string) []string {
	var all []string
	for _, match := range linkTo.FindAllStringSubmatch(text, -1) {
		page, _, _ := strings.Cut(match[1], "#")
		if !strings.Contains(page, "://") {
			page = page[strings.LastIndex(page, "/")+1:]
		}
		all = append(all, page)
	}
	return sorted(all)
}

// sorted returns what a list has, each once, in order.
func sorted(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}
