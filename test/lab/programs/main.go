package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

// Main is the main function of a program of this checkout. It has run do the work, with the root of the checkout, until it returns or its
// context is done by a signal, and ends the process with its exit code. An error is printed behind the program's name; then the code isn't 0.
func Main(name string, run func(ctx context.Context, root string) (code int, err error)) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 0
	root, err := FindRoot()
	if err == nil {
		code, err = run(ctx, root)
	}
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// RunAll runs commands in a directory, one after the other, until one fails.
func RunAll(ctx context.Context, dir string, out *os.File, commands ...[]string) error {
	for _, command := range commands {
		run := exec.CommandContext(ctx, command[0], command[1:]...)
		run.Dir, run.Stdout, run.Stderr = dir, out, out
		if err := run.Run(); err != nil {
			return fmt.Errorf("%q: %w", command, err)
		}
	}
	return nil
}

// Commit returns the commit of the checkout, short and marked if files differ from it, but for those of the paths. What writes them asks before.
func Commit(ctx context.Context, root string, except ...string) (string, error) {
	commit, err := git(ctx, root, "rev-parse", "--short", "HEAD")
	if err != nil {
		return "", err
	}
	paths := []string{"."}
	for _, path := range except {
		paths = append(paths, ":!"+path)
	}
	changed, err := git(ctx, root, append([]string{"status", "--porcelain", "--"}, paths...)...)
	if changed != "" {
		commit += "-dirty"
	}
	return commit, err
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	said, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(said)), nil
}

// Machine says what times were measured on.
func Machine() string {
	name := "unknown processor"
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "model name"); ok {
			name = strings.TrimLeft(strings.TrimSpace(value), ": \t")
			break
		}
	}
	return fmt.Sprintf("%s, %d CPUs, %s, %s/%s", name, runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
