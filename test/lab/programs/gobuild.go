package programs

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// lockBuild makes a directory for programs, and lets one build at a time work in it.
func lockBuild(into string, out io.Writer) (unlock func(), err error) {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(into+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Fprintf(out, "waiting for another build of %s\n", into)
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
	}
	return func() { file.Close() }, nil
}

// external are programs of others that one module builds.
type external struct {
	module, into string // directories
	title, says  string // what is being built, and how long it takes the first time
	kubernetes   bool   // its version is stamped
	packages     []string
}

// build builds the programs unless they are built from the same already.
func (e external) build(ctx context.Context, out *os.File) error {
	unlock, err := lockBuild(e.into, out)
	if err != nil {
		return err
	}
	defer unlock()
	stamp, err := readStamp(ctx, e.module, e.packages)
	if err != nil {
		return err
	}
	if stamp.matches(e.into, e.packages) {
		return nil
	}
	build := goBuild{dir: e.module, into: e.into, packages: e.packages, title: e.title, ldflags: "-s -w", out: out}
	if e.kubernetes {
		version, err := goOutput(ctx, e.module, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		if err != nil {
			return err
		}
		build.ldflags = versionFlags(version)
	}
	fmt.Fprintf(out, "building %s from source: %s, once\n", e.title, e.says)
	if err := stamp.clear(e.into); err != nil {
		return err
	}
	if err := build.compile(ctx); err != nil {
		return err
	}
	for _, pkg := range e.packages {
		if builtName(pkg) != programName(pkg) {
			if err := os.Rename(filepath.Join(e.into, builtName(pkg)), filepath.Join(e.into, programName(pkg))); err != nil {
				return err
			}
		}
	}
	return stamp.write(e.into)
}

// versionFlags stamp the version that Kubernetes' own build would: without, its clients and servers say v0.0.0.
func versionFlags(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := "-s -w"
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean",
			pkg, version, major, minor)
	}
	return flags
}

// goBuild is one run of `go build` that reports how far it is.
type goBuild struct {
	dir, into, title, ldflags string
	packages                  []string
	race                      bool
	out                       *os.File
}

func (b goBuild) run(ctx context.Context) error {
	unlock, err := lockBuild(b.into, b.out)
	if err != nil {
		return err
	}
	defer unlock()
	return b.compile(ctx)
}

// compile is run for whoever has locked the directory.
func (b goBuild) compile(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("build %s: %w", b.title, err)
		}
	}()
	begin := time.Now()
	show := startDisplay(b.out, newProgress(b.title, b.packages), func() int { return countBuilt(b.into, b.packages, begin) })
	defer show.end()

	listed := 0
	list := append([]string{"list", "-deps"}, b.packages...)
	if err := b.goTool(ctx, list, func(string) { listed++ }, show.feed); err != nil {
		return err
	}
	show.packages(listed)
	args := []string{"build", "-v", "-buildvcs=false", "-o", b.into + string(filepath.Separator)}
	if b.race {
		args = append(args, "-race") // and no other flags: what `go test -race` has compiled serves here too
	} else {
		args = append(args, "-trimpath", "-gcflags=all=-dwarf=false") // the same for all programs, which share what is compiled
	}
	if b.ldflags != "" {
		args = append(args, "-ldflags="+b.ldflags)
	}
	return b.goTool(ctx, append(args, b.packages...), nil, show.feed)
}

// goTool runs the go command, hands over its lines, and turns a failure into an error that says what to do.
func (b goBuild) goTool(ctx context.Context, args []string, stdout, stderr func(string)) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b.race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets go remove its temporary files
	cmd.WaitDelay = 10 * time.Second
	var said []string
	output := lineWriter{each: func(line string) {
		said = append(said, line)
		stderr(line)
	}}
	cmd.Stderr = &output
	if stdout != nil {
		cmd.Stdout = &lineWriter{each: stdout}
	}
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return explainBuild(args[0], err, said)
}

// lineWriter calls each for every whole line written to it.
type lineWriter struct {
	each func(string)
	rest string
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest += string(b)
	for {
		line, rest, whole := strings.Cut(w.rest, "\n")
		if !whole {
			return len(b), nil
		}
		w.rest = rest
		w.each(line)
	}
}

// mostLines of what a failed go command has said are shown.
const mostLines = 15

// explainBuild adds to a failed go command what the usual causes need.
func explainBuild(verb string, err error, said []string) error {
	said = slices.DeleteFunc(slices.Clone(said), func(line string) bool { return isPackage(line) || isDownload(line) })
	text := strings.Join(said, "\n")
	hint := ""
	for _, cause := range []struct{ hint, signs string }{
		{"the disk is full: the build needs about 6 GB below `go env GOCACHE GOMODCACHE`", "no space left on device|disk quota exceeded"},
		{"the module proxy (`go env GOPROXY`) was not reached: check the network, then run it again; it goes on where it stopped",
			"dial tcp|no such host|i/o timeout|TLS handshake timeout|connection refused|connection reset|proxyconnect|network is unreachable|502 Bad Gateway|503 Service"},
		{"the kernel ended the compiler: the build needs about 4 GB of memory", "signal: killed"},
	} {
		for sign := range strings.SplitSeq(cause.signs, "|") {
			if strings.Contains(text, sign) {
				hint = "\n" + cause.hint
			}
		}
	}
	said = said[max(0, len(said)-mostLines):]
	return fmt.Errorf("go %s: %w\n    | %s%s", verb, err, strings.Join(said, "\n    | "), hint)
}

// countBuilt counts the programs that this run has written.
func countBuilt(dir string, packages []string, since time.Time) int {
	n := 0
	for _, pkg := range packages {
		if info, err := os.Stat(filepath.Join(dir, builtName(pkg))); err == nil && !info.ModTime().Before(since) {
			n++
		}
	}
	return n
}

// goOutput runs the go command for one line of output.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	var line string
	b := goBuild{dir: dir}
	err := b.goTool(ctx, args, func(s string) { line = s }, func(string) {})
	return line, err
}

// goVersion is what programs depend on besides the module: compiler and platform.
func goVersion(ctx context.Context, module string) (string, error) {
	version, err := goOutput(ctx, module, "env", "GOVERSION")
	return version + " " + runtime.GOOS + "/" + runtime.GOARCH, err
}
