// Build builds what the demo and the end-to-end tests run: Kubernetes' programs, once, topodisk's own, and the demo
// (.build/run/demo). The first time it takes about ten minutes on two cores and says how far it is.
package main

import (
	"context"
	"os"

	"github.com/topodisk/topodisk/test/command"
	"github.com/topodisk/topodisk/test/lab/programs"
)

func main() { command.Main("build", build) }

func build(ctx context.Context, root string) (int, error) {
	if _, err := programs.Default.Build(ctx, root, os.Stdout); err != nil {
		return 1, err
	}
	return 0, programs.BuildDemo(ctx, root, os.Stdout)
}
