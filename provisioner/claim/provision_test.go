package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

func TestAVolumeIsNamedAfterItsDisk(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")}, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "blue-key"}, Data: map[string][]byte{"k": []byte("v")},
	}, testClaim())
	class := testClass(map[string]string{
		"type":                        "cloud_essd",
		"topodisk.io/strict-topology": "false",
		"csi.storage.k8s.io/fstype":   "xfs",
		"csi.storage.k8s.io/provisioner-secret-name":             "${pvc.annotations['team']}-key",
		"csi.storage.k8s.io/provisioner-secret-namespace":        "${pvc.namespace}",
		"csi.storage.k8s.io/controller-publish-secret-name":      "publish",
		"csi.storage.k8s.io/controller-publish-secret-namespace": "vault",
		"csi.storage.k8s.io/node-stage-secret-name":              "${pv.name}",
		"csi.storage.k8s.io/node-stage-secret-namespace":         "vault",
	})
	trimmed := testClaim(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, "team") }) // by the cache
	pv, outcome, err := b.provision(t.Context(), trimmed, class, "node-1")
	if err != nil || outcome != noVolume {
		t.Fatalf("got %v, %v", outcome, err)
	}
	wantRequest := &csi.CreateVolumeRequest{
		Name:          "disk-0f1e",
		CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs", MountFlags: []string{"noatime"}}},
		}},
		Parameters:                map[string]string{"type": "cloud_essd"},
		Secrets:                   map[string]string{"k": "v"},
		AccessibilityRequirements: b.zones.Requirement,
	}
	if diff := cmp.Diff(wantRequest, b.driver.Created[0], protocmp.Transform()); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if q := b.zones.Asked[0]; q.Strict || q.SelectedNode != "node-1" || q.ClaimName != "data" {
		t.Errorf("topology was asked %+v", q)
	}
	want := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:       "d-bp1",
			Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                            provisionertest.DriverName,
				"topodisk.io/volume-name":                                    "disk-0f1e",
				"volume.kubernetes.io/provisioner-deletion-secret-name":      "blue-key",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": "shop",
			},
		},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse("20Gi")},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			StorageClassName:              "essd",
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			MountOptions:                  []string{"noatime"},
			VolumeMode:                    ptr.To(v1.PersistentVolumeFilesystem),
			ClaimRef: &v1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: "0f1e", ResourceVersion: "1000",
			},
			NodeAffinity: topology.NodeAffinity([]*csi.Topology{{Segments: map[string]string{topology.WellKnownZoneKey: "zone-a"}}}),
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: provisionertest.DriverName, VolumeHandle: "d-bp1", FSType: "xfs",
				VolumeAttributes:           map[string]string{"type": "cloud_essd", "storage.kubernetes.io/csiProvisionerIdentity": "test-identity"},
				NodeStageSecretRef:         &v1.SecretReference{Name: "disk-0f1e", Namespace: "vault"},
				ControllerPublishSecretRef: &v1.SecretReference{Name: "publish", Namespace: "vault"},
			}},
		},
	}
	if diff := cmp.Diff(want, pv); diff != "" {
		t.Errorf("PersistentVolume (-want +got):\n%s", diff)
	}
	saved, err := b.api.CoreV1().PersistentVolumes().Get(t.Context(), "d-bp1", metav1.GetOptions{})
	if err != nil || saved.Spec.ClaimRef.UID != "0f1e" {
		t.Errorf("saved: %v, %v", saved, err)
	}
	if all := b.open(); all != 0 {
		t.Errorf("%d volumes are still under way", all)
	}
}

func TestARetrySendsTheSameBytes(t *testing.T) {
	b := newBench(t, []answer{unavailable(), {Err: status.Error(codes.Aborted, "no")}, unavailable(), made("d-bp1", 20*gib, "zone-a")})
	claim := testClaim()
	if _, outcome, _ := b.provision(t.Context(), claim, testClass(nil), "node-1"); outcome != maybeVolume {
		t.Fatalf("got %v", outcome)
	}
	// Everything that the first request was made from is different or gone.
	b.zones.Requirement, b.zones.Err = nil, &topology.Error{Reason: topology.NodeGone, Node: "node-1"}
	claim = testClaim(func(c *v1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("50Gi")
		c.Annotations[request.AnnSelectedNode] = "node-2"
	})
	for _, want := range []outcome{maybeVolume, maybeVolume, noVolume} {
		if _, outcome, err := b.provision(t.Context(), claim, testClass(map[string]string{"type": "cloud_auto"}), "node-2"); outcome != want {
			t.Fatalf("got %v (%v), want %v", outcome, err, want)
		}
	}
	marshal := proto.MarshalOptions{Deterministic: true}
	first, _ := marshal.Marshal(b.driver.Created[0])
	for i, request := range b.driver.Created {
		if bytes, _ := marshal.Marshal(request); string(bytes) != string(first) {
			t.Errorf("request %d differs from the first:\n%s", i, cmp.Diff(b.driver.Created[0], request, protocmp.Transform()))
		}
	}
}

