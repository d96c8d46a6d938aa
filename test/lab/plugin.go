package lab

import (
	"context"
	"os"

	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// startPlugins starts the driver's node plugin on every node and returns when Pods can be scheduled to all of them: the
// kubelet has registered the driver, and the driver has taken the startup taint away.
func (l *Lab) startPlugins(ctx context.Context) error {
	account := l.Topodisk.install.daemonSet.Spec.Template.Spec.ServiceAccountName
	var err error
	if l.pluginConfig, err = l.accountKubeconfig(ctx, account, "topodisk-node", sandbox.GatewayAddress.String()); err != nil {
		return err
	}
	for _, n := range l.RealNodes {
		if err := n.StartPlugin(); err != nil {
			return err
		}
	}
	return l.awaitReady(ctx)
}

// StartPlugin starts the node plugin as a process on the node, with the flags and permissions of the installation, and with more
// variables in its environment.
func (n *RealNode) StartPlugin(env ...string) error {
	args, err := n.lab.Topodisk.install.nodeArgs(n.Name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.HostPath(kubeletDir+"/plugins/"+DriverName), 0o755); err != nil {
		return err
	}
	return n.startWith(env, NodePlugin, n.lab.Program(DriverProgram), append(args, "--kubeconfig="+n.lab.pluginConfig, "--v=4")...)
}
