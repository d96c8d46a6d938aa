// Package escape shows text that others have written, such as names, annotations and events of a cluster, without letting it control
// what shows it. Whatever is not a visible character, such as control characters and those that change the direction of text, is shown as
// JSON writes it, so that JSON stays JSON.
package escape

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns a text as one line.
func Text(text string) string { return escaped(text, "") }

// Line is Text, of which no more than so many bytes are left, and then "...".
func Line(text string, most int) string {
	text = Text(text)
	if len(text) <= most {
		return text
	}
	return Cut(text, most) + "..."
}

// Cut returns no more than so many bytes of a text, and no part of a character. The rest is not kept in memory.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return strings.Clone(text[:most])
}

// mostQuoted is how many bytes of a text are quoted: what is wrong with it shows in these.
const mostQuoted = 120

// Quoted returns a text as a message quotes it: the beginning of one that is long.
func Quoted(text string) string {
	if len(text) <= mostQuoted {
		return strconv.Quote(text)
	}
	return strconv.Quote(Cut(text, mostQuoted)) + "..."
}

// Is says whether a text of several lines has nothing to be escaped.
func Is(text string) bool { return escaped(text, layout) == text }

// isVisible says whether a character shows as something, if only as a space. Fillers and selectors of variants, which Unicode has among
// letters and marks, don't.
func isVisible(r rune) bool {
	return unicode.IsGraphic(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// layout is what several lines of text consist of besides visible characters.
const layout = "\n\t"

// NewWriter returns a writer that escapes whatever is written, but for line feeds and tabs. A character that is written in two parts is
// shown as invalid.
func NewWriter(to io.Writer) io.Writer { return writer{to} }

type writer struct{ to io.Writer }

func (w writer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.to, escaped(string(text), layout)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// escaped escapes all of a text but visible characters, spaces and those that are kept.
func escaped(text, kept string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == utf8.RuneError: // also for each byte of what is no UTF-8
			b.WriteString(`\ufffd`)
		case isVisible(r), strings.ContainsRune(kept, r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				b.WriteString(`\u` + strconv.FormatUint(0x10000|uint64(unit), 16)[1:])
			}
		}
	}
	return b.String()
}
