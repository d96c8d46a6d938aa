package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// machines are the architectures that an image can be for, as programs name them.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// runs returns an error unless every program and library is of the architecture, and finds in the image what it loads.
func (b built) runs() error {
	machine, known := machines[b.architecture]
	if !known {
		return fmt.Errorf("architecture %q is not known; allowed are amd64 and arm64", b.architecture)
	}
	libraries, err := filepath.Glob(filepath.Join(b.work, "rootfs", "usr", "lib", "*", "*.so*"))
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for _, library := range libraries {
		has[filepath.Base(library)] = true
	}
	var problems []error
	err = filepath.WalkDir(b.work, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		loads, is, err := loaded(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if is != elf.EM_NONE && is != machine {
			problems = append(problems, fmt.Errorf("%s is of %v, want %v", path, is, machine))
		}
		for _, name := range loads {
			if _, err := os.Lstat(filepath.Join(b.work, "rootfs", "usr", name)); !has[name] && err != nil {
				problems = append(problems, fmt.Errorf("%s loads %s, which the image lacks", path, name))
			}
		}
		return nil
	})
	return errors.Join(append(problems, err)...)
}

// loaded are the libraries that a program or a library names, and the path of the loader that a program asks for. Of other
// files the machine is none.
func loaded(path string) (names []string, of elf.Machine, err error) {
	file, err := elf.Open(path)
	if errors.As(err, new(*elf.FormatError)) || errors.Is(err, io.EOF) {
		return nil, elf.EM_NONE, nil
	}
	if err != nil {
		return nil, elf.EM_NONE, err
	}
	defer func() { _ = file.Close() }()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			loader, err := io.ReadAll(segment.Open())
			if err != nil {
				return nil, elf.EM_NONE, err
			}
			names = append(names, strings.TrimRight(string(loader), "\x00"))
		}
	}
	libraries, err := file.ImportedLibraries()
	return append(names, libraries...), file.Machine, err
}
