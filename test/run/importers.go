package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// runWithImporters vets packages and all that import them, so that these build, and runs the tests of the packages, and then those of the
// packages that import them, as far as they end within a time that begins with the first test. It leaves out the tests of importing packages
// that ask what the machine has, for they wait for disks.
func runWithImporters(ctx context.Context, patterns []string, within time.Duration, out io.Writer) (*results, error) {
	packages, err := list(ctx, patterns...)
	if err != nil {
		return nil, err
	}
	all, err := list(ctx, "./...")
	if err != nil {
		return nil, err
	}
	named := pathsOf(packages, func(goPackage) bool { return true })
	importers := importersOf(named, all)
	importing := pathsOf(importers, func(p goPackage) bool { return !p.asksTheMachine() })
	fmt.Fprintf(out, "go vet, with the packages that import it: %d\n", len(importers))
	vet := append([]string{"vet"}, named...)
	for _, p := range importers {
		vet = append(vet, p.ImportPath)
	}
	if err := goCommand(ctx, vet...).Run(); err != nil {
		return nil, fmt.Errorf("go vet: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := run(ctx, named, out)
	if err != nil || len(importing) == 0 {
		return r, err
	}
	fmt.Fprintln(out, r)
	fmt.Fprintln(out, "tests of packages that import it:", short(importing))
	r, err = run(limited, importing, out)
	if limited.Err() == nil || ctx.Err() != nil {
		return r, err
	}
	r = cmp.Or(r, &results{})
	left := slices.DeleteFunc(importing, func(path string) bool { return r.passed[path] || r.broken[path] })
	fmt.Fprintf(out, "not run, for %v are over; make test PACKAGES=\"%s\" runs them\n", within, short(left))
	if r.failed > 0 || len(r.broken) > 0 {
		return r, err
	}
	return r, nil
}

// importersOf returns those of all packages that import one of the paths, or whose tests do.
func importersOf(paths []string, all []goPackage) (importers []goPackage) {
	for _, p := range all {
		if p.imports(paths...) && !slices.Contains(paths, p.ImportPath) {
			importers = append(importers, p)
		}
	}
	return importers
}

// short are packages as they are named in the checkout.
func short(paths []string) string { return strings.ReplaceAll(strings.Join(paths, " "), module, ".") }
