//go:build e2e

package e2e

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

const cloneFinalizer = "provisioner.storage.kubernetes.io/cloning-protection"

func copyOf(source string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source}
	}
}

// getClaim returns a claim, and nil if there is none.
func (s *scene) getClaim(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return claim, err
}

func TestASourceThatIsDeletedOutlivesItsCopysMaking(t *testing.T) {
	s := newScene(t)
	s.unattachedMayBeCut()
	class := s.Class(atOnce, essdThenAuto)
	s.Claim("original", class, "20Gi")
	s.bound("original", soon)
	s.fault(ecssim.Fault{Action: "CreateSnapshot", Do: ecssim.FaultError, Status: 503, Code: "ServiceUnavailable"})
	s.Claim("copy", class, "20Gi", copyOf("original"))
	s.WaitFor("the original is protected", soon, func(ctx context.Context) (bool, error) {
		claim, err := s.getClaim(ctx, "original")
		return err == nil && slices.Contains(claim.Finalizers, cloneFinalizer), err
	})
	s.deleteClaim("original")
	s.WaitFor("the original waits for its copy alone", soon, func(ctx context.Context) (bool, error) {
		claim, err := s.getClaim(ctx, "original")
		if claim == nil && err == nil {
			s.Fatal("the original is gone before it was copied")
		}
		return err == nil && slices.Equal(claim.Finalizers, []string{cloneFinalizer}), err
	})
	s.Must(s.Simulator.ClearFaults(s.Context()))
	s.bound("copy", late)
	s.WaitFor("the original is gone", late, func(ctx context.Context) (bool, error) {
		claim, err := s.getClaim(ctx, "original")
		return claim == nil, err
	})
}

func TestAClaimGoesOnWhenWhatItLacksComes(t *testing.T) {
	needsAttributesClasses(t)
	s := newScene(t)
	s.allowSecrets()
	class := s.Class(atOnce, map[string]string{
		"type":                                "cloud_essd",
		"csi.storage.k8s.io/secret-name":      "later",
		"csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
	})
	attributes := s.Namespace + "-fast"
	s.Claim("waits", class, "20Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &attributes })
	s.awaitEvent("waits", soon, "VolumeAttributesClass "+attributes, "not found")
	s.attributesClass("fast", map[string]string{"performanceLevel": "PL0"})
	s.awaitEvent("waits", soon, "secret "+s.Namespace+"/later", "not found")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "later"},
		StringData: map[string]string{"access-key-id": simulator.KeyID, "access-key-secret": simulator.Secret}}
	_, err := s.Client.CoreV1().Secrets(s.Namespace).Create(s.Context(), secret, metav1.CreateOptions{})
	s.Must(err)
	b, d := s.bound("waits", soon)
	if d.PerformanceLevel != "PL0" {
		s.Errorf("disk %s has level %q, want PL0", d.ID, d.PerformanceLevel)
	}
	if name := b.Volume.Spec.VolumeAttributesClassName; name == nil || *name != attributes {
		s.Errorf("volume %s names VolumeAttributesClass %v, want %s", b.Volume.Name, name, attributes)
	}
}

// needsAttributesClasses skips a test on a Kubernetes before programs.FirstWithAttributesClasses.
func needsAttributesClasses(t *testing.T) {
	t.Helper()
	if !version.AtLeast(programs.FirstWithAttributesClasses) {
		t.Skipf("Kubernetes %s has no VolumeAttributesClass in storage.k8s.io/v1: %s has", version, programs.FirstWithAttributesClasses)
	}
}

// attributesClass makes a VolumeAttributesClass that goes with the scene, and returns its name: the scene's, and this.
func (s *scene) attributesClass(name string, parameters map[string]string) string {
	s.Helper()
	class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + name}, DriverName: lab.DriverName, Parameters: parameters}
	classes := s.Client.StorageV1().VolumeAttributesClasses()
	_, err := classes.Create(s.Context(), class, metav1.CreateOptions{})
	s.Must(err)
	s.deleteAfterwards(class.Name, classes.Delete)
	return class.Name
}
