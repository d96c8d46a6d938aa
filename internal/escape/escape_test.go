package escape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatIsNotVisibleIsEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"a name, 磁盘 and café":      "a name, 磁盘 and café",
		"\x1b[8mhidden\x1b[0m":     `\u001b[8mhidden\u001b[0m`,
		"\x1b]0;title\a":           `\u001b]0;title\u0007`,
		"one\ntwo\r\tthree\x00":    `one\ntwo\r\tthree\u0000`,
		"\u009b2J\u0085\x7f":       `\u009b2J\u0085\u007f`,
		"a\u202etxt.exe\u2066":     `a\u202etxt.exe\u2066`,
		"\u200b\u200f\ufeff\u2028": `\u200b\u200f\ufeff\u2028`,
		"\U000e0041":               `\udb40\udc41`,
		"a\u3164b\u115fc\uffa0d":   `a\u3164b\u115fc\uffa0d`,
		"a\ufe0fb\u034fc":          `a\ufe0fb\u034fc`,
		"a\U000e0100":              `a\udb40\udd00`,
		"\x9b2J\xff":               `\ufffd2J\ufffd`,
		`already \u001b`:           `already \u001b`,
	} {
		if got := Text(text); got != want {
			t.Errorf("%q is shown as %s, want %s", text, got, want)
		}
		if Is(text) != (text == want) {
			t.Errorf("%q: Is is %t", text, Is(text))
		}
	}
}

func TestALongTextIsQuotedInPart(t *testing.T) {
	for text, want := range map[string]string{
		"":                              `""`,
		"x\n":                           `"x\n"`,
		strings.Repeat("x", 120):        `"` + strings.Repeat("x", 120) + `"`,
		strings.Repeat("x", 1<<20):      `"` + strings.Repeat("x", 120) + `"...`,
		strings.Repeat("x", 119) + "磁盘": `"` + strings.Repeat("x", 119) + `"...`,
	} {
		if got := Quoted(text); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestAWriterKeepsLinesAlone(t *testing.T) {
	var out bytes.Buffer
	n, err := fmt.Fprintf(NewWriter(&out), "a\tb\n\x1b[1m\r%s", "\u202e")
	if want := "a\tb\n" + `\u001b[1m\r\u202e`; out.String() != want || n != len("a\tb\n\x1b[1m\r\u202e") || err != nil {
		t.Errorf("%d bytes, %v: %s, want %s", n, err, &out, want)
	}
}

// Whatever a string has, it is no longer in what is shown, and JSON of it has the same value.
func FuzzWriter(f *testing.F) {
	f.Add("x;touch OWNED;: \x1b[8m\u202e\u0085\n")
	f.Fuzz(func(t *testing.T, text string) {
		if shown := Text(text); !utf8.ValidString(shown) || !Is(shown) || strings.ContainsAny(shown, layout) {
			t.Errorf("%q is shown as %q", text, shown)
		}
		document, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		var out bytes.Buffer
		_, _ = NewWriter(&out).Write(document)
		if err := json.Unmarshal(document, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &after); err != nil || before != after {
			t.Errorf("%q in JSON becomes %q, %v", before, after, err)
		}
	})
}

func FuzzALineIsShort(f *testing.F) {
	f.Add("\x1b]0;title\x07", 3)
	f.Add(strings.Repeat("中", 9), 20)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = max(0, most%100)
		got := Line(text, most)
		whole, cut := strings.CutSuffix(got, "...")
		if !utf8.ValidString(got) || got != Text(text) && (!cut || len(whole) > most || !strings.HasPrefix(Text(text), whole)) {
			t.Errorf("line of %q: %q", text, got)
		}
	})
}
