// Image builds the container image as an OCI archive, without Docker and without a registry. The Dockerfile is its
// recipe: it runs that file's build commands on this machine and puts the same files, settings and labels together.
//
//	go run ./test/image -version 0.1.0 -architectures amd64,arm64 -out .build/topodisk.tar
//
// The same sources give the same bytes. It prints the digest of the image's index, and writes what the image is made of
// beside the archive, in the form of SPDX 2.3. The machine is Debian 12, for the packages of image/packages are; its
// architecture may be another than the image's.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

func main() {
	version := flag.String("version", "dev", "version that the programs and the label tell")
	revision := flag.String("revision", "unknown", "commit that the label tells")
	name := flag.String("name", "registry.example.com/storage/topodisk:dev", "name of the image in the archive")
	out := flag.String("out", ".build/topodisk.tar", "file to write")
	architectures := flag.String("architectures", runtime.GOARCH, "architectures that the image is for, with commas between them")
	check := flag.Bool("check", false, "build it a second time and fail if a byte differs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := options{version: *version, revision: *revision, name: *name, out: *out, architectures: strings.Split(*architectures, ",")}
	digest, err := o.build(ctx)
	if err == nil && *check {
		err = o.checkAgainst(ctx, digest)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(digest, *out)
}

// options are the flags.
type options struct {
	version, revision, name, out string
	architectures                []string
}

// built is what the recipe's lines have made below a directory, for one architecture.
type built struct {
	architecture, work string
	recipe             *recipe
}

// build writes the archive and returns the digest of the image's index.
func (o options) build(ctx context.Context) (string, error) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		return "", fmt.Errorf("run this at the root of the repository: %w", err)
	}
	work, err := os.MkdirTemp("", "topodisk-image-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	var images []built
	for _, architecture := range o.architectures {
		image := built{architecture: architecture, work: filepath.Join(work, architecture)}
		if image.recipe, err = parse(string(text), map[string]string{
			"TARGETOS": "linux", "TARGETARCH": architecture, "VERSION": o.version, "REVISION": o.revision,
		}); err != nil {
			return "", err
		}
		if err := image.make(ctx, filepath.Join(filepath.Dir(o.out), "packages")); err != nil {
			return "", fmt.Errorf("%s: %w", architecture, err)
		}
		images = append(images, image)
	}
	digest, err := write(images, o.name, o.out)
	if err != nil {
		return "", err
	}
	list, err := bill(o.version, digest, filepath.Join("image", "packages"), work)
	if err != nil {
		return "", err
	}
	return digest, os.WriteFile(strings.TrimSuffix(o.out, ".tar")+".spdx.json", list, 0o644)
}

// make runs the recipe's lines, and looks whether what they have made can run.
func (b built) make(ctx context.Context, packages string) error {
	for _, line := range []string{b.recipe.rootfs(b.work, packages), b.recipe.goBuild(b.work)} {
		if err := run(ctx, line); err != nil {
			return err
		}
	}
	return b.runs()
}

// checkAgainst builds the image again and compares it with the one before.
func (o options) checkAgainst(ctx context.Context, digest string) error {
	o.out = filepath.Join(filepath.Dir(o.out), "again-"+filepath.Base(o.out))
	defer func() {
		_ = os.Remove(o.out)
		_ = os.Remove(strings.TrimSuffix(o.out, ".tar") + ".spdx.json")
	}()
	again, err := o.build(ctx)
	if err != nil {
		return err
	}
	if again != digest {
		return fmt.Errorf("two builds of the same differ: %s and %s", digest, again)
	}
	fmt.Fprintln(os.Stderr, "image: built twice, one digest")
	return nil
}

func run(ctx context.Context, line string) error {
	command := exec.CommandContext(ctx, "sh", "-ec", line)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
	}
	return nil
}
