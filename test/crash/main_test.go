//go:build e2e

package crash

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/labtest"
)

var (
	seeds   = flag.Int("seeds", 100, "how many random schedules to run")
	oneSeed = flag.Uint64("seed", 0, "run this random schedule alone")
	which   = flag.String("provisioner", ours, "whose provisioner is in front of the driver: "+ours+" or "+upstreams)
)

// alone leaves the facts of nodes out: the driver would ask ECS for them between any two calls of a claim.
var alone = []string{"--node-facts=false"}

// bindTimeout is for how long the scheduler waits for a Pod's volumes: not so long that no test could wait for its end.
const bindTimeout = 20 * time.Second

// shared is the one stage of all tests.
var shared *stage

func TestMain(m *testing.M) {
	flag.Parse()
	labtest.Main(m, run)
}

func run(m *testing.M) (code int, err error) {
	if err := chooseTests(); err != nil {
		return 1, err
	}
	ctx := context.Background()
	root, err := programs.FindRoot()
	if err != nil {
		return 1, err
	}
	dirs, err := programs.Default.BuildRace(ctx, root, os.Stderr)
	if err != nil {
		return 1, err
	}
	cluster, err := lab.Start(ctx, lab.Options{Root: root, Programs: dirs, Nodes: lab.SixNodes(),
		RaceDetector: true, Snapshots: true, BindTimeout: bindTimeout, DriverArgs: alone})
	if err != nil {
		return 1, err
	}
	defer func() {
		if code != 0 {
			cluster.KeepLogs()
			fmt.Fprintf(os.Stderr, "the programs' logs are in %s\n", cluster.Logs)
		}
		if stopErr := cluster.Stop(); err == nil {
			err = stopErr
		}
	}()
	program := provisioner(&diskProvisioner{cluster.Topodisk})
	if *which == upstreams {
		if program, err = newCSIProvisioner(ctx, cluster, root); err != nil {
			return 1, err
		}
	}
	if shared, err = newStage(ctx, cluster, program); err != nil {
		return 1, err
	}
	code = m.Run()
	shared.leaks.report(os.Stdout)
	if err := cluster.CheckLogs(); err != nil {
		return 1, err
	}
	return code, nil
}
