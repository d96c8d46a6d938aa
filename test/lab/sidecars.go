package lab

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// startSidecars starts what asks the driver for everything but making and deleting volumes: csi-attacher and csi-resizer
// with the flags and permissions of the installation, and what snapshots need, as the administrator.
func (l *Lab) startSidecars(ctx context.Context) error {
	kinds, err := readKinds(filepath.Join(l.opts.Programs.Sidecars, "crds"))
	if err != nil {
		return err
	}
	if err := l.apply(ctx, kinds); err != nil {
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
	quick := []string{"--kubeconfig=" + l.Kubeconfig, "--retry-interval-start=500ms", "--retry-interval-max=10s", "--kube-api-qps=100", "--kube-api-burst=200", "--v=2"}
	if err := l.startSidecar("snapshot-controller", quick...); err != nil {
		return err
	}
	return l.startSidecar("csi-snapshotter", append(quick, socket, "--timeout=60s", "--extra-create-metadata")...)
}

func (l *Lab) startSidecar(name string, args ...string) error {
	_, err := l.StartProgram(name, filepath.Join(l.opts.Programs.Sidecars, name), args...)
	return err
}

// readKinds reads the CustomResourceDefinitions of snapshots.
func readKinds(dir string) ([]unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*snapshot.storage.k8s.io_*.yaml"))
	if err != nil {
		return nil, err
	}
	var kinds []unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var kind unstructured.Unstructured
		if err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(text)), 4<<10).Decode(&kind); err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}
