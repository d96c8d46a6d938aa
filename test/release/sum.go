package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sums is the file that sha256sum --check reads.
const sums = "SHA256SUMS"

// writeSums lists every file of a directory in the order of the names.
func writeSums(dir string) error {
	hashes, err := hashFiles(dir)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, file := range hashes {
		fmt.Fprintf(&list, "%s  %s\n", file.hash, file.name)
	}
	return os.WriteFile(filepath.Join(dir, sums), []byte(list.String()), 0o644)
}

// hashed is a file by its name in a directory, with its SHA-256 in hexadecimal digits.
type hashed struct{ name, hash string }

func hashFiles(dir string) (all []hashed, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		hash, err := hashFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, hashed{entry.Name(), hash})
	}
	return all, nil
}

func hashFile(path string) (string, error) {
	content, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}
