package main

import (
	"archive/tar"
	"compress/gzip"
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

// writeTar writes a file, or a directory with everything in it, at a path of the archive. The order of the names, root as the
// owner and one time for all make the same files the same bytes.
func writeTar(to io.Writer, from, at string, modified time.Time) error {
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
		if name == "" || name == "." {
			return nil // the root itself
		}
		return addFile(w, &tar.Header{Name: name, ModTime: modified, Format: tar.FormatPAX}, file, entry)
	})
	return errors.Join(err, w.Close())
}

func addFile(w *tar.Writer, header *tar.Header, file string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, header.Name+"/", 0o755
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

// writeArchive writes a directory's content as a tar file, which gzip compresses if the name says so.
func writeArchive(out, from string, modified time.Time) (err error) {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if !strings.HasSuffix(out, "gz") {
		return writeTar(file, from, "", modified)
	}
	packed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(packed, from, "", modified), packed.Close())
}
