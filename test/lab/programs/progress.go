package programs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// plainEvery is how often progress is printed where a line can't be changed once it is printed.
const plainEvery = 10 * time.Second

// progress is how far a build is, from what `go build -v` prints: one line per package that it compiles.
type progress struct {
	title      string
	programs   int // done
	ofPrograms int
	compiled   int
	packages   int // upper bound: what the build cache holds is not compiled again
	downloaded int
	mains      []string // main packages: after each comes a link
	now        string   // what is being done
}

func newProgress(title string, mains []string) *progress {
	return &progress{title: title, ofPrograms: len(mains), mains: mains}
}

// feed takes a line of the go command's standard error.
func (p *progress) feed(line string) {
	switch {
	case isDownload(line):
		p.downloaded++
		p.now = "downloading " + strings.Fields(line)[2]
	case isPackage(line):
		p.compiled++
		p.now = "compiling " + line
		if slices.Contains(p.mains, line) {
			p.now = "linking " + programName(line)
		}
	}
}

// isDownload recognises "go: downloading MODULE VERSION".
func isDownload(line string) bool {
	return strings.HasPrefix(line, "go: downloading ") && len(strings.Fields(line)) == 4
}

// isPackage recognises the import path that `go build -v` prints: one word, unlike any message.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:#") && !strings.HasPrefix(line, "/")
}

// line says it for people.
func (p *progress) line(took time.Duration) string {
	s := fmt.Sprintf("[%2d:%02d] %s: ", int(took.Minutes()), int(took.Seconds())%60, p.title)
	switch {
	case p.packages == 0 && p.downloaded == 0:
		return s + "finding out what there is to build"
	case p.packages == 0:
		return s + fmt.Sprintf("%d modules downloaded, %s", p.downloaded, p.now)
	}
	s += fmt.Sprintf("%d of %d programs, %d of at most %d packages", p.programs, p.ofPrograms, p.compiled, p.packages)
	if p.now != "" {
		s += ", " + p.now
	}
	return s
}

// display prints progress to a file: over itself on a terminal, else a line every plainEvery.
// Linking takes its time without a word from the go command, so the clock drives it and not the lines.
type display struct {
	out      *os.File
	terminal bool
	begin    time.Time
	done     func() int // programs

	mu       sync.Mutex
	progress *progress
	stop     chan struct{}
	stopped  sync.WaitGroup
}

func startDisplay(out *os.File, p *progress, done func() int) *display {
	d := &display{out: out, terminal: isTerminal(out), begin: time.Now(), done: done, progress: p, stop: make(chan struct{})}
	d.stopped.Go(d.loop)
	return d
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func (d *display) loop() {
	every := plainEvery
	if d.terminal {
		every = 500 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.print()
		case <-d.stop:
			return
		}
	}
}

// feed takes a line of the go command's standard error.
func (d *display) feed(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress.feed(line)
}

// packages sets the bound that a listing has found.
func (d *display) packages(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress.packages = n
}

const terminalWidth = 110

func (d *display) print() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress.programs = d.done()
	line := d.progress.line(time.Since(d.begin))
	if !d.terminal {
		fmt.Fprintln(d.out, line)
		return
	}
	fmt.Fprintf(d.out, "\r\033[K%s", line[:min(len(line), terminalWidth)])
}

// end stops the display. If anything was compiled or downloaded the last state stays on a line of its own.
func (d *display) end() {
	close(d.stop)
	d.stopped.Wait()
	if d.progress.compiled+d.progress.downloaded > 0 {
		d.progress.now = ""
		d.print()
		if d.terminal {
			fmt.Fprintln(d.out)
		}
	} else if d.terminal {
		fmt.Fprint(d.out, "\r\033[K")
	}
}
