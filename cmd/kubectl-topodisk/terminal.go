package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/printers"
)

// terminal is how text is shown.
type terminal struct {
	width  int  // in columns; 0: lines are not wrapped
	colour bool // unless NO_COLOR is set or the terminal can't
}

// terminalOf returns how text is shown on a stream: without colours and whole lines if it is no terminal.
func terminalOf(out io.Writer) terminal {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return terminal{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 0
	}
	return terminal{width: width, colour: printers.AllowsColorOutput(out)}
}

// style is how a terminal shows words.
type style string

const (
	bold    style = "1"
	faint   style = "2"
	green   style = "1;32"
	yellow  style = "1;33"
	magenta style = "1;35"
)

func (t terminal) styled(s style, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// wrap breaks text between words so that it fits beside an indentation. A word that is too long has a line of its own.
func (t terminal) wrap(text string, indent int) []string {
	text = strings.Join(strings.Fields(text), " ")
	width := t.width - indent
	if t.width == 0 || width < minWidth {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// minWidth is the least that is wrapped to; on a narrower terminal the terminal itself breaks lines.
const minWidth = 20
