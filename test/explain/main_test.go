//go:build e2eexplain

// Package explain tests kubectl-topodisk on a real cluster: each situation of explain/testdata/verdicts.yaml is brought about with
// real components, and the program must say what is written there.
package explain

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/sandbox"
	"github.com/topodisk/topodisk/test/labtest"
)

// dumps is where the facts of each situation are written to, if anywhere.
var dumps = flag.String("dumps", "", "write the facts that each verdict rests on into this directory")

// cluster is the one lab that all situations share.
var (
	cluster *lab.Lab
	built   programs.Explain
)

func TestMain(m *testing.M) {
	flag.Parse()
	labtest.Main(m, runAll)
}

func runAll(m *testing.M) (int, error) {
	ctx := context.Background()
	root, err := programs.FindRoot()
	if err != nil {
		return 1, err
	}
	box := sandbox.In(root, "e2e-explain")
	if code, outside, err := box.Enter(func() error { return programs.BuildExplain(ctx, root, os.Stderr) }); outside || err != nil {
		return code, err
	}
	built = programs.BuiltExplain(root)
	nodes := lab.ManyNodes(4)
	nodes = append(nodes, lab.Node{Name: oldNode, Instance: "i-bp1labh3", Type: "ecs.i2.xlarge", Region: nodes[0].Region, Zone: zoneH})
	cluster, err = lab.Start(ctx, lab.Options{Root: root, Programs: programs.Default.BuiltNodes(root), StateDir: box.Dir, RealNodes: true, Nodes: nodes})
	if err != nil {
		return 1, err
	}
	exact := 0.0 // situations rest on how long ECS takes
	if err := cluster.Simulator.SetLatency(ctx, ecssim.LatencyForm{Spread: &exact}); err != nil {
		return 1, errors.Join(err, cluster.Stop())
	}
	return m.Run(), cluster.Stop()
}
