package process

import (
	"fmt"
	"os"
	"strings"
)

// LogTail returns the last lines of a log, indented, and says where the whole of it is.
func LogTail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("  (no log: %v)", err)
	}
	return fmt.Sprintf("  last lines of %s:\n%s", path, lastLines(string(b), 15))
}

// lastLines returns at most n lines from the end of a text, each indented.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	return "    | " + strings.Join(lines, "\n    | ")
}
