//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
	"github.com/topodisk/topodisk/topology"
)

// onlyEvents have the provisioner try nothing again unless something has happened.
var onlyEvents = []string{"--retry-interval-start=1h", "--retry-interval-max=1h", "--node-grace=1h"}

// Nothing is tried a second time within the hour, so a call that comes at all comes of what was lacking.
func TestWhatAClaimOrADeletionLacksWakesIt(t *testing.T) {
	parent := newScene(t)
	parent.restartProvisioner(onlyEvents...)
	for n, c := range []struct {
		what string
		call string
		lack func(*scene, string) (comes func() error) // has the claim of that name lack something
	}{
		{"Secret", "CreateVolume", lackSecret},
		{"Node", "CreateVolume", lackNodeLabels},
		{"CSINode", "CreateVolume", lackCSINode},
		{"StorageClass", "CreateVolume", lackClass},
		{"VolumeAttributesClass", "CreateVolume", lackAttributesClass},
		{"VolumeSnapshot", "CreateVolume", lackSnapshot},
		{"VolumeAttachment, gone", "DeleteVolume", lackDetachment},
		{"Secret for the deletion", "DeleteVolume", lackDeletionSecret},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := &scene{T: labtest.T{T: t}, stage: shared}
			s.passed()
			name := fmt.Sprintf("lacking-%d", n)
			comes := c.lack(s, name)
			if early := s.count(c.call); early > 0 {
				t.Fatalf("the driver had %d %s calls before it was time", early, c.call)
			}
			h := s.stopAt(moment{call: c.call})
			begin := time.Now()
			s.Must(comes())
			s.Must(s.reach(s.Context(), h))
			t.Logf("%s after %s", c.call, time.Since(begin).Round(time.Millisecond))
			h.release(pass)
			if c.call == "CreateVolume" {
				s.bound(name)
			}
		})
	}
}

func lackSecret(s *scene, claim string) func() error {
	s.makeClass("with-secret")
	s.Must(s.Client.CoreV1().Secrets(namespace).Delete(s.Context(), "keys", metav1.DeleteOptions{}))
	s.Must(s.claim(s.Context(), claim, "with-secret"))
	s.awaitEvent(namespace, claim, "secret "+namespace+"/keys")
	return s.createSecret
}

// claimOnNode makes a claim as the scheduler leaves it when it has chosen a node.
func (s *scene) claimOnNode(claim, node string) {
	s.Helper()
	object := lab.Claim(namespace, claim, waits, "20Gi")
	object.Annotations = map[string]string{lab.SelectedNode: node}
	s.Must(s.MakeClaim(s.Context(), object))
	s.awaitEvent(namespace, claim, node)
}

// changeUnseen changes something while the provisioner is away: it can't go on for
// a moment as if nothing had changed.
func (s *scene) changeUnseen(change func(), args ...string) {
	s.Helper()
	s.kill(victims{provisioner: true})
	change()
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, append(slices.Clone(s.provisArgs), args...)...))
}

func lackNodeLabels(s *scene, claim string) func() error {
	return s.withoutLabels(s.Nodes[0], claim, onlyEvents...)
}

