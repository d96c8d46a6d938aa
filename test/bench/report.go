package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

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

// machine says what the wall-clock figures were measured on, and how.
func machine(command string) string {
	return fmt.Sprintf("Command: `%s`. Machine: %s.", command, programs.Machine())
}
