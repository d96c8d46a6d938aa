//go:build e2enodes

package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/sandbox"
	"github.com/topodisk/topodisk/test/labtest"
)

// cluster is the one lab that all tests share: four nodes, two of them in the first zone. Tests that switch anything off
// run one after the other, and then all others side by side.
var cluster *lab.Lab

func TestMain(m *testing.M) { labtest.Main(m, runAll) }

func runAll(m *testing.M) (int, error) {
	ctx := context.Background()
	root, err := programs.FindRoot()
	if err != nil {
		return 1, err
	}
	box := sandbox.In(root, "e2e-nodes")
	earlier = programs.BuiltEarlier(root, earlierCommit)
	build := func() error {
		if programs.CheckCommit(root, earlierCommit) == nil { // else one test is skipped
			if _, err := programs.BuildEarlier(ctx, root, earlierCommit, os.Stderr); err != nil {
				return err
			}
		}
		_, err := programs.Default.BuildNodes(ctx, root, os.Stderr)
		return err
	}
	if code, outside, err := box.Enter(build); outside || err != nil {
		return code, err
	}
	begin := time.Now()
	cluster, err = lab.Start(ctx, lab.Options{
		Root: root, Programs: programs.Default.BuiltNodes(root), StateDir: box.Dir, RealNodes: true, Nodes: lab.ManyNodes(4),
		Say: func(step string, took time.Duration) { fmt.Fprintf(os.Stderr, "%5.1f s  %s\n", took.Seconds(), step) },
	})
	if err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "%5.1f s  until the first Pod could come\n", time.Since(begin).Seconds())
	return m.Run(), cluster.Stop()
}