// withoutLabels makes a claim for a node that is in no zone until comes is called.
// The provisioner is started anew with the arguments.
func (s *scene) withoutLabels(node lab.Node, claim string, args ...string) (comes func() error) {
	s.Helper()
	label := func(ctx context.Context, value string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s,%q:%s}}}`, topology.ZoneKey, value, topology.WellKnownZoneKey, value)
		_, err := s.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	put := func() error { return label(context.Background(), fmt.Sprintf("%q", node.Zone)) }
	s.changeUnseen(func() { s.Must(label(s.Context(), "null")) }, args...)
	s.Cleanup(func() { s.Must(put()) })
	s.claimOnNode(claim, node.Name)
	return put
}

func lackCSINode(s *scene, claim string) func() error {
	node := s.Nodes[1].Name
	nodes := s.Client.StorageV1().CSINodes()
	there, err := nodes.Get(s.Context(), node, metav1.GetOptions{})
	s.Must(err)
	s.changeUnseen(func() { s.Must(nodes.Delete(s.Context(), node, metav1.DeleteOptions{})) }, onlyEvents...)
	s.claimOnNode(claim, node)
	return func() error {
		there.ResourceVersion, there.UID = "", ""
		_, err := nodes.Create(s.Context(), there, metav1.CreateOptions{})
		return err
	}
}

// lackClass has the class go while the provisioner is away: Kubernetes gives a claim to it only as long as there is one.
func lackClass(s *scene, claim string) func() error {
	s.makeClass("gone")
	s.changeUnseen(func() {
		s.Must(s.claim(s.Context(), claim, "gone"))
		s.Must(s.await(s.Context(), "the claim is the provisioner's", limit, func(ctx context.Context) error {
			object, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
			if err == nil && object.Annotations["volume.kubernetes.io/storage-provisioner"] == "" {
				err = errors.New("it is nobody's")
			}
			return err
		}))
		s.Must(s.Client.StorageV1().StorageClasses().Delete(s.Context(), "gone", metav1.DeleteOptions{}))
	}, onlyEvents...)
	s.Must(s.claim(s.Context(), claim+"-witness", atOnce))
	s.bound(claim + "-witness") // the provisioner has come to the claim before
	s.passed()
	return func() error {
		return s.MakeClass(s.Context(), lab.Class("gone", storagev1.VolumeBindingImmediate, map[string]string{"type": "cloud_essd"}))
	}
}

func lackAttributesClass(s *scene, claim string) func() error {
	name := "fast"
	s.makeClass("essd-alone")
	object := lab.Claim(namespace, claim, "essd-alone", "20Gi")
	object.Spec.VolumeAttributesClassName = &name
	s.Must(s.MakeClaim(s.Context(), object))
	s.awaitEvent(namespace, claim, "VolumeAttributesClass fast")
	classes := s.Client.StorageV1().VolumeAttributesClasses()
	s.Cleanup(func() { s.Must(classes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	return func() error {
		_, err := classes.Create(s.Context(), &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: lab.DriverName, Parameters: map[string]string{"performanceLevel": "PL0"},
		}, metav1.CreateOptions{})
		return err
	}
}

func lackSnapshot(s *scene, claim string) func() error {
	s.claimBound(claim + "-original")
	snapshot := s.snapshot(claim+"-snapshot", claim+"-original")
	s.passed()
	s.Must(s.claimFrom(claim, snapshot))
	s.awaitEvent(namespace, claim, "not ready to use yet")
	return func() error { return snapshot.Ready(s.Context()) }
}

// claimBound makes a claim with its volume.
func (s *scene) claimBound(claim string) lab.Bound {
	s.Helper()
	s.Must(s.claim(s.Context(), claim, atOnce))
	return s.bound(claim)
}

func lackDetachment(s *scene, claim string) func() error {
	b := s.claimBound(claim)
	attachments := s.Client.StorageV1().VolumeAttachments()
	_, err := attachments.Create(s.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: claim}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: lab.DriverName, NodeName: s.Nodes[0].Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &b.Volume.Name},
	}}, metav1.CreateOptions{})
	s.Must(err)
	s.Must(s.deleteClaim(s.Context(), claim))
	s.awaitEvent(metav1.NamespaceDefault, b.Volume.Name, "still attached to node "+s.Nodes[0].Name)
	return func() error { return attachments.Delete(s.Context(), claim, metav1.DeleteOptions{}) }
}

// lackDeletionSecret has a disk that only the keys of a Secret see, as far as anybody knows.
func lackDeletionSecret(s *scene, claim string) func() error {
	s.makeClass("with-secret")
	s.Must(s.claim(s.Context(), claim, "with-secret"))
	b := s.bound(claim)
	s.Must(s.Client.CoreV1().Secrets(namespace).Delete(s.Context(), "keys", metav1.DeleteOptions{}))
	s.Must(s.deleteClaim(s.Context(), claim))
	s.awaitEvent(metav1.NamespaceDefault, b.Volume.Name, "make it again, or")
	s.awaitVolume(b.Volume.Name, "held back", func(pv *corev1.PersistentVolume) bool { return pv != nil && pv.Status.Phase == corev1.VolumeReleased })
	return s.createSecret
}