func TestAFinalRefusalIsForgotten(t *testing.T) {
	b := newBench(t, []answer{{Err: status.Error(codes.InvalidArgument, "type=x")}, made("d-bp1", 50*gib, "zone-a")})
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != noVolume || !strings.Contains(fmt.Sprint(err), "type=x") {
		t.Fatalf("got %v, %v", outcome, err)
	}
	claim := testClaim(func(c *v1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("50Gi")
	})
	if _, _, err := b.provision(t.Context(), claim, testClass(nil), "node-1"); err != nil {
		t.Fatal(err)
	}
	if got := b.driver.Created[1].CapacityRange.RequiredBytes; got != 50*gib {
		t.Errorf("the second request asks for %d bytes", got)
	}
}

func TestASmallVolumeIsDeletedAgain(t *testing.T) {
	b := newBench(t, []answer{made("d-small", 10*gib, "zone-a"), made("d-bp1", 20*gib, "zone-a")})
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != noVolume || err == nil {
		t.Fatalf("got %v, %v", outcome, err)
	}
	if _, deletes := b.driver.Calls(); deletes != 1 || b.driver.Deleted[0].VolumeId != "d-small" {
		t.Errorf("deleted %v", b.driver.Deleted)
	}
	if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err != nil {
		t.Error(err)
	}
}

func TestASmallVolumeThatStaysIsReported(t *testing.T) {
	b := newBench(t, []answer{made("d-small", 10*gib, "zone-a")})
	b.driver.Answers = []error{status.Error(codes.Unavailable, "lost")}
	if _, outcome, _ := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != maybeVolume {
		t.Fatalf("got %v", outcome)
	}
	if events := b.drained(); len(events) != 2 || !strings.Contains(events[0], "ProvisioningCleanupFailed") || !strings.Contains(events[0], "d-small") {
		t.Errorf("events %q", events)
	}
}

func TestAnOwnedSmallVolumeIsNotDeleted(t *testing.T) {
	b := newBench(t, []answer{made("d-small", 10*gib, "zone-a")}, testVolume("d-small"))
	if _, outcome, _ := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != maybeVolume {
		t.Fatalf("got %v", outcome)
	}
	if _, deletes := b.driver.Calls(); deletes != 0 {
		t.Error("it was deleted")
	}
}

func TestAnAnswerWithoutAnIDIsDoubtful(t *testing.T) {
	for name, reply := range map[string]answer{"no volume": {}, "no ID": {Volume: &csi.Volume{}}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{reply})
			if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != maybeVolume || err == nil {
				t.Errorf("got %v, %v", outcome, err)
			}
		})
	}
}

func TestAnUnsavedVolumeIsNotMadeAgain(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")})
	failures := 3
	b.api.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
	})
	for range 3 {
		if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != notSent || !strings.Contains(fmt.Sprint(err), "d-bp1") {
			t.Fatalf("got %v, %v", outcome, err)
		}
	}
	if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err != nil {
		t.Fatal(err)
	}
	if creates, deletes := b.driver.Calls(); creates != 1 || deletes != 0 {
		t.Errorf("%d CreateVolume and %d DeleteVolume calls", creates, deletes)
	}
}

func TestAnExistingVolumeMustMatch(t *testing.T) {
	tests := map[string]struct {
		change func(*v1.PersistentVolume)
		want   string // in the error; empty for success
	}{
		"ours":                {change: func(*v1.PersistentVolume) {}},
		"of another claim":    {change: func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "other" }, want: "is not for claim shop/data"},
		"static":              {change: func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil }, want: "is not for claim shop/data"},
		"with another volume": {change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "d-other" }, want: "with another volume"},
		"of another driver":   {change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }, want: "with another volume"},
		"being deleted":       {change: func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = ptr.To(metav1.Now()) }, want: "still being deleted"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")}, testVolume("d-bp1", test.change))
			_, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			if test.want == "" && err != nil || test.want != "" && !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if _, deletes := b.driver.Calls(); deletes != 0 {
				t.Error("the disk was deleted")
			}
		})
	}
}

