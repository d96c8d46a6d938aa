// Package images writes the container images that real nodes are given as an archive, for no registry has them.
package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Names of images that every real node has.
const (
	PauseName = "topodisk.io/lab/pause:1"
	// ShellName holds Debian's busybox, and a shell that waits as its command.
	ShellName = "topodisk.io/lab/busybox:1"
)

// busybox is where Debian's package busybox-static has its program.
const busybox = "/bin/busybox"

// Image is a container image of one layer.
type Image struct {
	Names      []string
	Files      []File
	Entrypoint []string
	Command    []string
}

// File is a file of an image: a directory if its path ends in /, a link if it has a target, else an executable
// copy of a file of the host.
type File struct{ Path, Target, From string }

// Shell is an image of busybox. Its command waits for SIGTERM.
func Shell() (Image, error) {
	shell := Image{Names: []string{ShellName}, Command: []string{"sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"}}
	for _, dir := range []string{"bin/", "sbin/", "etc/", "root/", "tmp/", "usr/", "var/", "mnt/"} {
		shell.Files = append(shell.Files, File{Path: dir})
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return shell, fmt.Errorf("list what busybox can do (Debian's package busybox-static): %w", err)
	}
	shell.Files = append(shell.Files, File{Path: "bin/busybox", From: busybox})
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			shell.Files = append(shell.Files, File{Path: "bin/" + applet, Target: "busybox"})
		}
	}
	return shell, nil
}

// Pause is an image of the program that is the first in a Pod.
func Pause(nodeInit, name string) Image {
	return Image{Names: []string{name}, Files: []File{{Path: "pause", From: nodeInit}}, Entrypoint: []string{"/pause"}}
}

// imageLine is the line of an image in a manifest.
var imageLine = regexp.MustCompile(`(?m)^\s*image:\s*"?([^"\s]+)"?\s*$`)

// Sidecars are the images that a manifest names, but for those whose names begin with own: each of the program of its name in a
// directory.
func Sidecars(manifest []byte, own, programs string) (all []Image, err error) {
	var names []string
	for _, match := range imageLine.FindAllSubmatch(manifest, -1) {
		if name := string(match[1]); !strings.HasPrefix(name, own) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		program, _, _ := strings.Cut(path.Base(name), ":")
		all = append(all, Image{
			Names: []string{name}, Entrypoint: []string{"/" + program}, Files: []File{{Path: program, From: filepath.Join(programs, program)}},
		})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no sidecar is named:\n%s", manifest)
	}
	return all, nil
}

// The parts of an OCI image that containerd reads (opencontainers/image-spec: image-layout.md, config.md, manifest.md).
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int64             `json:"size"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	imageManifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}
	imageConfig struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
		Config       struct {
			Entrypoint []string `json:"Entrypoint,omitempty"`
			Cmd        []string `json:"Cmd,omitempty"`
			Env        []string `json:"Env"`
		} `json:"config"`
		RootFS struct {
			Type    string   `json:"type"`
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	imageIndex struct {
		SchemaVersion int          `json:"schemaVersion"`
		Manifests     []descriptor `json:"manifests"`
	}
)

const (
	layerType    = "application/vnd.oci.image.layer.v1.tar"
	configType   = "application/vnd.oci.image.config.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
)

// Write writes an OCI layout of the images as one tar file.
func Write(path string, images []Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	archive := tar.NewWriter(f)
	index := imageIndex{SchemaVersion: 2}
	for _, i := range images {
		manifest, err := i.write(archive)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Names[0], err)
		}
		for _, name := range i.Names {
			manifest.Annotations = map[string]string{"io.containerd.image.name": name}
			index.Manifests = append(index.Manifests, manifest)
		}
	}
	for name, object := range map[string]any{"index.json": index, "oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"}} {
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		if err := addFile(archive, name, 0o644, text); err != nil {
			return err
		}
	}
	return archive.Close()
}

// write adds the image's layer, configuration and manifest, and returns what stands for it in an index.
func (i Image) write(archive *tar.Writer) (d descriptor, err error) {
	layer, err := i.layer()
	if err != nil {
		return d, err
	}
	first, err := addBlob(archive, layerType, layer)
	if err != nil {
		return d, err
	}
	config := imageConfig{Architecture: runtime.GOARCH, OS: "linux"}
	config.Config.Entrypoint, config.Config.Cmd = i.Entrypoint, i.Command
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	config.RootFS.Type, config.RootFS.DiffIDs = "layers", []string{first.Digest}
	second, err := addJSON(archive, configType, config)
	if err != nil {
		return d, err
	}
	return addJSON(archive, manifestType, imageManifest{SchemaVersion: 2, MediaType: manifestType, Config: second, Layers: []descriptor{first}})
}

func (i Image) layer() ([]byte, error) {
	var buffer bytes.Buffer
	layer := tar.NewWriter(&buffer)
	for _, file := range i.Files {
		var err error
		switch {
		case strings.HasSuffix(file.Path, "/"):
			err = layer.WriteHeader(&tar.Header{Name: file.Path, Typeflag: tar.TypeDir, Mode: 0o1777})
		case file.Target != "":
			err = layer.WriteHeader(&tar.Header{Name: file.Path, Typeflag: tar.TypeSymlink, Linkname: file.Target, Mode: 0o777})
		default:
			var content []byte
			if content, err = os.ReadFile(file.From); err == nil {
				err = addFile(layer, file.Path, 0o755, content)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	err := layer.Close()
	return buffer.Bytes(), err
}

func addJSON(archive *tar.Writer, mediaType string, object any) (d descriptor, err error) {
	text, err := json.Marshal(object)
	if err != nil {
		return d, err
	}
	return addBlob(archive, mediaType, text)
}

func addBlob(archive *tar.Writer, mediaType string, content []byte) (descriptor, error) {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: int64(len(content))}
	return d, addFile(archive, "blobs/sha256/"+sum, 0o644, content)
}

func addFile(archive *tar.Writer, name string, mode int64, content []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}
