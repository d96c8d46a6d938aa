// Build builds what the demo and the end-to-end tests run: Kubernetes' programs, once, topodisk's own, and the demo
// (.build/run/demo). The first time it takes about ten minutes on two cores and says how far it is.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/topodisk/topodisk/test/lab/programs"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func build(ctx context.Context) error {
	root, err := programs.FindRoot()
	if err != nil {
		return err
	}
	if _, err := programs.Default.Build(ctx, root, os.Stdout); err != nil {
		return err
	}
	return programs.BuildDemo(ctx, root, os.Stdout)
}
