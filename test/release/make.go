package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// release is a version under way: what is made goes below dist.
type release struct {
	source
	dist, work string
	started    time.Time
	notes      string               // in Markdown
	images     []resource           // as registries know them
	materials  map[string]component // of all artefacts
}

// makeRelease fills a directory with everything that a version is published as. It returns how many files there are, and
// by which key they are signed.
func makeRelease(ctx context.Context, args []string) (string, error) {
	r := release{started: time.Now(), materials: map[string]component{}}
	set, out := r.flags("make", "dist")
	key := set.String("key", "", "file of minisign's secret key; none leaves the release unsigned")
	password := set.String("password-file", "", "file with the key's password; none asks the terminal")
	trial := set.Bool("trial", false, "take the tree as it is, with what is not committed: for tests alone")
	_ = set.Parse(args) // it exits
	if err := errors.Join(checkVersion(r.version), checkDist(*out)); err != nil {
		return "", err
	}
	if !*trial {
		if err := errors.Join(checkTree(ctx), checkTagged(ctx, r.version)); err != nil {
			return "", err
		}
	}
	if err := r.readNotes(); err != nil {
		return "", err
	}
	sign, err := readKey(*key, *password)
	if err != nil {
		return "", err
	}
	if err := r.prepare(ctx); err != nil {
		return "", err
	}
	work, clean, err := makeWork("release")
	if err != nil {
		return "", err
	}
	defer clean()
	r.work = work
	r.dist = filepath.Join(r.work, "dist")
	if err := r.make(ctx, sign); err != nil {
		return "", err
	}
	count, err := replace(*out, r.dist)
	return fmt.Sprintf("%s: %d files, %s", *out, count, sign), err
}

// make makes the artefacts one after another, and then what is said of all of them.
func (r *release) make(ctx context.Context, sign signer) error {
	if err := os.Mkdir(r.dist, 0o755); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{r.addImage, r.addArchives, r.addSimulatorImage, r.addChart, r.addManifests, r.addNotes} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	stage("hashes, provenance and signatures")
	if err := writeSums(r.dist); err != nil {
		return err
	}
	provenance, err := r.prove(ctx)
	if err != nil {
		return err
	}
	return errors.Join(sign.sign(filepath.Join(r.dist, sums)), sign.sign(provenance))
}

// checkVersion accepts what can be a tag of an image and the version of a chart.
func checkVersion(version string) error {
	const allowed = "allowed is a semantic version without v and without build metadata, such as VERSION=0.2.0 or VERSION=0.2.0-rc.1"
	switch {
	case version == "":
		return fmt.Errorf("VERSION is missing: %s", allowed)
	case semver.Canonical("v"+version) != "v"+version:
		return fmt.Errorf("VERSION=%q: %s", version, allowed)
	}
	return nil
}

// checkTree fails unless everything is committed: the commit is what provenance names.
func checkTree(ctx context.Context) error {
	changed, err := output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the working tree has changes: allowed is one where git status shows none; commit or remove\n%s", changed)
	}
	return nil
}

// checkTagged fails if the version's tag is of another commit: what a version consists of never changes.
func checkTagged(ctx context.Context, version string) error {
	tags, err := output(ctx, "git", "tag", "--list", "v"+version)
	if err != nil || tags == "" {
		return err
	}
	tagged, err := output(ctx, "git", "rev-parse", "refs/tags/v"+version+"^{commit}")
	if err != nil {
		return err
	}
	head, err := output(ctx, "git", "rev-parse", "HEAD")
	if err == nil && head != tagged {
		err = fmt.Errorf("VERSION=%q: tag v%s is of commit %s, and this is %s: allowed is a version without a tag, or the tagged commit", version, version, tagged, head)
	}
	return err
}

// checkDist accepts a directory that is not there, is empty or has an earlier release, which the new one replaces.
func checkDist(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("-out=%q: allowed is a directory: %w", dir, err)
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == sums }) {
		return fmt.Errorf("-out=%q: allowed is a directory that is not there, is empty or has an earlier release (%s)", dir, sums)
	}
	return nil
}

// replace puts what was made in the place of what is there, and returns the number of files. Whenever it is killed, the
// directory has all of one release or is not there.
func replace(dir, made string) (int, error) {
	entries, err := os.ReadDir(made)
	if err != nil {
		return 0, err
	}
	next, former := dir+".next", dir+".former"
	if err := errors.Join(os.RemoveAll(next), os.RemoveAll(former)); err != nil {
		return 0, err
	}
	if err := os.CopyFS(next, os.DirFS(made)); err != nil {
		return 0, err
	}
	if err := os.Rename(dir, former); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	return len(entries), errors.Join(os.Rename(next, dir), os.RemoveAll(former))
}

