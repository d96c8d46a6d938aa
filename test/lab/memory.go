package lab

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Memory returns the resident memory of a program of the lab in MiB.
func (p *Process) Memory() (int, error) {
	pid := p.Pid()
	if p.in {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return 0, err
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
			return 0, err
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.Atoi(fields[1])
	return pages * os.Getpagesize() >> 20, err
}

// MemoryReport says how much resident memory the lab's programs have, by program.
func (l *Lab) MemoryReport() string {
	sums, total := map[string]int{}, 0
	for _, proc := range l.processes.running() {
		name := proc.Name
		for _, n := range l.real {
			name = strings.TrimSuffix(name, "-"+n.Name)
		}
		mib, err := proc.Memory()
		if err != nil {
			continue // it ends just now
		}
		sums[name] += mib
		total += mib
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, sums[name]))
	}
	return fmt.Sprintf("resident memory in MiB: %s; in all %d", strings.Join(parts, ", "), total)
}
