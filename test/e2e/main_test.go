//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/test/labtest"
)

// cluster is the one lab that all tests share. They run one after the other, for stock and faults are the cloud's.
var cluster *lab.Lab

// quickElection lets a new leader take over in seconds, and leaves a leader the time to renew on a machine with much else to do.
var quickElection = []string{
	"--leader-election-lease-duration=12s", "--leader-election-renew-deadline=10s", "--leader-election-retry-period=500ms",
}

// version is that of Kubernetes.
var version = programs.Default

func TestMain(m *testing.M) {
	flag.Var(&version, "kube", "`VERSION` of Kubernetes: "+programs.Allowed())
	flag.Parse()
	labtest.Main(m, run)
}

func run(m *testing.M) (int, error) {
	ctx := context.Background()
	root, err := programs.FindRoot()
	if err != nil {
		return 1, err
	}
	dirs, err := version.BuildRace(ctx, root, os.Stderr)
	if err != nil {
		return 1, err
	}
	begin := time.Now()
	cluster, err = lab.Start(ctx, lab.Options{
		Root: root, Programs: dirs, Nodes: lab.SixNodes(), SimulatorArgs: sellingZones(),
		Gate: true, RaceDetector: true, Audit: true, Pod: true, Snapshots: true, ProvisionerArgs: quickElection,
	})
	if err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "cluster ready after %.1f s\n", time.Since(begin).Seconds())
	if err := underPolicy(ctx, cluster, simulator.ClusterID); err != nil {
		return 1, errors.Join(err, cluster.Stop())
	}
	code := m.Run()
	for _, check := range []func() error{cluster.CheckLogs, func() error { return checkPermissions(ctx, cluster) }} {
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code != 0 {
		cluster.KeepLogs()
		fmt.Fprintf(os.Stderr, "the programs' logs are in %s\n", cluster.Logs)
	}
	return code, cluster.Stop()
}