// addImage makes the image of both programs.
func (r *release) addImage(ctx context.Context) error {
	work, out := filepath.Join(r.work, "image"), filepath.Join(r.dist, "topodisk-"+r.version+".oci.tar")
	digest, err := r.buildImage(ctx, work, r.version, out)
	if err != nil {
		return err
	}
	r.images = append(r.images, imageResource(imageName+":"+r.version, digest))
	return r.list(out, "CONTAINER", imagePrograms(work), imageRoots(work))
}

// list writes what an artefact is made of, and remembers it.
func (r *release) list(artefact, purpose, programs, roots string) error {
	made, err := components(programs, roots)
	if err != nil {
		return err
	}
	for purl, c := range made {
		r.materials[purl] = c
	}
	return r.describe(artefact, artefact+".spdx.json", purpose, made)
}

// addArchives makes the archives of the programs that people run on their own machines.
func (r *release) addArchives(ctx context.Context) error {
	return errors.Join(r.addArchivesOf(ctx, "kubectl-topodisk", "PLUGIN=1"), r.addArchivesOf(ctx, "ecs-simulator", "SIMULATOR=1"))
}

// addArchivesOf makes an archive of a program for every platform, with the licence, as krew wants it. The variable of make
// build selects the program.
func (r *release) addArchivesOf(ctx context.Context, name, variable string) error {
	bin := filepath.Join(r.work, "bin")
	stage("%s for %s, on Linux and macOS", name, strings.Join(r.architectures, " and "))
	if err := run(ctx, "make", "--no-print-directory", "build", variable, "BIN="+bin, "VERSION="+r.version, "REVISION="+r.commit,
		"ARCHITECTURES="+strings.Join(r.architectures, ",")); err != nil {
		return err
	}
	programs, err := filepath.Glob(filepath.Join(bin, name+"-*"))
	if err != nil || len(programs) != 2*len(r.architectures) {
		return fmt.Errorf("make build %s made %q: %w", variable, programs, err)
	}
	for _, program := range programs {
		platform := strings.ReplaceAll(strings.TrimPrefix(filepath.Base(program), name+"-"), "-", "_")
		dir := filepath.Join(r.work, name, platform)
		err := errors.Join(copyFile(program, filepath.Join(dir, name)), copyFile("LICENSE", filepath.Join(dir, "LICENSE")))
		if err != nil {
			return err
		}
		out := filepath.Join(r.dist, fmt.Sprintf("%s_v%s_%s.tar.gz", name, r.version, platform))
		if err := writeArchive(out, dir, r.time); err != nil {
			return err
		}
		if err := r.list(out, "APPLICATION", program, ""); err != nil {
			return err
		}
	}
	return nil
}

// addSimulatorImage makes an image of the programs that the archives of ecs-simulator for Linux have.
func (r *release) addSimulatorImage(context.Context) error {
	stage("the image of ecs-simulator")
	var images []built
	for _, architecture := range r.architectures {
		images = append(images, built{architecture: architecture, work: r.work, recipe: r.simulatorRecipe(architecture)})
	}
	index, err := r.index(images)
	if err != nil {
		return err
	}
	out := filepath.Join(r.dist, "ecs-simulator-"+r.version+".oci.tar")
	digest, err := r.writeImage(index, filepath.Join(r.work, "simulator"), simulatorName, r.version, out)
	if err != nil {
		return err
	}
	r.images = append(r.images, imageResource(simulatorName+":"+r.version, digest))
	return r.list(out, "CONTAINER", filepath.Join(r.work, "bin", "ecs-simulator-linux-*"), "")
}

// simulatorRecipe says what the image of ecs-simulator has: the program, which needs no file.
func (s source) simulatorRecipe(architecture string) *recipe {
	return &recipe{
		labels: map[string]string{
			"org.opencontainers.image.title": "ecs-simulator", "org.opencontainers.image.description": "A simulated Alibaba Cloud ECS",
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": repository,
			"org.opencontainers.image.version": s.version, "org.opencontainers.image.revision": s.commit,
		},
		user: "65532:65532", command: []string{"/ecs-simulator"},
		copies: []copied{{from: "bin/ecs-simulator-linux-" + architecture, to: "/ecs-simulator"}},
	}
}

// copyFile copies a file with its mode to a directory that need not exist.
func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, info.Mode().Perm()))
}
