package process

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// LogTail returns the last lines of a log, at most 16 KiB, indented, and says where the whole of it is.
func LogTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("  (no log: %v)", err)
	}
	defer f.Close()
	f.Seek(-16<<10, io.SeekEnd) //nolint:errcheck // a shorter log is read from its beginning
	b, err := io.ReadAll(f)
	if err != nil {
		return fmt.Sprintf("  (log unreadable: %v)", err)
	}
	return fmt.Sprintf("  last lines of %s:\n%s", path, lastLines(string(b), 15))
}

// lastLines returns at most n lines from the end of a text, each indented.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	return "    | " + strings.Join(lines, "\n    | ")
}
