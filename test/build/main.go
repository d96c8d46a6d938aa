// Build builds what the demo and the end-to-end tests run: Kubernetes' programs, once, topodisk's own, and the demo
// (.build/run/demo). The first time it takes about ten minutes on two cores and says how far it is. Names are what else it builds:
//
//	build nodes karpenter helm csi-provisioner race
//	build oldest                                  the programs of the oldest Kubernetes
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// also are the names of what is built besides.
var also = map[string]func(ctx context.Context, root string) error{
	"nodes": func(ctx context.Context, root string) error {
		_, err := programs.Default.BuildNodes(ctx, root, os.Stdout)
		return err
	},
	"oldest": func(ctx context.Context, root string) error {
		_, err := programs.Versions[0].Build(ctx, root, os.Stdout)
		return err
	},
	"karpenter": func(ctx context.Context, root string) error { return programs.BuildExplain(ctx, root, os.Stdout) },
	"helm": func(ctx context.Context, root string) error {
		_, err := programs.BuildHelm(ctx, root, os.Stdout)
		return err
	},
	"race": func(ctx context.Context, root string) error {
		_, err := programs.Default.BuildRace(ctx, root, os.Stdout)
		return err
	},
	"csi-provisioner": func(ctx context.Context, root string) error {
		_, err := programs.BuildUpstream(ctx, root, os.Stdout)
		return err
	},
}

func main() { programs.Main("build", build) }

func build(ctx context.Context, root string) (int, error) {
	names := os.Args[1:]
	for _, name := range names {
		if also[name] == nil {
			return 2, fmt.Errorf("%q is nothing that is built; allowed are nodes, karpenter, helm, csi-provisioner, race and oldest", name)
		}
	}
	if _, err := programs.Default.Build(ctx, root, os.Stdout); err != nil {
		return 1, err
	}
	for _, name := range names {
		if err := also[name](ctx, root); err != nil {
			return 1, err
		}
	}
	return 0, programs.BuildDemo(ctx, root, os.Stdout)
}
