//go:build e2e

package crash

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
)

// A disk and its PersistentVolume: caches that lag behind, volumes that can't be saved, volumes that others have made.

func TestStaleCacheMakesNoSecondDisk(t *testing.T) {
	for _, c := range []struct {
		what   string
		frozen []string
		gone   bool
	}{
		{"of claims, and the volume came and went", []string{"persistentvolumeclaims"}, true},
		{"of claims and volumes, and the volume is bound", []string{"persistentvolumeclaims", "persistentvolumes"}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newScene(t)
			h := s.hold(moment{call: "CreateVolume"}, func() error { return s.claim(s.Context(), "stale", atOnce) })
			var thaws []func()
			for _, resource := range c.frozen {
				thaw := s.freeze(resource)
				defer thaw()
				thaws = append(thaws, thaw)
			}
			h.release(pass)
			b := s.bound("stale")
			if c.gone {
				s.Must(s.deleteClaim(s.Context(), "stale"))
				s.awaitVolume(b.Volume.Name, "gone", isGone)
			}
			// The cache still shows the claim without a volume, and something that it depends on changes.
			s.Must(s.touchClass())
			for _, thaw := range thaws {
				thaw()
			}
			s.Must(s.claim(s.Context(), "witness", atOnce)) // the provisioner has had its turn by then
			s.bound("witness")
			if n := s.count("CreateVolume"); n != 2 {
				t.Errorf("the driver was asked %d times, want once for each claim", n)
			}
		})
	}
}

func TestClaimThatIsNotBoundYetGetsNoSecondDisk(t *testing.T) {
	s := newScene(t)
	h := s.hold(moment{call: "POST persistentvolumes"}, func() error { return s.claim(s.Context(), "unbound", atOnce) })
	d := s.onlyDisk("unbound")
	allow := s.refuseBinding("unbound")
	thaw := s.freeze("persistentvolumes")
	defer thaw()
	h.release(pass)
	s.Must(s.await(s.Context(), "the journal knows of no order", limit, s.journalIsEmpty))
	// Neither the claim nor any cache says that it has a volume, and something that it depends on changes.
	s.Must(s.touchClass())
	allow()
	thaw()
	if b := s.bound("unbound"); b.Disk() != d.ID {
		t.Errorf("the claim has disk %s, want %s", b.Disk(), d.ID)
	}
	if n := s.count("CreateVolume"); n != 1 {
		t.Errorf("the driver was asked %d times, want once", n)
	}
}

