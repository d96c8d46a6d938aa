package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// list returns the packages of patterns.
func list(ctx context.Context, patterns ...string) (all []goPackage, err error) {
	cmd := goCommand(ctx, append([]string{"list", "-json=ImportPath,Imports,TestImports,XTestImports"}, patterns...)...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

// imports says whether a package or its tests import one of the paths.
func (p goPackage) imports(paths ...string) bool {
	return slices.ContainsFunc(slices.Concat(p.Imports, p.TestImports, p.XTestImports), func(path string) bool { return slices.Contains(paths, path) })
}

// asksTheMachine says whether a package or its tests ask what the machine has.
func (p goPackage) asksTheMachine() bool { return p.imports(module + "/test/need") }

// pathsOf returns the paths of the packages that are wanted.
func pathsOf(packages []goPackage, wanted func(goPackage) bool) (paths []string) {
	for _, p := range packages {
		if wanted(p) {
			paths = append(paths, p.ImportPath)
		}
	}
	return paths
}
