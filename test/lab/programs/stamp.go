package programs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const stampFile = "built-from"

// stamp says what programs were built from. Programs with the same stamp need no new build.
type stamp string

func readStamp(ctx context.Context, module string, packages []string) (stamp, error) {
	version, err := goVersion(ctx, module)
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return "", err
	}
	return makeStamp(version, packages, mod, sum), nil
}

// makeStamp is a digest in which every part has its length before it, so that no two inputs run together.
func makeStamp(goVersion string, packages []string, mod, sum []byte) stamp {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d\n", goVersion, packages, len(mod))
	h.Write(mod)
	h.Write(sum)
	return stamp(hex.EncodeToString(h.Sum(nil)))
}

// matches reports whether dir holds the program of every package, built from the same.
func (s stamp) matches(dir string, packages []string) bool {
	written, err := os.ReadFile(filepath.Join(dir, stampFile))
	if err != nil || string(written) != string(s) {
		return false
	}
	for _, pkg := range packages {
		if _, err := os.Stat(filepath.Join(dir, programName(pkg))); err != nil {
			return false
		}
	}
	return true
}

// clear makes a build that is broken off count as none.
func (stamp) clear(dir string) error {
	err := os.Remove(filepath.Join(dir, stampFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (s stamp) write(dir string) error {
	return os.WriteFile(filepath.Join(dir, stampFile), []byte(s), 0o644)
}