func TestALostVolumeIsCheckedBeforeAnother(t *testing.T) {
	bound := testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-bp1" })
	tests := map[string]struct {
		live    []runtime.Object
		outcome outcome
	}{
		"bound by now":  {live: []runtime.Object{bound}, outcome: notSent},
		"gone by now":   {outcome: notSent},
		"another one":   {live: []runtime.Object{testClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "other" })}, outcome: notSent},
		"still without": {live: []runtime.Object{testClaim()}, outcome: noVolume},
		"not bound yet": {live: []runtime.Object{testClaim(), testVolume("d-bp0")}, outcome: notSent},
		"its volume is another's by now": {
			live: []runtime.Object{testClaim(), testVolume("d-bp0", func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "other" })}, outcome: noVolume,
		},
	}
	for name, test := range tests {
		for begun, known := range map[string]bool{"a claim that is remembered": true, "one that nothing is remembered of": false} {
			t.Run(name+", "+begun, func(t *testing.T) {
				b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")}, test.live...)
				b.Lead()
				claim := testClaim(func(c *v1.PersistentVolumeClaim) { c.CreationTimestamp = metav1.NewTime(benchStart.Add(time.Hour)) })
				must(t, b.Claims.Add(claim))
				lost := testVolume("d-bp0", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeAvailable })
				must(t, b.Volumes.Add(lost))
				if b.VolumeChanged(nil, lost); known {
					b.Start(claim)
					_, _, _ = b.attempt(t.Context(), "0f1e")
				}
				if state := b.state("0f1e"); known != (state == "saved") {
					t.Fatalf("the claim is %s", state)
				}
				must(t, b.Volumes.Delete(lost))
				b.VolumeGone(lost)
				_, meaning, _ := b.provision(t.Context(), claim, testClass(nil), "node-1")
				if meaning != test.outcome {
					t.Errorf("got %v, want %v", meaning, test.outcome)
				}
				if creates, _ := b.driver.Calls(); (creates == 1) != (test.outcome == noVolume) {
					t.Errorf("%d CreateVolume calls", creates)
				}
				if slices.Contains(b.driver.First, true) {
					t.Error("the driver is told that no volume exists, although one may")
				}
			})
		}
	}
}

func TestAnUnsavableVolumeIsDeletedAfterItsClaim(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolume"}, "d-bp1", nil)
	tests := map[string]struct {
		err     error
		goes    bool                      // the claim, while its PersistentVolume is saved
		then    *v1.PersistentVolumeClaim // that has its name
		deleted bool
	}{
		"invalid, the claim is there": {err: invalid},
		"invalid, the claim is gone":  {err: invalid, goes: true, deleted: true},
		"forbidden, another claim": {
			err:  apierrors.NewForbidden(v1.Resource("persistentvolumes"), "d-bp1", nil),
			goes: true, then: testClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "other" }), deleted: true,
		},
		"forbidden, the claim is bound by now": {
			err:  apierrors.NewForbidden(v1.Resource("persistentvolumes"), "d-bp1", nil),
			goes: true, then: testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "static" }), deleted: true,
		},
		"etcd is slow, the claim is gone": {err: apierrors.NewInternalError(errors.New("etcd is slow")), goes: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")})
			b.api.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
				if test.goes {
					must(t, b.Claims.Delete(testClaim()))
				}
				if test.then != nil {
					must(t, b.Claims.Add(test.then))
				}
				return true, nil, test.err
			})
			if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err == nil && !test.deleted {
				t.Fatal("no error")
			}
			_, _, _ = b.attempt(t.Context(), "0f1e")
			if creates, deletes := b.driver.Calls(); creates != 1 || (deletes == 1) != test.deleted {
				t.Errorf("%d CreateVolume and %d DeleteVolume calls", creates, deletes)
			}
			if all := b.open(); (all == 0) != test.deleted {
				t.Errorf("%d volumes are under way", all)
			}
		})
	}
}

func TestSavingAVolumeHasADeadline(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")})
	deadline := false
	b.Syncer.api = &apiClient{clientFunc{Interface: b.api, create: func(ctx context.Context) { _, deadline = ctx.Deadline() }}}
	if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err != nil || !deadline {
		t.Errorf("it is saved with a deadline: %v, %v", deadline, err)
	}
}

// clientFunc hears of the context with which PersistentVolumes are made.
type clientFunc struct {
	kubernetes.Interface
	create func(context.Context)
}

func (c clientFunc) CoreV1() corev1client.CoreV1Interface {
	return coreFunc{c.Interface.CoreV1(), c.create}
}

type coreFunc struct {
	corev1client.CoreV1Interface
	create func(context.Context)
}

func (c coreFunc) PersistentVolumes() corev1client.PersistentVolumeInterface {
	return volumesFunc{c.CoreV1Interface.PersistentVolumes(), c.create}
}

type volumesFunc struct {
	corev1client.PersistentVolumeInterface
	create func(context.Context)
}

func (c volumesFunc) Create(ctx context.Context, pv *v1.PersistentVolume, o metav1.CreateOptions) (*v1.PersistentVolume, error) {
	c.create(ctx)
	return c.PersistentVolumeInterface.Create(ctx, pv, o)
}
