// Package command runs the main function of a program of this checkout.
package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// Main has run do the work, with the root of the checkout, until it returns or its context is done by a signal, and ends the process
// with its exit code. An error is printed behind the program's name; then the code isn't 0.
func Main(name string, run func(ctx context.Context, root string) (code int, err error)) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 0
	root, err := programs.FindRoot()
	if err == nil {
		code, err = run(ctx, root)
	}
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
