//go:build e2e

package crash

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// The provisioners that may be in front of the driver.
const (
	ours      = "disk-provisioner"
	upstreams = "csi-provisioner"
)

// provisioner is the program that asks the driver for volumes.
type provisioner interface {
	// kubeconfig has the permissions that the chart gives it.
	kubeconfig() string
	// start starts it with the chart's flags and then args.
	start(ctx context.Context, args []string) error
	// kill ends it with SIGKILL. One that doesn't run is no error.
	kill()
	// ended says whether it has ended by itself. One that has counts as stopped from then on.
	ended() bool
}

// diskProvisioner is topodisk's own.
type diskProvisioner struct{ *lab.Topodisk }

func (p *diskProvisioner) kubeconfig() string { return p.Kubeconfig }

func (p *diskProvisioner) start(ctx context.Context, args []string) error {
	return p.StartProvisioner(ctx, lab.ProvisionerName, args...)
}

func (p *diskProvisioner) kill() { p.Kill(lab.ProvisionerName) }

func (p *diskProvisioner) ended() bool { return p.Ended(lab.ProvisionerName) }

// csiProvisioner is Kubernetes' own, as the chart runs it with csiProvisioner.enabled. It ends whenever its connection to the
// driver does.
type csiProvisioner struct {
	lab     *lab.Lab
	chart   *lab.Release
	path    string
	process *process.Process // nil: it doesn't run
}

func newCSIProvisioner(ctx context.Context, l *lab.Lab, root string) (*csiProvisioner, error) {
	dir, err := programs.BuildUpstream(ctx, root, os.Stderr)
	if err != nil {
		return nil, err
	}
	chart, err := l.InstallRelease(ctx, filepath.Join(root, "test", "chart", "testdata", "rendered", "upstream-provisioner.yaml"), "upstream")
	return &csiProvisioner{lab: l, chart: chart, path: filepath.Join(dir, upstreams)}, err
}

func (p *csiProvisioner) kubeconfig() string { return p.chart.Kubeconfig }

func (p *csiProvisioner) start(_ context.Context, args []string) (err error) {
	if p.process != nil {
		return fmt.Errorf("%s runs already", upstreams)
	}
	if p.process, err = p.chart.Start(upstreams, p.path, nil, append([]string{"--http-endpoint="}, args...)); err == nil {
		p.lab.MayEnd(p.process)
	}
	return err
}

func (p *csiProvisioner) kill() {
	if p.process != nil {
		p.lab.StopProgram(p.process, true)
		p.process = nil
	}
}

func (p *csiProvisioner) ended() bool {
	if p.process == nil || !p.process.Ended() {
		return false
	}
	p.kill()
	return true
}

// chooseTests leaves out the tests of disk-provisioner itself when another is in front of the driver, unless -run names tests.
func chooseTests() error {
	if *which != ours && *which != upstreams {
		return fmt.Errorf("-provisioner=%s: allowed are %s and %s", *which, ours, upstreams)
	}
	if run := flag.Lookup("test.run"); *which == upstreams && run.Value.String() == "" {
		return run.Value.Set("^(TestNothingIsLost|TestLeaks)")
	}
	return nil
}
