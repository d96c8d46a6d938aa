//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/internal/otherdriver"
	"github.com/topodisk/topodisk/test/lab"
)

// TestAnotherDriverThatComesBack has the other driver's provisioner work in kube-system while topodisk's has its Lease elsewhere: topodisk
// waits for it, yields to it when it comes back, and goes on beside it with --takeover. Each time it tells, as it does of the CSIDriver.
func TestAnotherDriverThatComesBack(t *testing.T) {
	s := newScene(t)
	other := s.newIncumbent()
	s.stopProvisioner()
	s.Cleanup(func() {
		other.stop()
		s.restartController()
	})
	start := func(args ...string) {
		s.Helper()
		own := []string{"--leader-election-namespace=" + s.Namespace, "--kubeconfig=" + s.Kubeconfig} // the installation's account has no rights there
		s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, slices.Concat(quickElection, own, args)...))
	}
	class := s.Class(atOnce, map[string]string{"type": "cloud_essd"})

	other.start()
	s.awaitLeader(leaseNamespace, true)
	start()
	s.awaitOther("provisioner", true)
	s.awaitPodEvent(otherdriver.ReasonProvisioner, "renews Lease kube-system/"+leaseName)
	s.Claim("theirs", class, "20Gi")
	if pv, _ := s.bound("theirs", late); !strings.HasPrefix(pv.Volume.Name, "disk-") {
		t.Errorf("the claim is bound to %s, want that the other provisioner made it", pv.Volume.Name)
	}
	if _, err := s.Client.CoordinationV1().Leases(s.Namespace).Get(s.Context(), leaseName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("topodisk's Lease: %v, want that it has none while it waits", err)
	}

	other.stop()
	s.awaitLeader(s.Namespace, true)
	s.awaitOther("provisioner", false)
	s.Claim("ours", class, "20Gi")
	if pv, _ := s.bound("ours", late); !strings.HasPrefix(pv.Volume.Name, "d-") {
		t.Errorf("the claim is bound to %s, want that topodisk made it", pv.Volume.Name)
	}

	other.start()
	s.WaitFor("topodisk yields", late, func(context.Context) (bool, error) { return s.Topodisk.Ended(lab.ProvisionerName), nil })
	s.awaitLeader(s.Namespace, false)

	start("--takeover=true")
	s.awaitLeader(s.Namespace, true)
	s.awaitOther("provisioner", true)

	relabel := func(instance string) {
		s.Helper()
		patch := []byte(`{"metadata":{"labels":{"app.kubernetes.io/instance":` + instance + `}}}`)
		_, err := s.Client.StorageV1().CSIDrivers().Patch(context.Background(), lab.DriverName, types.MergePatchType, patch, metav1.PatchOptions{})
		s.Must(err)
	}
	s.awaitOther("csi_driver", false)
	s.Cleanup(func() { relabel(`"topodisk"`) })
	relabel("null")
	s.awaitOther("csi_driver", true)
	s.awaitPodEvent(otherdriver.ReasonCSIDriver, "app.kubernetes.io/instance")
	relabel(`"topodisk"`)
	s.awaitOther("csi_driver", false)
	other.stop()
	s.awaitOther("provisioner", false)
	s.adoptDisks() // topodisk clears up
}

// awaitOther waits until topodisk's metric says that another driver of the name is there, or not.
func (s *scene) awaitOther(kind string, there bool) {
	s.Helper()
	want := `topodisk_provisioner_other_driver{kind="` + kind + `"} ` + map[bool]string{true: "1", false: "0"}[there]
	s.WaitFor("the metrics have "+want, time.Minute, func(context.Context) (bool, error) { return strings.Contains(s.metrics(), want), nil })
}

// awaitLeader waits until the Lease of a namespace is held, or not.
func (s *scene) awaitLeader(namespace string, held bool) {
	s.Helper()
	s.WaitFor("somebody leads in "+namespace, time.Minute, func(ctx context.Context) (bool, error) {
		lease, err := s.Client.CoordinationV1().Leases(namespace).Get(ctx, leaseName, metav1.GetOptions{})
		return err == nil && (reignOf(lease).holder != "") == held, err
	})
}

// awaitPodEvent waits until topodisk has told something by an event on its Pod.
func (s *scene) awaitPodEvent(reason, text string) {
	s.Helper()
	s.WaitFor("an event "+reason+" says "+text, soon, func(ctx context.Context) (bool, error) {
		events, err := s.Client.CoreV1().Events(leaseNamespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,reason=" + reason})
		if err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, text) {
				return true, nil
			}
		}
		return false, nil
	})
}
