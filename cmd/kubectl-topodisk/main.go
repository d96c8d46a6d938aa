// Command kubectl-topodisk is a plugin of kubectl, which finds it as `kubectl topodisk`: it explains what topodisk's claims,
// volumes and nodes wait for, and changes nothing.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// version is stamped by the linker.
var version = "dev"

// commands are what the program can do, each in a file of its own.
func commands(f *factory) []*cobra.Command {
	return []*cobra.Command{
		newWhy(f),
		newPlan(f),
		newAudit(f),
		newVolumes(f),
		newVersion(f),
		newOptions(f),
	}
}

// gcPercent spares the collection of garbage: a command reads a cluster once, and ends.
const gcPercent = 400

func main() {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}
