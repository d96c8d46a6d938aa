// Demo builds a real Kubernetes control plane and topodisk, starts them on this machine against a simulated ECS, and
// tells how claims become disks in the right zone. It needs Go and Linux, no root, no cloud account.
//
// A command behind -- is run in place of the story, with KUBECONFIG pointing at the control plane.
//
// Its last line is `demo: N claims bound, M rescheduled, K deleted, 0 disks leaked` and its exit code 0; anything else
// is a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/programs"
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running after the story")
	version := programs.Default
	flag.Var(&version, "kube", "`VERSION` of Kubernetes: "+programs.Allowed())
	stop := flag.Bool("stop", false, "end what an earlier run with -keep left running, and do nothing else")
	flag.Parse()
	if flag.NArg() > 0 && !slices.Contains(os.Args, "--") {
		fmt.Fprintf(os.Stderr, "argument %q: only the flags -keep, -stop and -kube are taken, and a command behind --\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	line, err := run(ctx, version, *keep, *stop, flag.Args())
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted; everything it had started is stopped")
		}
		fmt.Printf("demo failed: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(line)
}

// run returns the last line.
func run(ctx context.Context, version programs.Version, keep, stop bool, command []string) (string, error) {
	root, err := programs.FindRoot()
	if err != nil {
		return "", err
	}
	kept := filepath.Join(root, ".build", "demo")
	if stop {
		return stopKept(kept)
	}
	if keep {
		if err := makeRoom(kept); err != nil {
			return "", err
		}
	}
	dirs, err := version.Build(ctx, root, os.Stdout)
	if err != nil {
		return "", err
	}
	l, err := start(ctx, root, dirs, keep, kept)
	if err != nil {
		return "", err
	}
	if len(command) > 0 {
		return "the command has ended", errors.Join(runCommand(ctx, l, command), l.Stop())
	}
	line, err := tell(ctx, l)
	if keep && ctx.Err() == nil {
		explainKept(l)
		return line, err
	}
	if err != nil && ctx.Err() == nil {
		l.KeepLogs()
		err = fmt.Errorf("%w\nthe logs are in %s", err, l.Logs)
	}
	return line, errors.Join(err, l.Stop())
}

// makeRoom clears away what an earlier kept demo has left, unless it still runs.
func makeRoom(dir string) error {
	names, err := process.Kept(dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("an earlier demo still runs (%s): make demo STOP=1 ends it", strings.Join(names, ", "))
	}
	return os.RemoveAll(dir)
}

func start(ctx context.Context, root string, dirs programs.Dirs, keep bool, kept string) (*lab.Lab, error) {
	options := lab.Options{
		Root: root, Programs: dirs, Nodes: lab.SixNodes(), Keep: keep,
		SimulatorArgs: []string{"--latency=real"}, // half a second for a disk, as ECS takes
		Say:           func(step string, took time.Duration) { fmt.Printf("  %5.1f s  %s\n", took.Seconds(), step) },
	}
	if keep {
		options.StateDir = kept
	}
	fmt.Println("\nStarting, on loopback addresses only:")
	begin := time.Now()
	l, err := lab.Start(ctx, options)
	if err == nil {
		fmt.Printf("  %5.1f s  in all; the cluster is ready\n", time.Since(begin).Seconds())
	}
	return l, err
}

// runCommand runs a command as the administrator, who finds kubectl in PATH.
func runCommand(ctx context.Context, l *lab.Lab, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig, "PATH="+filepath.Dir(l.Kubectl)+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd.Run()
}

func stopKept(dir string) (string, error) {
	names, err := process.StopKept(dir)
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return "no demo is running", nil
	}
	return "stopped " + strings.Join(names, ", "), nil
}

// explainKept says how to go on with the cluster.
func explainKept(l *lab.Lab) {
	fmt.Printf(`
Everything keeps running. The administrator's kubeconfig is
  %[1]s
Try
  export KUBECONFIG=%[1]s PATH=$PATH:%[2]s
  kubectl get nodes -L topology.kubernetes.io/zone
  kubectl apply -f deploy/examples/statefulset.yaml && kubectl get pods,pvc,pv --watch
  curl -s %[3]s/_sim/state
(the simulated ECS has a page for people, too: %[3]s/_sim/; logs are in %[4]s)
and end it with
  make demo STOP=1

`, l.Kubeconfig, filepath.Dir(l.Kubectl), l.Simulator.URL, l.Logs)
}
