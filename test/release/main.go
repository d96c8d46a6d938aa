// Release makes what a version of topodisk is published as, and the container image alone. It runs at the root of the
// repository, on Debian 12 of whatever architecture; docs/release.md says what comes out and how it is verified.
//
//	release make -version 0.2.0 -out dist
//	release image -version dev -out .build/topodisk.tar
//
// The same commit gives the same bytes; only provenance and signatures tell when they were made.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// repository is where the sources are published.
const repository = "https://github.com/topodisk/topodisk"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) (last string, err error){"make": makeRelease, "image": makeImage}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "release: the first argument is make or image")
		os.Exit(2)
	}
	last, err := commands[os.Args[1]](ctx, os.Args[2:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(last)
}

// source is what is built, and how.
type source struct {
	version, commit string
	time            time.Time // of the commit, and of every file that is made of it
	architectures   []string
	packages        string // directory that keeps Debian packages
}

// flags are those that both commands have.
func (s *source) flags(name, out string) (*flag.FlagSet, *string) {
	set := flag.NewFlagSet(name, flag.ExitOnError)
	set.StringVar(&s.version, "version", "", "version that is built")
	set.StringVar(&s.packages, "packages", filepath.Join(".build", "packages"), "directory that keeps Debian packages from run to run")
	set.Func("architectures", "architectures that are built for, with commas between them", func(list string) error {
		s.architectures = strings.Split(list, ",")
		return nil
	})
	return set, set.String("out", out, "where to write it")
}

// makeImage builds the image as an OCI archive, and writes what it is made of beside it. It returns the digest of its index.
func makeImage(ctx context.Context, args []string) (string, error) {
	var s source
	set, out := s.flags("image", ".build/topodisk.tar")
	check := set.Bool("check", false, "build it a second time and fail if a byte differs")
	_ = set.Parse(args) // it exits
	if err := s.prepare(ctx); err != nil {
		return "", err
	}
	work, clean, err := makeWork("image")
	if err != nil {
		return "", err
	}
	defer clean()
	if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
		return "", err
	}
	digest, err := s.buildImage(ctx, work, "dev", *out)
	if err != nil {
		return "", err
	}
	made, err := components(imagePrograms(work), imageRoots(work))
	if err != nil {
		return "", err
	}
	if err := s.describe(*out, strings.TrimSuffix(*out, ".tar")+".spdx.json", "CONTAINER", made); err != nil {
		return "", err
	}
	if *check {
		err = s.checkImage(ctx, filepath.Join(work, "again"), digest)
	}
	return digest + " " + *out, err
}

// prepare reads the commit, and takes from the environment what would change the bytes that Go makes.
func (s *source) prepare(ctx context.Context) error {
	for _, architecture := range s.architectures {
		if _, known := machines[architecture]; !known {
			return fmt.Errorf("ARCHITECTURES=%q: allowed are amd64, arm64 and amd64,arm64", strings.Join(s.architectures, ","))
		}
	}
	recipe, err := s.readRecipe("")
	if err != nil {
		return err
	}
	head, err := output(ctx, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(head, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("time of commit %s: %w", commit, err)
	}
	s.commit, s.time = commit, time.Unix(unix, 0).UTC()
	for name, value := range map[string]string{
		"GOTOOLCHAIN": "go" + recipe.goVersion, "GOFLAGS": "-mod=readonly", "GOWORK": "off",
		"GOAMD64": "v1", "GOARM64": "v8.0", "GOEXPERIMENT": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// stage says on standard error what comes next.
func stage(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "release: "+format+"\n", args...)
}

// run runs a program, which says on standard error what it does.
func run(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what a shell has started ends with it
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	if err := command.Run(); ctx.Err() != nil {
		return fmt.Errorf("%s: broken off", name)
	} else if err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(strings.Join(slices.Insert(args, 0, name), " ")), err)
	}
	return nil
}

// output returns what a program prints, without the last line's end.
func output(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}
