// With starts a lab, runs one command with KUBECONFIG pointing at it, and
// stops the lab again. Its exit code is the command's.
//
//	go run ./test/with -- kubectl get nodes
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "with: no command; name one, such as: go run ./test/with -- kubectl get nodes")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, args)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "with:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	root, err := programs.FindRoot()
	if err != nil {
		return err
	}
	dirs, err := programs.Default.Build(ctx, root, os.Stderr)
	if err != nil {
		return err
	}
	l, err := lab.Start(ctx, lab.Options{Root: root, Programs: dirs, Nodes: lab.SixNodes()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig, "PATH="+dirs.Kube+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd.Run()
}
