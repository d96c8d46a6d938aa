package main

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/topodisk/topodisk/test/lab/programs"
)

func number(v float64, unit string) string {
	text := strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
	if unit != "" {
		text += " " + unit
	}
	return text
}

// writeSection puts one benchmark's part of the page in its place, and leaves the other parts as they are.
func writeSection(path, name, text string) error {
	page, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		page = []byte("# Benchmarks\n")
	} else if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, _ := strings.Cut(rest, end)
	if !found {
		before += "\n"
	}
	return os.WriteFile(path, []byte(before+begin+"\n"+strings.TrimSpace(text)+"\n\n"+end+after), 0o644)
}

// pages are the parts of docs/benchmarks.md, but for what is measured.
//
//go:embed pages/*.md
var pages embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").Funcs(template.FuncMap{"rows": tableRows}).ParseFS(pages, "pages/*.md"))

// render returns a part of the page. Its text and what it needs are both of this program, so that an error is a mistake in it.
func render(name string, data map[string]any) string {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name+".md", data); err != nil {
		panic(err)
	}
	return b.String()
}

// tableRows are the rows of a table.
func tableRows(table [][]any) string {
	var b strings.Builder
	for _, row := range table {
		b.WriteString("|")
		for _, cell := range row {
			fmt.Fprintf(&b, " %v |", cell)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// measured says how, on what and when figures were measured: rows that are kept at their commits, others now.
func measured(what string, commits []string) string {
	text := fmt.Sprintf("Command: `make bench WHAT=%s`. Machine: %s.", what, programs.Machine())
	if commits != nil {
		return text + " Measured: " + strings.Join(commits, "; ") + "."
	}
	return text + fmt.Sprintf(" Commit %s, %s.", commit(), time.Now().UTC().Format("2006-01-02"))
}
