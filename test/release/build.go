package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageName is what the chart's examples and deploy/topodisk.yaml call the image.
const imageName = "registry.example.com/storage/topodisk"

// simulatorName is the name of ecs-simulator's image.
const simulatorName = "registry.example.com/storage/ecs-simulator"

// built is what the recipe's lines have made below a directory, for one architecture: rootfs/ and out/.
type built struct {
	architecture, work string
	recipe             *recipe
}

// buildImage makes what the Dockerfile says below a directory, for every architecture, and writes it as an OCI archive. It
// returns the digest of the image's index, by which registries know it.
func (s source) buildImage(ctx context.Context, work, tag, out string) (digest string, err error) {
	var images []built
	for _, architecture := range s.architectures {
		image := built{architecture: architecture, work: filepath.Join(work, architecture)}
		if image.recipe, err = s.readRecipe(architecture); err != nil {
			return "", err
		}
		if err := image.make(ctx, s.packages); err != nil {
			return "", fmt.Errorf("%s: %w", architecture, err)
		}
		images = append(images, image)
	}
	index, err := s.index(images)
	if err != nil {
		return "", err
	}
	stage("the image of %s", strings.Join(s.architectures, " and "))
	return s.writeImage(index, filepath.Join(work, "layout"), imageName, tag, out)
}

// make runs the recipe's lines, and looks whether what they have made can run.
func (b built) make(ctx context.Context, packages string) error {
	stage("programs of file systems for %s, from Debian's packages", b.architecture)
	if err := run(ctx, "sh", "-ec", b.recipe.rootfs(b.work, packages)); err != nil {
		return err
	}
	stage("disk-driver and disk-provisioner for %s: some minutes where they were not compiled before", b.architecture)
	if err := run(ctx, "sh", "-ec", b.recipe.goBuild(b.work)); err != nil {
		return err
	}
	return b.runs()
}

// index leads to the image of every architecture.
func (s source) index(images []built) (v1.ImageIndex, error) {
	var index v1.ImageIndex = empty.Index
	for _, of := range images {
		image, err := s.image(of)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.architecture, err)
		}
		platform := &v1.Platform{OS: "linux", Architecture: of.architecture}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

// image has a layer for each COPY of the recipe.
func (s source) image(of built) (v1.Image, error) {
	created := v1.Time{Time: s.time}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: "linux", Architecture: of.architecture, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: of.recipe.user, Env: of.recipe.env, Entrypoint: of.recipe.command, Labels: of.recipe.labels},
	})
	for _, from := range of.recipe.copies {
		if err != nil {
			return nil, err
		}
		var content bytes.Buffer
		if err := writeTar(&content, filepath.Join(of.work, from.from), from.to, s.time); err != nil {
			return nil, fmt.Errorf("copy %s to %s: %w", from.from, from.to, err)
		}
		layer, failed := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil },
			tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
		if failed != nil {
			return nil, failed
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: layer, History: v1.History{Created: created, CreatedBy: "COPY " + from.from + " " + from.to},
		})
	}
	return image, err
}

// writeImage writes an OCI image layout to a directory, and that as one tar file.
func (s source) writeImage(index v1.ImageIndex, dir, name, tag, out string) (digest string, err error) {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name": name + ":" + tag, "org.opencontainers.image.ref.name": tag,
	})); err != nil {
		return "", err
	}
	hash, err := index.Digest()
	if err != nil {
		return "", err
	}
	return hash.String(), writeArchive(out, dir, s.time)
}

// checkImage builds the image again, below another directory, and fails if its digest is another.
func (s source) checkImage(ctx context.Context, work, digest string) error {
	stage("the same again")
	again, err := s.buildImage(ctx, work, "dev", filepath.Join(work, "again.tar"))
	if err != nil {
		return err
	}
	if again != digest {
		return fmt.Errorf("two builds of the same differ: %s and %s", digest, again)
	}
	stage("built twice, one digest")
	return nil
}

// readRecipe reads the Dockerfile with the values for an architecture.
func (s source) readRecipe(architecture string) (*recipe, error) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		return nil, fmt.Errorf("run this at the root of the repository: %w", err)
	}
	return parse(string(text), map[string]string{
		"TARGETOS": "linux", "TARGETARCH": architecture, "VERSION": s.version, "REVISION": s.commit,
	})
}

// imagePrograms and imageRoots are what buildImage leaves below its directory.
func imagePrograms(work string) string { return filepath.Join(work, "*", "out", "*") }

func imageRoots(work string) string { return filepath.Join(work, "*", "rootfs") }
