package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Media types of the OCI image format (opencontainers/image-spec v1.1).
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type config struct {
	platform
	Created time.Time `json:"created"`
	Config  struct {
		User       string
		Env        []string
		Entrypoint []string
		Labels     map[string]string
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// epoch is the time of every file, so that the same files are the same bytes.
var epoch = time.Unix(0, 0).UTC()

// write makes the archive of an image from what the recipe's lines have made below work. Each COPY is a layer.
func write(r *recipe, work, name, out string) (string, error) {
	blobs := map[string][]byte{}
	add := func(mediaType string, content []byte) descriptor {
		digest := "sha256:" + fmt.Sprintf("%x", sha256.Sum256(content))
		blobs[digest] = content
		return descriptor{MediaType: mediaType, Digest: digest, Size: int64(len(content))}
	}
	var c config
	c.platform = platform{Architecture: runtime.GOARCH, OS: "linux"}
	c.Created = epoch
	c.Config.User, c.Config.Env, c.Config.Entrypoint, c.Config.Labels = r.user, r.env, r.command, r.labels
	c.RootFS.Type = "layers"
	m := manifest{SchemaVersion: 2, MediaType: typeManifest}
	for _, from := range r.copies {
		var plain bytes.Buffer
		if err := layer(&plain, filepath.Join(work, from.from), from.to); err != nil {
			return "", fmt.Errorf("copy %s to %s: %w", from.from, from.to, err)
		}
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, "sha256:"+fmt.Sprintf("%x", sha256.Sum256(plain.Bytes())))
		packed, err := pack(plain.Bytes())
		if err != nil {
			return "", err
		}
		m.Layers = append(m.Layers, add(typeLayer, packed))
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	m.Config = add(typeConfig, text)
	if text, err = json.Marshal(m); err != nil {
		return "", err
	}
	top := add(typeManifest, text)
	top.Platform = &c.platform
	top.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name[strings.LastIndexByte(name, ':')+1:]}
	text, err = json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top}})
	if err != nil {
		return "", err
	}
	return top.Digest, archive(out, text, blobs, append(m.Layers, m.Config, top))
}

// archive writes an OCI image layout as one tar file.
func archive(out string, index []byte, blobs map[string][]byte, order []descriptor) (err error) {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := tar.NewWriter(file)
	put := func(name string, content []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: epoch, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	if err := errors.Join(put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)), put("index.json", index)); err != nil {
		return err
	}
	for _, d := range order {
		if err := put("blobs/"+strings.Replace(d.Digest, ":", "/", 1), blobs[d.Digest]); err != nil {
			return err
		}
	}
	return w.Close()
}

// layer writes a file or a directory with everything in it, in the order of the names, owned by root.
func layer(to io.Writer, from, at string) error {
	w := tar.NewWriter(to)
	err := filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Join(at, below), "/")
		if name == "" {
			return nil // the root itself
		}
		return add(w, name, file, entry)
	})
	return errors.Join(err, w.Close())
}

func add(w *tar.Writer, name, file string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: epoch, Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, name+"/", 0o755
		return w.WriteHeader(header)
	case info.Mode()&fs.ModeSymlink != 0:
		header.Typeflag, header.Mode = tar.TypeSymlink, 0o777
		if header.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
		return w.WriteHeader(header)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a directory nor a link", file)
	}
	if header.Mode = 0o644; info.Mode()&0o111 != 0 {
		header.Mode = 0o755
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	content, err := os.Open(file)
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(w, content)
	return err
}

func pack(plain []byte) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
