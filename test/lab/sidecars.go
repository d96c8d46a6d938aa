package lab

import (
	"context"
	"path/filepath"

	"github.com/topodisk/topodisk/test/lab/process"
)

// startSidecars starts what asks the driver for everything but making and deleting volumes: csi-attacher and csi-resizer
// with the flags and permissions of the installation, and what snapshots need, as the administrator.
func (l *Lab) startSidecars(ctx context.Context) error {
	if err := l.startSnapshots(ctx); err != nil {
		return err
	}
	return l.startBesideDriver()
}

// snapshotterName is the program that runs as the administrator, sidecarNames are the others beside the driver.
const snapshotterName = "csi-snapshotter"

var sidecarNames = []string{attacherName, "csi-resizer"}

// startBesideDriver starts the sidecars of the driver's Pod, which end when the driver does.
func (l *Lab) startBesideDriver() error {
	for _, name := range sidecarNames {
		if _, err := l.StartSidecar(name); err != nil {
			return err
		}
	}
	_, err := l.StartProgram(snapshotterName, l.sidecar(snapshotterName),
		append(l.quick(), "--csi-address="+l.Topodisk.Socket, "--timeout=60s", "--extra-create-metadata")...)
	return err
}

// sidecar is the path of a program that programs.BuildSidecars builds.
func (l *Lab) sidecar(name string) string { return filepath.Join(l.opts.Programs.Sidecars, name) }

// StartSidecar starts a sidecar beside the driver, with the flags and permissions of the installation, and then args.
func (l *Lab) StartSidecar(name string, args ...string) (*process.Process, error) {
	args = append([]string{"--csi-address=" + l.Topodisk.Socket, "--leader-election=false"}, args...)
	c, err := l.Topodisk.command(name, name, l.sidecar(name), args...)
	if err != nil {
		return nil, err
	}
	return l.Start(c)
}

// startSnapshots makes what every cluster with snapshots has: their kinds, and snapshot-controller.
func (l *Lab) startSnapshots(ctx context.Context) error {
	if err := l.installSnapshotCRDs(ctx); err != nil {
		return err
	}
	_, err := l.StartProgram("snapshot-controller", l.sidecar("snapshot-controller"), l.quick()...)
	return err
}

// quick are flags of whoever works on snapshots, as the administrator and without long waits.
func (l *Lab) quick() []string {
	return []string{"--kubeconfig=" + l.Kubeconfig, "--retry-interval-start=500ms", "--retry-interval-max=10s", "--kube-api-qps=100", "--kube-api-burst=200",
		"--feature-gates=CSIVolumeGroupSnapshot=true", "--v=2"}
}
