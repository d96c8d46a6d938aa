//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/topodisk/topodisk/test/lab"
)

const snapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

var (
	snapshotKind = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	contentKind  = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
)

// snapshot is a VolumeSnapshot that this test keeps, in the snapshot-controller's place.
type snapshot struct {
	s       *scene
	name    string
	handle  string
	objects dynamic.Interface
}

// driver returns the driver's own socket, past the gates.
func (s *scene) driver() csi.ControllerClient {
	s.Helper()
	conn, err := grpc.NewClient("unix://"+s.Topodisk().Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	s.Cleanup(func() { conn.Close() })
	return csi.NewControllerClient(conn)
}

// snapshot takes a snapshot of a claim's disk. It is not ready until somebody says so.
func (s *scene) snapshot(name, claim string) *snapshot {
	s.Helper()
	state, err := s.Simulator.State(s.Context())
	s.must(err)
	doubts := state.Doubts
	doubts.SnapshotUnattached = []string{"cloud_essd", "cloud_auto"} // no Pod has had the disk
	s.must(s.Simulator.SetDoubts(s.Context(), doubts))
	s.Cleanup(func() { s.must(s.Simulator.SetDoubts(context.Background(), state.Doubts)) })
	driver, source := s.driver(), s.onlyDisk(claim).ID
	x := &snapshot{s: s, name: name}
	s.must(s.await(s.Context(), "the snapshot is taken", limit, func(ctx context.Context) error {
		taken, err := driver.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source})
		x.handle = taken.GetSnapshot().GetSnapshotId()
		if err == nil && !taken.GetSnapshot().GetReadyToUse() {
			err = errors.New("it is not ready")
		}
		return err
	}))
	x.objects, err = s.Dynamic()
	s.must(err)
	made := x.make(snapshotKind, namespace, map[string]any{"source": map[string]any{"persistentVolumeClaimName": claim}})
	x.make(contentKind, "", map[string]any{
		"deletionPolicy": "Delete", "driver": lab.DriverName, "source": map[string]any{"volumeHandle": source}, "sourceVolumeMode": "Filesystem",
		"volumeSnapshotRef": map[string]any{"namespace": namespace, "name": name, "uid": string(made.GetUID())},
	})
	s.must(x.status(contentKind, "", fmt.Sprintf(`{"snapshotHandle":%q,"readyToUse":true}`, x.handle)))
	s.must(x.status(snapshotKind, namespace, fmt.Sprintf(`{"boundVolumeSnapshotContentName":%q,"readyToUse":false}`, name)))
	s.Cleanup(func() {
		ctx := context.Background()
		err := ignoreNotFound(x.objects.Resource(snapshotKind).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
		s.must(errors.Join(err, x.objects.Resource(contentKind).Delete(ctx, name, metav1.DeleteOptions{})))
	})
	return x
}

func (x *snapshot) make(kind schema.GroupVersionResource, namespace string, spec map[string]any) *unstructured.Unstructured {
	x.s.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(kind.GroupVersion().WithKind(map[schema.GroupVersionResource]string{snapshotKind: "VolumeSnapshot", contentKind: "VolumeSnapshotContent"}[kind]))
	object.SetName(x.name)
	made, err := x.objects.Resource(kind).Namespace(namespace).Create(x.s.Context(), object, metav1.CreateOptions{})
	x.s.must(err)
	return made
}

func (x *snapshot) status(kind schema.GroupVersionResource, namespace, status string) error {
	_, err := x.objects.Resource(kind).Namespace(namespace).Patch(x.s.Context(), x.name, types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
	return err
}

// ready says that a volume can be made of the snapshot.
func (x *snapshot) ready() error {
	return x.status(snapshotKind, namespace, `{"readyToUse":true,"restoreSize":"20Gi"}`)
}

// delete deletes the VolumeSnapshot.
func (x *snapshot) delete() error {
	return x.objects.Resource(snapshotKind).Namespace(namespace).Delete(x.s.Context(), x.name, metav1.DeleteOptions{})
}

// finalizers returns those of the VolumeSnapshot, and false if it is gone.
func (x *snapshot) finalizers(ctx context.Context) ([]string, bool, error) {
	object, err := x.objects.Resource(snapshotKind).Namespace(namespace).Get(ctx, x.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return object.GetFinalizers(), true, nil
}

// claimFrom makes a claim that is to be filled from a VolumeSnapshot.
func (s *scene) claimFrom(claim, snapshot string) error {
	group := snapshotKind.Group
	object := lab.Claim(namespace, claim, atOnce, "20Gi")
	object.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: snapshot}
	_, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Create(s.Context(), object, metav1.CreateOptions{})
	return err
}

func TestSnapshotDeletedWhileItsRestoreIsUnheardLeavesNoDisk(t *testing.T) {
	for n, c := range []struct {
		what   string
		forced bool
	}{{"and is kept until then", false}, {"and somebody takes its finalizers off", true}} {
		t.Run(c.what, func(t *testing.T) {
			s := newScene(t)
			claim := fmt.Sprintf("restored-%d", n)
			s.claimBound(claim + "-original")
			snap := s.snapshot(claim+"-snapshot", claim+"-original")
			s.must(snap.ready())
			h := s.hold(moment{call: "CreateVolume", after: true}, func() error { return s.claimFrom(claim, snap.name) })
			s.onlyDisk(claim)
			s.must(snap.delete())
			finalizers, there, err := snap.finalizers(s.Context())
			if err != nil || !there || !slices.Contains(finalizers, snapshotFinalizer) {
				t.Errorf("the snapshot is not kept while a volume is made of it: %v, there %v, %v", finalizers, there, err)
			}
			if c.forced {
				_, err := snap.objects.Resource(snapshotKind).Namespace(namespace).Patch(s.Context(), snap.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				s.must(err)
			}
			h.release(lose)
			s.must(s.deleteClaim(s.Context(), claim))
			s.must(s.await(s.Context(), "the snapshot is let go", limit, func(ctx context.Context) error {
				finalizers, there, err := snap.finalizers(ctx)
				if err == nil && there {
					err = fmt.Errorf("it has finalizers %v", finalizers)
				}
				return err
			}))
		})
	}
}
