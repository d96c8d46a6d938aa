// Versions runs topodisk on several versions of Kubernetes, each built from source: the demo, the end-to-end tests and a
// part of Kubernetes' own tests of storage. It needs root, as real nodes do.
//
//	versions -kube 1.33,1.37 [-suites demo,e2e,storage]     and keeps the results, of which docs/compatibility.md is made
//	versions -kube ci                                       the oldest, and keeps nothing
//	versions -page                                          only writes the page
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// Paths from the root of the checkout.
const (
	resultsPath = "test/versions/results.json"
	pagePath    = "docs/compatibility.md"
)

func main() {
	kube := flag.String("kube", "", "`VERSIONS` of Kubernetes, separated by commas, of "+programs.Allowed()+"; or "+inCI)
	which := flag.String("suites", "demo,e2e,storage", "`SUITES` to run on each, separated by commas")
	page := flag.Bool("page", false, "write "+pagePath+" from the results that there are, and do nothing else")
	flag.Parse()
	programs.Main("versions", func(ctx context.Context, root string) (int, error) { return 0, run(ctx, root, *kube, *which, *page) })
}

func run(ctx context.Context, root, kube, which string, page bool) error {
	if page {
		return writePage(root)
	}
	commit, err := programs.Commit(ctx, root, resultsPath, pagePath) // before the results, which are a part of the source, change
	if err != nil {
		return err
	}
	versions, err := choose(kube)
	if err != nil {
		return err
	}
	chosen, err := chooseSuites(which)
	if err != nil {
		return err
	}
	var failed error
	for _, v := range versions {
		for _, s := range chosen {
			got, err := runSuite(ctx, root, v, s)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			fmt.Printf("Kubernetes %s: %s: %s in %.0f minutes\n", v, s.title, got.summary(), got.Minutes)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("kubernetes %s: %s: %w", v, s.title, err))
			}
			if kube == inCI {
				continue // which leaves its checkout as it is
			}
			if err := save(ctx, root, v, s, commit, got); err != nil {
				return err
			}
		}
	}
	if kube != inCI {
		failed = errors.Join(failed, writePage(root))
	}
	return failed
}

// writePage makes the page from the results.
func writePage(root string) error {
	text, err := render(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, pagePath), []byte(text), 0o644)
}
