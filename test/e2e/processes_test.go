//go:build e2e

package e2e

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
)

// restartProvisioner gives the provisioner other flags. It works in clean-ups, too.
func (s *scene) restartProvisioner(args ...string) {
	s.Helper()
	t := s.Topodisk
	t.Stop(lab.ProvisionerName)
	if err := t.StartProvisioner(context.Background(), lab.ProvisionerName, append(slices.Clone(quickElection), args...)...); err != nil {
		s.Errorf("restart the provisioner: %v", err)
	}
}

// stopProvisioner stops the provisioner. If the test fails before it is started again, those behind it get one.
func (s *scene) stopProvisioner() {
	s.Helper()
	s.Cleanup(func() {
		if s.Failed() {
			s.restartProvisioner()
		}
	})
	s.Topodisk.Stop(lab.ProvisionerName)
}

// restartController starts driver and provisioner anew, whichever of them runs. It works in clean-ups, too.
func (s *scene) restartController() {
	s.Helper()
	s.restartDriver()
	s.restartProvisioner()
}

// removeNode deletes a Node and its CSINode until the test is over.
func (s *scene) removeNode(name string) {
	s.Helper()
	ctx := context.Background()
	s.Must(s.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	s.Must(s.Client.StorageV1().CSINodes().Delete(ctx, name, metav1.DeleteOptions{}))
	s.Cleanup(func() {
		i := slices.IndexFunc(s.Nodes, func(n lab.Node) bool { return n.Name == name })
		if err := s.ReturnNode(ctx, s.Nodes[i]); err != nil {
			s.Errorf("return node %s: %v", name, err)
		}
	})
}

// removeCSINode takes a node's driver away until the test is over.
func (s *scene) removeCSINode(name string) {
	s.Helper()
	ctx := context.Background()
	nodes := s.Client.StorageV1().CSINodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	s.Must(err)
	s.Must(nodes.Delete(ctx, name, metav1.DeleteOptions{}))
	s.Cleanup(func() {
		node.ObjectMeta = metav1.ObjectMeta{Name: name}
		if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil {
			s.Errorf("return CSINode %s: %v", name, err)
		}
	})
}
