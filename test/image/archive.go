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

// blobs are the contents of an archive in the order in which they were added, each once.
type blobs struct {
	order []string // digests
	by    map[string][]byte
}

func (b *blobs) add(mediaType string, content []byte) descriptor {
	digest := "sha256:" + fmt.Sprintf("%x", sha256.Sum256(content))
	if _, known := b.by[digest]; !known {
		b.order = append(b.order, digest)
		b.by[digest] = content
	}
	return descriptor{MediaType: mediaType, Digest: digest, Size: int64(len(content))}
}

func (b *blobs) addJSON(mediaType string, object any) (descriptor, error) {
	text, err := json.Marshal(object)
	return b.add(mediaType, text), err
}

// write makes the archive of an image for every architecture that was built, and returns the digest of the index that all of
// them are found by.
func write(images []built, name, out string) (string, error) {
	all := &blobs{by: map[string][]byte{}}
	list := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, image := range images {
		of, err := image.write(all)
		if err != nil {
			return "", fmt.Errorf("%s: %w", image.architecture, err)
		}
		list.Manifests = append(list.Manifests, of)
	}
	top, err := all.addJSON(typeIndex, list)
	if err != nil {
		return "", err
	}
	top.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name[strings.LastIndexByte(name, ':')+1:]}
	text, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top}})
	if err != nil {
		return "", err
	}
	return top.Digest, archive(out, text, all)
}

// write adds an image of what the recipe's lines have made. Each COPY is a layer.
func (b built) write(to *blobs) (of descriptor, err error) {
	r := b.recipe
	var c config
	c.platform = platform{Architecture: b.architecture, OS: "linux"}
	c.Created = epoch
	c.Config.User, c.Config.Env, c.Config.Entrypoint, c.Config.Labels = r.user, r.env, r.command, r.labels
	c.RootFS.Type = "layers"
	m := manifest{SchemaVersion: 2, MediaType: typeManifest}
	for _, from := range r.copies {
		var plain bytes.Buffer
		if err := layer(&plain, filepath.Join(b.work, from.from), from.to); err != nil {
			return of, fmt.Errorf("copy %s to %s: %w", from.from, from.to, err)
		}
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, "sha256:"+fmt.Sprintf("%x", sha256.Sum256(plain.Bytes())))
		packed, err := pack(plain.Bytes())
		if err != nil {
			return of, err
		}
		m.Layers = append(m.Layers, to.add(typeLayer, packed))
	}
	if m.Config, err = to.addJSON(typeConfig, c); err != nil {
		return of, err
	}
	of, err = to.addJSON(typeManifest, m)
	of.Platform = &c.platform
	return of, err
}

// archive writes an OCI image layout as one tar file.
func archive(out string, index []byte, all *blobs) (err error) {
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
	for _, digest := range all.order {
		if err := put("blobs/"+strings.Replace(digest, ":", "/", 1), all.by[digest]); err != nil {
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
