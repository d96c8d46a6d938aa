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
	var manifest []archived
	if err := json.Unmarshal(files["manifest.json"].Bytes(), &manifest); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, image := range manifest {
		names = append(names, image.RepoTags...)
		var config imageConfig
		if err := json.Unmarshal(files[image.Config].Bytes(), &config); err != nil {
			t.Fatal(err)
		}
		layer := fmt.Sprintf("sha256:%x", sha256.Sum256(files[image.Layers[0]].Bytes()))
		if !slices.Equal(config.RootFS.DiffIDs, []string{layer}) || len(config.Config.Entrypoint) != 1 {
			t.Errorf("configuration %+v of %v, whose layer is %s", config, image.RepoTags, layer)
		}
	}
	if want := []string{"example.com/one:1", "example.com/uno:1", "example.com/pause:1"}; !slices.Equal(names, want) {
		t.Errorf("names are %v, want %v", names, want)
	}
	layer := unpack(t, files[manifest[0].Layers[0]])
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