// touchClass changes the class in a way that means nothing.
func (s *scene) touchClass() error {
	patch := []byte(`{"metadata":{"annotations":{"touched-by":"` + s.Name() + `"}}}`)
	_, err := s.Client.StorageV1().StorageClasses().Patch(s.Context(), atOnce, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// refuseVolumes makes the API server refuse new PersistentVolumes until allow is called.
func (s *scene) refuseVolumes(reason metav1.StatusReason) (allow func()) {
	s.Helper()
	return s.refuse("persistentvolumes", admissionv1.Create, admissionv1.Validation{Expression: "false", Message: "no more volumes here", Reason: &reason},
		func(ctx context.Context) error {
			_, err := s.Client.CoreV1().PersistentVolumes().Create(ctx, staticVolume("probe", "d-probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
}

// refuseBinding makes the API server refuse to bind claims, of which one is there, until allow is called.
func (s *scene) refuseBinding(claim string) (allow func()) {
	s.Helper()
	unbound := admissionv1.Validation{Expression: "object.spec.?volumeName == oldObject.spec.?volumeName", Message: "nothing is bound here"}
	return s.refuse("persistentvolumeclaims", admissionv1.Update, unbound, func(ctx context.Context) error {
		_, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, claim, types.MergePatchType,
			[]byte(`{"spec":{"volumeName":"probe"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// refuse makes the API server refuse an operation, which try attempts, until allow is called.
func (s *scene) refuse(resource string, operation admissionv1.OperationType, validation admissionv1.Validation,
	try func(context.Context) error) (allow func()) {
	s.Helper()
	name := "no-" + resource
	meta := metav1.ObjectMeta{Name: name}
	policies := s.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := s.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(s.Context(), &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{operation},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}}},
		Validations: []admissionv1.Validation{validation},
	}}, metav1.CreateOptions{})
	s.Must(err)
	_, err = bindings.Create(s.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	s.Must(err)
	refused := func(ctx context.Context) bool {
		err := try(ctx)
		return err != nil && strings.Contains(err.Error(), validation.Message)
	}
	allow = func() {
		ctx := context.Background()
		err := errors.Join(ignoreNotFound(bindings.Delete(ctx, name, metav1.DeleteOptions{})),
			ignoreNotFound(policies.Delete(ctx, name, metav1.DeleteOptions{})))
		if err != nil {
			s.Errorf("allow %s again: %v", resource, err)
		}
		s.Must(s.await(ctx, resource+" are taken", limit, func(ctx context.Context) error { // the API server hears of it a little later
			if refused(ctx) {
				return errors.New("they are refused")
			}
			return nil
		}))
	}
	s.Cleanup(allow)
	s.Must(s.await(s.Context(), resource+" are refused", limit, func(ctx context.Context) error {
		if !refused(ctx) {
			return errors.New("they are taken")
		}
		return nil
	}))
	return allow
}

// staticVolume is a PersistentVolume that somebody makes by hand.
func staticVolume(name, handle string) *corev1.PersistentVolume {
	claim := lab.Claim("", "", "", "20Gi")
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      claim.Spec.Resources.Requests,
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              "by-hand",
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: lab.DriverName, VolumeHandle: handle}},
		},
	}
}

func TestUnsavedVolumeIsReportedAndKeepsItsDisk(t *testing.T) {
	for _, reason := range []metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid} {
		t.Run(string(reason), func(t *testing.T) {
			s := newScene(t)
			claim := "unsaved-" + strings.ToLower(string(reason))
			allow := s.refuseVolumes(reason)
			s.Must(s.claim(s.Context(), claim, atOnce))
			s.awaitEvent(namespace, claim, "no more volumes here")
			d := s.onlyDisk(claim)
			allow()
			if b := s.bound(claim); b.Disk() != d.ID {
				t.Errorf("the claim has disk %s, want %s", b.Disk(), d.ID)
			}
		})
	}
}

func TestUnsavedVolumeOfADeletedClaimLosesItsDisk(t *testing.T) {
	s := newScene(t)
	s.refuseVolumes(metav1.StatusReasonForbidden)
	s.Must(s.claim(s.Context(), "unsavable", atOnce))
	s.awaitEvent(namespace, "unsavable", "no more volumes here")
	s.onlyDisk("unsavable")
	s.kill(victims{provisioner: true})
	s.Must(s.deleteClaim(s.Context(), "unsavable"))
	s.Must(s.restart(s.Context(), victims{provisioner: true}))
	s.Must(s.settle(s.Context()))
}

func TestDiskOfAStaticVolumeIsLeftAlone(t *testing.T) {
	s := newScene(t)
	h := s.hold(moment{call: "POST persistentvolumes"}, func() error { return s.claim(s.Context(), "late", atOnce) })
	d := s.onlyDisk("late")
	volumes := s.Client.CoreV1().PersistentVolumes()
	_, err := volumes.Create(s.Context(), staticVolume(d.ID, d.ID), metav1.CreateOptions{})
	s.Must(err)
	h.release(pass)
	s.awaitEvent(namespace, "late", "exists already")
	if got := s.onlyDisk("late"); got.ID != d.ID {
		t.Errorf("disk %s is there, want %s", got.ID, d.ID)
	}
	s.Must(volumes.Delete(s.Context(), d.ID, metav1.DeleteOptions{}))
	if b := s.bound("late"); b.Disk() != d.ID {
		t.Errorf("the claim has disk %s, want %s", b.Disk(), d.ID)
	}
}

func TestClaimThatIsBeingDeletedGetsNoDisk(t *testing.T) {
	s := newScene(t)
	s.kill(victims{provisioner: true})
	s.Must(s.claim(s.Context(), "leaving", atOnce))
	s.patchClaim("leaving", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	s.Must(s.deleteClaim(s.Context(), "leaving"))
	s.Must(s.restart(s.Context(), victims{provisioner: true}))
	s.Must(s.claim(s.Context(), "witness", atOnce))
	s.bound("witness")
	if disks := s.disks("leaving"); len(disks) > 0 || s.count("CreateVolume") != 1 {
		t.Errorf("the driver was asked %d times, and there are %d disks for a claim that is being deleted", s.count("CreateVolume"), len(disks))
	}
	s.patchClaim("leaving", `{"metadata":{"finalizers":[]}}`)
}
