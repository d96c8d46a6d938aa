package lab

import (
	"context"
	"path/filepath"
)

// startSidecars starts what asks the driver for everything but making and deleting volumes: csi-attacher and csi-resizer
// with the flags and permissions of the installation, and what snapshots need, as the administrator.
func (l *Lab) startSidecars(ctx context.Context) error {
	if err := l.installSnapshots(ctx); err != nil {
		return err
	}
	socket := "--csi-address=" + l.topodisk.socket
	for _, name := range []string{"csi-attacher", "csi-resizer"} {
		args, err := l.topodisk.install.args(name)
		if err != nil {
			return err
		}
		if err := l.startSidecar(name, append(args, socket, "--kubeconfig="+l.topodisk.kubeconfig, "--leader-election=false")...); err != nil {
			return err
		}
	}
	quick := []string{"--kubeconfig=" + l.Kubeconfig, "--retry-interval-start=500ms", "--retry-interval-max=10s", "--kube-api-qps=100", "--kube-api-burst=200",
		"--feature-gates=CSIVolumeGroupSnapshot=true", "--v=2"}
	if err := l.startSidecar("snapshot-controller", quick...); err != nil {
		return err
	}
	return l.startSidecar("csi-snapshotter", append(quick, socket, "--timeout=60s", "--extra-create-metadata")...)
}

func (l *Lab) startSidecar(name string, args ...string) error {
	_, err := l.StartProgram(name, filepath.Join(l.opts.Programs.Sidecars, name), args...)
	return err
}
