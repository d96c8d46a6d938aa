package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/node"
	"github.com/topodisk/topodisk/test/lab/controlplane"
	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// AnotherDriver is a CSI driver that runs beside topodisk's, with disk-provisioner and csi-attacher of its own that have the
// installation's flags.
type AnotherDriver struct {
	// Controller and Node are programs with their arguments, which are filled (simulator.Client.Fill), on a node with its own {node},
	// {instance} and {zone}, too.
	Controller, Node []string
}

// runningDriver is an AnotherDriver that runs.
type runningDriver struct {
	AnotherDriver
	lab        *Lab
	number     int // from 1
	name       string
	socket     string // of its controller
	kubeconfig string
	capacity   bool // it answers GetCapacity
}

// AddDriver starts a driver and returns its name when Pods with its volumes can be scheduled. On real nodes it runs its node
// plugin and registers it with the kubelet until ctx ends; nodes that are objects only are said to have it.
func (l *Lab) AddDriver(ctx context.Context, a AnotherDriver) (name string, err error) {
	l.others++
	d := &runningDriver{AnotherDriver: a, lab: l, number: l.others, socket: filepath.Join(l.Dir, fmt.Sprintf("csi-%d.sock", l.others))}
	for _, step := range []func(context.Context) error{d.startController, d.install, d.startSidecars, d.startNodes, d.awaitNodes} {
		if err := step(ctx); err != nil {
			return "", fmt.Errorf("add a driver: %w", err)
		}
	}
	return d.name, nil
}

// startController starts the controller, and asks it for its name and for what it can do.
func (d *runningDriver) startController(ctx context.Context) error {
	words := d.lab.Simulator.Fill(d.Controller, d.socket, d.lab.Nodes[0].Region)
	c := process.Command{Name: fmt.Sprintf("driver-%d", d.number), Path: words[0], Args: words[1:], Env: simulator.CredentialsEnv()}
	if _, err := d.lab.Start(c); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return d.lab.Await(ctx, "the driver answers", process.StartLimit, func(ctx context.Context) (bool, error) {
		info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
		if err != nil {
			return false, err
		}
		can, err := csi.NewControllerClient(conn).ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
		if err != nil {
			return false, err
		}
		d.name = info.GetName()
		d.capacity = slices.ContainsFunc(can.GetCapabilities(), func(c *csi.ControllerServiceCapability) bool {
			return c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_GET_CAPACITY
		})
		return true, nil
	})
}

// install makes the driver's CSIDriver like topodisk's, and an account for its sidecars that may do everything: what the
// installation permits to topodisk's own is for objects that are named after the driver.
func (d *runningDriver) install(ctx context.Context) (err error) {
	for _, object := range d.lab.Topodisk.install.objects {
		if object.GetKind() != "CSIDriver" {
			continue
		}
		own := object.DeepCopy()
		own.SetName(d.name)
		if err := d.lab.createObjects(ctx, []unstructured.Unstructured{*own}); err != nil {
			return err
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: d.name, Namespace: metav1.NamespaceSystem}}
	if _, err := d.lab.Client.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: d.name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	if _, err := d.lab.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	d.kubeconfig, err = d.lab.accountKubeconfig(ctx, account.Name, d.name, controlplane.LocalAddress)
	return err
}

// startSidecars starts what a Pod's volume needs of them, as they run for topodisk.
func (d *runningDriver) startSidecars(ctx context.Context) error {
	own := &Release{lab: d.lab, install: d.lab.Topodisk.install, Kubeconfig: d.kubeconfig}
	command := func(container, path string, args ...string) (process.Command, error) {
		args = append(args, "--csi-address="+d.socket, "--leader-election=false")
		return own.command(fmt.Sprintf("%s-%d", filepath.Base(path), d.number), container, path, args...)
	}
	provisioner, err := command(provisionerContainer, d.lab.Program(ProvisionerName), fmt.Sprintf("--enable-capacity=%v", d.capacity))
	if err != nil {
		return err
	}
	if _, err := d.lab.Serve(ctx, provisioner, "/healthz"); err != nil {
		return err
	}
	attacher, err := command(attacherName, d.lab.sidecar(attacherName), "--http-endpoint=") // without an election it has no page to be asked for
	if err == nil {
		_, err = d.lab.Start(attacher)
	}
	return err
}

// startNodes starts the node plugin on every real node, or says of the nodes that they have it.
func (d *runningDriver) startNodes(ctx context.Context) error {
	for _, n := range d.lab.RealNodes {
		if err := d.startNode(ctx, n); err != nil {
			return err
		}
	}
	if len(d.lab.RealNodes) > 0 {
		return nil
	}
	for _, n := range d.lab.Nodes {
		csiNode, err := d.lab.Client.StorageV1().CSINodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		own := *csiNode.Spec.Drivers[0].DeepCopy()
		own.Name = d.name
		csiNode.Spec.Drivers = append(csiNode.Spec.Drivers, own)
		if _, err := d.lab.Client.StorageV1().CSINodes().Update(ctx, csiNode, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// startNode starts the node plugin on a node and registers it with the kubelet, as node-driver-registrar would.
func (d *runningDriver) startNode(ctx context.Context, n *RealNode) error {
	dir := kubeletDir + "/plugins/" + d.name
	socket := dir + "/csi.sock"
	if err := os.MkdirAll(n.HostPath(dir), 0o755); err != nil {
		return err
	}
	words := d.lab.Simulator.Fill(d.Node, socket, n.Region, "{node}", n.Name, "{instance}", n.Instance, "{zone}", n.Zone)
	if err := n.start(fmt.Sprintf("%s-%d", NodePlugin, d.number), words[0], words[1:]...); err != nil {
		return err
	}
	at, err := os.Open(n.HostPath(kubeletDir)) // a socket's path is short
	if err != nil {
		return err
	}
	registration := node.NewRegistration(d.name, fmt.Sprintf("/proc/self/fd/%d", at.Fd()), socket)
	served := func(context.Context) (bool, error) {
		_, err := os.Stat(n.HostPath(socket))
		return err == nil, err
	}
	if err := d.lab.Await(ctx, "the node plugin of "+n.Name+" serves", process.StartLimit, served); err != nil {
		return errors.Join(err, at.Close())
	}
	go func() {
		defer at.Close()
		if err := registration.Run(ctx); err != nil {
			klog.ErrorS(err, "Register a driver", "driver", d.name, "node", n.Name)
		}
	}()
	return nil
}

// awaitNodes waits until every node has the driver.
func (d *runningDriver) awaitNodes(ctx context.Context) error {
	return d.lab.Await(ctx, "every node has "+d.name, process.StartLimit, func(ctx context.Context) (bool, error) {
		list, err := d.lab.Client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, n := range list.Items {
			if !slices.ContainsFunc(n.Spec.Drivers, func(on storagev1.CSINodeDriver) bool { return on.Name == d.name }) {
				return false, fmt.Errorf("%s has it not", n.Name)
			}
		}
		return true, nil
	})
}
