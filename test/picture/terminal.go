package main

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// Sizes of the drawn terminal.
const (
	columns    = 128
	charWidth  = 7.25
	lineHeight = 17
	margin     = 16
)

var (
	sceneLine = regexp.MustCompile(`^\d+\. `)
	timeLine  = regexp.MustCompile(`^ +\d+ ms  `)
	lastLine  = regexp.MustCompile(`^demo: `)
)

// terminal draws what make demo prints, from its first scene to its last line, as an SVG.
func terminal(in io.Reader, out string) error {
	var lines []string
	told := false
	for scanner := bufio.NewScanner(in); scanner.Scan(); {
		line := scanner.Text()
		told = told || sceneLine.MatchString(line)
		if told {
			lines = append(lines, fold(line)...)
		}
		if lastLine.MatchString(line) {
			break
		}
	}
	if len(lines) == 0 || !lastLine.MatchString(lines[len(lines)-1]) {
		return fmt.Errorf("the standard input is not what make demo prints: it has no scene, or no last line")
	}
	var text bytes.Buffer
	height := 2*margin + lineHeight*(len(lines)+1)
	width := int(2*margin + columns*charWidth)
	fmt.Fprintf(&text, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&text, `<rect width="%d" height="%d" rx="8" fill="#16202b"/>`+"\n", width, height)
	for n, line := range append([]string{"$ make demo"}, lines...) {
		if line == "" {
			continue
		}
		fmt.Fprintf(&text, `<text x="%d" y="%d" xml:space="preserve" %s>`, margin, margin+lineHeight*(n+1)-5, look(line))
		if err := xml.EscapeText(&text, []byte(line)); err != nil {
			return err
		}
		text.WriteString("</text>\n")
	}
	text.WriteString("</svg>\n")
	return os.WriteFile(out, text.Bytes(), 0o644)
}

// look says how a line is drawn.
func look(line string) string {
	switch {
	case sceneLine.MatchString(line), strings.HasPrefix(line, "$ "):
		return `fill="#ffffff" font-weight="bold"`
	case lastLine.MatchString(line):
		return `fill="#7ee787" font-weight="bold"`
	case strings.Contains(line, "Warning "):
		return `fill="#ffb86b"`
	case timeLine.MatchString(line):
		return `fill="#cfe3f7"`
	default:
		return `fill="#93a4b5"`
	}
}

// fold cuts a line that is wider than the terminal at its spaces.
func fold(line string) []string {
	var lines []string
	hang := strings.Repeat(" ", 22)
	for len(line) > columns {
		cut := strings.LastIndex(line[:columns], " ")
		if cut <= len(hang) {
			break
		}
		lines, line = append(lines, line[:cut]), hang+line[cut+1:]
	}
	return append(lines, line)
}
