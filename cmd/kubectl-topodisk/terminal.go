package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/topodisk/topodisk/internal/escape"
)

// screen is a stream for what the program prints. Whatever is written to it is escaped, but for line feeds and tabs, for names,
// annotations and events of a cluster may have what controls a terminal; the colours are its own.
type screen struct {
	out    io.Writer
	width  int  // in columns; 0: lines are not wrapped
	colour bool // unless NO_COLOR is set or the terminal can't
}

// newScreen returns the screen of a stream: without colours and with whole lines if it is no terminal.
func newScreen(out io.Writer) *screen {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return &screen{out: out}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 0
	}
	return &screen{out: out, width: width, colour: printers.AllowsColorOutput(out)}
}

func (s *screen) Write(text []byte) (int, error) { return escape.NewWriter(s.out).Write(text) }

// style is how a terminal shows words.
type style string

const (
	bold    style = "1"
	faint   style = "2"
	green   style = "1;32"
	yellow  style = "1;33"
	magenta style = "1;35"
)

// page is text for a screen. Whatever is added to it is escaped, so that each line is one that the program ends.
type page struct {
	on   *screen
	text bytes.Buffer
}

func (p *page) add(text string) { p.text.WriteString(escape.Text(text)) }

func (p *page) endLine() { p.text.WriteByte('\n') }

// addStyled adds text in a style.
func (p *page) addStyled(as style, text string) {
	if !p.on.colour {
		p.add(text)
		return
	}
	p.text.WriteString("\x1b[" + string(as) + "m" + escape.Text(text) + "\x1b[0m")
}

// show writes the page to its screen.
func (p *page) show() error {
	_, err := p.on.out.Write(p.text.Bytes())
	return err
}

// wrap returns text as lines that fit beside an indentation, broken between words. A word that is too long has a line of its own.
func (s *screen) wrap(text string, indent int) []string {
	text = strings.Join(strings.Fields(escape.Text(text)), " ")
	width := s.width - indent
	if s.width == 0 || width < minWidth {
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
