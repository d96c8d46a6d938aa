// Nodes brings up a lab whose nodes are real, and takes it away again:
//
//	nodes up [-nodes 3]     returns when Pods with disks could be made
//	nodes down              leaves nothing behind, whatever has become of the lab
//
// It needs root, for namespaces, mounts and loop devices. Its tests (build tag e2enodes) are what has to be seen on
// such nodes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/sandbox"
)

func main() { programs.Main("nodes", run) }

func run(ctx context.Context, root string) (int, error) { return 0, runCommand(ctx, root, os.Args[1:]) }

func runCommand(ctx context.Context, root string, args []string) error {
	if len(args) == 0 {
		return errors.New("no command: allowed are up and down")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	number := flags.Int("nodes", 3, "how many nodes, in turn in three zones")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *number < 1 || *number > 20 {
		return fmt.Errorf("-nodes=%d is not allowed: allowed is 1 to 20", *number)
	}
	box := sandbox.In(root, "lab")
	switch args[0] {
	case "up":
		return up(ctx, root, box, *number)
	case "stay":
		return stay(ctx, root, box, *number)
	case "down":
		return down(root)
	}
	return fmt.Errorf("command %q: allowed are up and down", args[0])
}

// up builds what the lab runs and starts it in a sandbox that outlives this process.
func up(ctx context.Context, root string, box sandbox.Sandbox, number int) error {
	if _, err := programs.Default.BuildNodes(ctx, root, os.Stdout); err != nil {
		return err
	}
	begin := time.Now()
	if err := box.Detach(ctx, os.Stdout, "stay", fmt.Sprintf("-nodes=%d", number)); err != nil {
		return err
	}
	fmt.Printf("  %5.1f s  in all\n", time.Since(begin).Seconds())
	fmt.Printf(`
The lab has a network of its own. A shell in it, with kubectl for its administrator:
  sudo %[1]s/shell
Try there
  kubectl get nodes -L topology.kubernetes.io/zone
  kubectl apply -f deploy/examples/statefulset.yaml
Logs are in %[1]s/logs. End it with
  sudo make lab DOWN=1
`, box.Dir)
	return nil
}

// stay is the init process of the sandbox.
func stay(ctx context.Context, root string, box sandbox.Sandbox, number int) error {
	if _, outside, err := box.Enter(nil); err != nil || outside {
		return errors.Join(errors.New("stay is what up runs"), err)
	}
	l, err := lab.Start(ctx, lab.Options{
		Root: root, Programs: programs.Default.BuiltNodes(root), StateDir: box.Dir, RealNodes: true, Nodes: lab.ManyNodes(number),
		Say: func(step string, took time.Duration) { fmt.Printf("  %5.1f s  %s\n", took.Seconds(), step) },
	})
	if err != nil {
		return err
	}
	if err := writeShell(l); err != nil {
		return errors.Join(err, l.Stop())
	}
	return errors.Join(box.ReportReady(ctx), l.Stop())
}

// writeShell makes the script that starts a shell, or one command, where the lab's API server is reached.
func writeShell(l *lab.Lab) error {
	script := fmt.Sprintf(`#!/bin/sh
# Runs a shell, or the command that is given, in the lab's network and mounts.
first=$(sed 's/.*"pid":\([0-9]*\).*/\1/' %[1]s/sandbox.json)
export KUBECONFIG=%[2]s PATH=%[3]s:$PATH
exec nsenter --target="$first" --mount --net --wd="$PWD" -- "${@:-/bin/sh}"
`, l.Dir, l.Kubeconfig, filepath.Dir(l.Kubectl))
	return os.WriteFile(filepath.Join(l.Dir, "shell"), []byte(script), 0o755)
}

// down ends every lab of this checkout that has real nodes.
func down(root string) error {
	var found []string
	for _, box := range sandbox.All(root) {
		names, err := box.Sweep()
		if err != nil {
			return err
		}
		found = append(found, names...)
	}
	if len(found) == 0 {
		fmt.Println("no lab with real nodes was there")
		return nil
	}
	fmt.Println("removed:", strings.Join(found, " "))
	return nil
}
