//go:build e2e

package crash

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/topodisk/topodisk/test/lab"
)

const namespace = "crash"

// Classes of the claims: one binds at once, the others wait for a Pod.
const (
	atOnce = "at-once"
	waits  = "waits"
)

// stage is a lab whose two programs are reached through gates.
type stage struct {
	*lab.Lab
	*gates
	provisioner            provisioner
	csi                    *csiGate
	leaks                  leaks // of csi-provisioner
	driverArgs, provisArgs []string
	restarts               int             // of a provisioner that has ended by itself
	moved                  map[string]bool // volumes whose claims went to another zone: once its disk is deleted, such a volume gets another
}

func newStage(ctx context.Context, l *lab.Lab, p provisioner) (*stage, error) {
	s := &stage{Lab: l, gates: &gates{}, provisioner: p, moved: map[string]bool{}}
	t := l.Topodisk
	t.Stop(lab.ProvisionerName)
	t.Stop(lab.DriverProgram)
	kubeconfig, err := s.kubeconfigThroughGate(p.kubeconfig())
	if err != nil {
		return nil, err
	}
	ecs, err := through(l.Simulator.URL, nil, s.gates, ecsCall)
	if err != nil {
		return nil, err
	}
	s.csi = &csiGate{socket: filepath.Join(l.Dir, "gate.sock"), driver: t.Socket, gates: s.gates}
	s.csi.ledger = &ledger{}
	if *which == upstreams {
		s.csi.ledger.simulator = l.Simulator
	}
	s.driverArgs = append([]string{"--ecs-endpoint=" + ecs}, alone...)
	s.provisArgs = []string{"--csi-address=" + s.csi.socket, "--kubeconfig=" + kubeconfig, "--leader-election=false",
		"--retry-interval-start=200ms", "--retry-interval-max=5s", "--v=5"} // at that level CSI requests are logged
	if err := s.startAll(ctx); err != nil {
		return nil, err
	}
	if err := l.MakeNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	for name, mode := range map[string]storagev1.VolumeBindingMode{
		atOnce: storagev1.VolumeBindingImmediate, waits: storagev1.VolumeBindingWaitForFirstConsumer,
	} {
		class := lab.Class(name, mode, map[string]string{"type": "cloud_essd,cloud_auto"})
		if err := l.MakeClass(ctx, class); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// kubeconfigThroughGate writes the provisioner's kubeconfig with the gate in the API server's place.
func (s *stage) kubeconfigThroughGate(path string) (string, error) {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		serving, err := tls.LoadX509KeyPair(filepath.Join(s.Dir, "pki", "serving.crt"), filepath.Join(s.Dir, "pki", "serving.key"))
		if err != nil {
			return "", err
		}
		// A client sends no token without TLS.
		security := &tls.Config{RootCAs: roots(cluster.CertificateAuthorityData), Certificates: []tls.Certificate{serving}}
		if cluster.Server, err = through(cluster.Server, security, s.gates, apiCall); err != nil {
			return "", err
		}
	}
	path = filepath.Join(s.Dir, "gate.kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// victims are the programs that a kill hits.
type victims struct{ provisioner, driver bool }

func (v victims) String() string {
	switch {
	case v.provisioner && v.driver:
		return "both"
	case v.provisioner:
		return "provisioner"
	case v.driver:
		return "driver"
	}
	return "nobody"
}

// kill ends the victims with SIGKILL.
func (s *stage) kill(v victims) {
	if v.provisioner {
		s.provisioner.kill()
	}
	if v.driver {
		s.Topodisk.Kill(lab.DriverProgram)
		s.csi.shut()
	}
}

// restart starts the victims again.
func (s *stage) restart(ctx context.Context, v victims) error {
	if v.driver {
		if err := s.Topodisk.StartDriver(ctx, s.driverArgs...); err != nil {
			return err
		}
		if err := s.csi.open(); err != nil {
			return err
		}
	}
	if v.provisioner {
		return s.startProvisioner(ctx)
	}
	return nil
}

// startProvisioner starts the provisioner. What it asks the driver for is its own, not its predecessor's.
func (s *stage) startProvisioner(ctx context.Context) error {
	s.csi.ledger.nextProvisioner()
	return s.provisioner.start(ctx, s.provisArgs)
}

func (s *stage) startAll(ctx context.Context) error { return s.restart(ctx, victims{true, true}) }

// await polls until check returns nil. A provisioner that has ended by itself is started again, as the kubelet does.
func (s *stage) await(ctx context.Context, what string, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		if s.provisioner.ended() {
			s.restarts++
			if err := s.startProvisioner(ctx); err != nil {
				return err
			}
		}
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not so after %s: %s: %w", limit, what, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// claim makes a claim, and a Pod that uses it if the claim waits for one.
func (s *stage) claim(ctx context.Context, name, class string) error {
	if err := s.claimAlone(ctx, name, class); err != nil || class != waits {
		return err
	}
	return s.pod(ctx, name)
}

func (s *stage) claimAlone(ctx context.Context, name, class string) error {
	return s.MakeClaim(ctx, lab.Claim(namespace, name, class, "20Gi"))
}

// pod makes a Pod that uses the claim of its name.
func (s *stage) pod(ctx context.Context, name string, change ...func(*corev1.Pod)) error {
	return s.MakePod(ctx, lab.Pod(namespace, name, name), change...)
}

// deleteClaim deletes a claim and the Pod of its name, which would hold it back.
func (s *stage) deleteClaim(ctx context.Context, name string) error {
	now := int64(0)
	return errors.Join(
		ignoreNotFound(s.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})),
		ignoreNotFound(s.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, name, metav1.DeleteOptions{})))
}

// removeNode deletes a Node and its CSINode; returnNodes brings all back.
func (s *stage) removeNode(ctx context.Context, name string) error {
	return errors.Join(
		ignoreNotFound(s.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})),
		ignoreNotFound(s.Client.StorageV1().CSINodes().Delete(ctx, name, metav1.DeleteOptions{})))
}

func (s *stage) returnNodes(ctx context.Context) error {
	list, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range s.Nodes {
		if slices.ContainsFunc(list.Items, func(node corev1.Node) bool { return node.Name == n.Name }) {
			continue
		}
		if err := ignoreNotFound(s.Client.StorageV1().CSINodes().Delete(ctx, n.Name, metav1.DeleteOptions{})); err != nil {
			return err
		}
		if err := s.AddNode(ctx, n); err != nil {
			return err
		}
		if err := s.admit(ctx, n.Name); err != nil {
			return err
		}
	}
	return nil
}

// admit waits until a node is Ready, and takes the taint off that kept Pods away until then: the controller-manager may
// take a minute for it.
func (s *stage) admit(ctx context.Context, node string) error {
	err := s.await(ctx, "node "+node+" is Ready", time.Minute, func(ctx context.Context) error {
		n, err := s.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not")
	})
	if err != nil {
		return err
	}
	_, err = s.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	return err
}

// calm ends all misbehaviour of the cloud and brings back every node.
func (s *stage) calm(ctx context.Context) error {
	return errors.Join(s.Simulator.Mend(ctx), s.returnNodes(ctx))
}

// selectedNode returns the node that the scheduler has chosen for a claim; empty for none.
func (s *stage) selectedNode(ctx context.Context, name string) (string, error) {
	claim, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return claim.Annotations[lab.SelectedNode], nil
}

func roots(pem []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return pool
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
