// Package images writes the container images that real nodes are given as an archive, for no registry has them.
package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
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

// What containerd reads of an archive as `docker save` writes it: manifest.json names for each image its configuration, an object of the
// OCI's image-spec (config.md), and its layers.
type (
	archived struct {
		Config   string
		RepoTags []string
		Layers   []string
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
)

// Write writes the images as one tar file.
func Write(path string, images []Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	archive := tar.NewWriter(f)
	var manifest []archived
	for _, i := range images {
		written, err := i.write(archive)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Names[0], err)
		}
		manifest = append(manifest, written)
	}
	text, err := json.Marshal(manifest)
	return errors.Join(err, addFile(archive, "manifest.json", 0o644, text), archive.Close())
}

// write adds the image's layer and configuration.
func (i Image) write(archive *tar.Writer) (a archived, err error) {
	layer, err := i.layer()
	if err != nil {
		return a, err
	}
	config := imageConfig{Architecture: runtime.GOARCH, OS: "linux"}
	config.Config.Entrypoint, config.Config.Cmd = i.Entrypoint, i.Command
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	config.RootFS.Type, config.RootFS.DiffIDs = "layers", []string{"sha256:" + digest(layer)}
	text, err := json.Marshal(config)
	if err != nil {
		return a, err
	}
	a = archived{Config: digest(text) + ".json", RepoTags: i.Names, Layers: []string{digest(layer) + ".tar"}}
	return a, errors.Join(addFile(archive, a.Layers[0], 0o644, layer), addFile(archive, a.Config, 0o644, text))
}

func digest(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

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

func addFile(archive *tar.Writer, name string, mode int64, content []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}
