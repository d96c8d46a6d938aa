package process

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	tailLines = 15
	tailBytes = 16 << 10
)

// LogTail returns the last lines of a log, indented, and says where the whole of it is.
func LogTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("  (no log: %v)", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		f.Seek(-tailBytes, io.SeekEnd) //nolint:errcheck // then the tail is longer than wanted
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return fmt.Sprintf("  (log unreadable: %v)", err)
	}
	return fmt.Sprintf("  last lines of %s:\n%s", path, lastLines(string(b), tailLines))
}

// lastLines returns at most n lines from the end of a text, each indented.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	return "    | " + strings.Join(lines, "\n    | ")
}
