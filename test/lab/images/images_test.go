package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unpack reads a tar file.
func unpack(t *testing.T, archive io.Reader) map[string]*bytes.Buffer {
	t.Helper()
	files := map[string]*bytes.Buffer{}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content := &bytes.Buffer{}
		if _, err := io.Copy(content, r); err != nil {
			t.Fatal(err)
		}
		files[header.Name] = content
	}
}

func TestImagesAreWholeAndHaveTheirNames(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	one := Image{Names: []string{"example.com/one:1", "example.com/uno:1"},
		Files: []File{{Path: "bin/"}, {Path: "bin/x", From: program}, {Path: "bin/y", Target: "x"}}, Entrypoint: []string{"/bin/y"}}
	path := filepath.Join(dir, "images.tar")
	if err := Write(path, []Image{one, Pause(program, "example.com/pause:1")}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := unpack(t, f)
	blob := func(d descriptor, into any) []byte {
		t.Helper()
		content := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if content == nil || int64(content.Len()) != d.Size || fmt.Sprintf("sha256:%x", sha256.Sum256(content.Bytes())) != d.Digest {
			t.Fatalf("%+v is not what the archive holds", d)
		}
		if into != nil {
			if err := json.Unmarshal(content.Bytes(), into); err != nil {
				t.Fatal(err)
			}
		}
		return content.Bytes()
	}
	var index imageIndex
	if err := json.Unmarshal(files["index.json"].Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range index.Manifests {
		names = append(names, d.Annotations["io.containerd.image.name"])
		var manifest imageManifest
		var config imageConfig
		blob(d, &manifest)
		blob(manifest.Config, &config)
		blob(manifest.Layers[0], nil)
		if !slices.Equal(config.RootFS.DiffIDs, []string{manifest.Layers[0].Digest}) || len(config.Config.Entrypoint) != 1 {
			t.Errorf("configuration %+v of %s", config, names[len(names)-1])
		}
	}
	if want := []string{"example.com/one:1", "example.com/uno:1", "example.com/pause:1"}; !slices.Equal(names, want) {
		t.Errorf("names are %v, want %v", names, want)
	}
	var manifest imageManifest
	blob(index.Manifests[0], &manifest)
	layer := unpack(t, bytes.NewReader(blob(manifest.Layers[0], nil)))
	if layer["bin/x"].String() != "#!/bin/true\n" || layer["bin/"] == nil || layer["bin/y"] == nil {
		t.Errorf("the layer holds %v", layer)
	}
}

func TestImageOfAFileThatIsNotThereIsAnError(t *testing.T) {
	err := Write(filepath.Join(t.TempDir(), "images.tar"), []Image{Pause("/no/such/program", "example.com/pause:1")})
	if err == nil || !strings.Contains(err.Error(), "example.com/pause:1") || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("got %v", err)
	}
}

func TestSidecarsAreNamedByTheManifest(t *testing.T) {
	manifest := []byte("  - image: ours/driver:1\n  - image: \"k8s.io/csi-attacher:v4\"\n    image: k8s.io/csi-attacher:v4\n")
	all, err := Sidecars(manifest, "ours/driver", "/built")
	if err != nil || len(all) != 1 || all[0].Names[0] != "k8s.io/csi-attacher:v4" || all[0].Files[0].From != "/built/csi-attacher" {
		t.Errorf("sidecars are %v, %v", all, err)
	}
	if all, err := Sidecars(manifest, "", "/built"); err == nil {
		t.Errorf("of none but ours, sidecars are %v", all)
	}
}
