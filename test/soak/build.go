package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/topodisk/topodisk/test/lab/images"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// The image of the tree as it is, under the name that the documentation has for it, as the release builds it alone.
const (
	imageName    = "registry.example.com/storage/topodisk"
	imageTag     = "dev"
	imageVersion = "0.2.0"
)

func imageFile(root string) string { return filepath.Join(root, ".build", "soak-image.tar") }

// build builds what the lab runs, helm, and the image that the chart installs.
func build(ctx context.Context, root string) error {
	if _, err := programs.Default.BuildNodes(ctx, root, os.Stderr); err != nil {
		return err
	}
	if _, err := programs.BuildHelm(ctx, root, os.Stderr); err != nil {
		return err
	}
	release := filepath.Join(root, ".build", "run", "release")
	return programs.RunAll(ctx, root, os.Stderr,
		[]string{"go", "-C", "test/release", "build", "-o", release, "."},
		[]string{release, "image", "-version", imageVersion, "-architectures", runtime.GOARCH, "-out", imageFile(root)})
}

// values are what helm is told. File systems are XFS, which grow while they are mounted on machines without CAP_SYS_RESOURCE, too.
func values(ecs string) string {
	return fmt.Sprintf(`region: cn-hangzhou
image: {repository: %s, tag: %s}
credentials: {existingSecret: %s}
ecsEndpoint: %q
csiSnapshotter: {enabled: true}
storageClasses:
- {name: %s, parameters: {type: cloud_essd, csi.storage.k8s.io/fstype: xfs}}
- {name: %s, volumeBindingMode: Immediate, parameters: {type: cloud_essd}}
`, imageName, imageTag, secretName, ecs, className, immediateClass)
}

// sidecarImages are images of the sidecars that the lab has built, under the names that the chart has for them.
func sidecarImages(ctx context.Context, root string) ([]images.Image, error) {
	text, err := programs.RenderChart(ctx, root, chart(root), values("http://unused"))
	if err != nil {
		return nil, err
	}
	return images.Sidecars(text, imageName, programs.Default.BuiltNodes(root).Sidecars)
}

func chart(root string) string { return filepath.Join(root, "charts", "topodisk") }
