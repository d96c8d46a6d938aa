package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
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

// machine says what the wall-clock figures were measured on.
func machine(command string) string {
	return fmt.Sprintf("Command: `%s`. Machine: %s, %d CPUs, %s, %s/%s.", command, processor(), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
		}
	}
	return "unknown processor"
}
