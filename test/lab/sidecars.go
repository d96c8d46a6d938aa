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
	for _, name := range []string{attacherName, "csi-resizer"} {
		if _, err := l.startInstalled(name); err != nil {
			return err
		}
	}
	return l.startSidecar("csi-snapshotter", append(l.quick(), "--csi-address="+l.topodisk.socket, "--timeout=60s", "--extra-create-metadata")...)
}

// StartAttacher starts csi-attacher beside the driver, with the installation's flags and then args. The programs must have been built by
// programs.BuildSidecars.
func (l *Lab) StartAttacher(args ...string) (*process.Process, error) {
	return l.startInstalled(attacherName, args...)
}

// startInstalled starts a sidecar with the flags and permissions of the installation, and then args.
func (l *Lab) startInstalled(name string, args ...string) (*process.Process, error) {
	flags, err := l.topodisk.install.args(name)
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--csi-address="+l.topodisk.socket, "--kubeconfig="+l.topodisk.kubeconfig, "--leader-election=false")
	return l.StartProgram(name, filepath.Join(l.opts.Programs.Sidecars, name), append(flags, args...)...)
}

// startSnapshots makes what every cluster with snapshots has: their kinds, and snapshot-controller.
func (l *Lab) startSnapshots(ctx context.Context) error {
	if err := l.installSnapshotCRDs(ctx); err != nil {
		return err
	}
	return l.startSidecar("snapshot-controller", l.quick()...)
}

// quick are flags of whoever works on snapshots, as the administrator and without long waits.
func (l *Lab) quick() []string {
	return []string{"--kubeconfig=" + l.Kubeconfig, "--retry-interval-start=500ms", "--retry-interval-max=10s", "--kube-api-qps=100", "--kube-api-burst=200",
		"--feature-gates=CSIVolumeGroupSnapshot=true", "--v=2"}
}

func (l *Lab) startSidecar(name string, args ...string) error {
	_, err := l.StartProgram(name, filepath.Join(l.opts.Programs.Sidecars, name), args...)
	return err
}
