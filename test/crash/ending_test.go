//go:build e2e

package crash

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
)

// Ends that are no crashes, and what the provisioner leaves behind for others to see.

func TestStoppedLeaderFinishesAndHandsOverAtOnce(t *testing.T) {
	s := newScene(t)
	start := func(name string) {
		s.Must(s.Topodisk.StartProvisioner(s.Context(), name, append(slices.Clone(s.provisArgs), "--leader-election=true")...))
	}
	s.electLeaders()
	start(first)
	s.Must(s.claim(s.Context(), "before", atOnce))
	s.Must(s.await(s.Context(), "the first one leads", limit, func(context.Context) error {
		if len(s.disks("before")) == 0 {
			return errors.New("not yet")
		}
		return nil
	}))
	start(second)
	s.Must(s.Topodisk.AwaitReady(s.Context(), second))
	h := s.hold(moment{call: "CreateVolume", after: true}, func() error { return s.claim(s.Context(), "begun", atOnce) })
	d := s.onlyDisk("begun")
	s.Must(s.Topodisk.Signal(first, syscall.SIGTERM))
	s.Must(s.claim(s.Context(), "meanwhile", atOnce)) // for the next one
	time.Sleep(time.Second)
	if s.Topodisk.Ended(first) {
		t.Fatal("it ended with a call under way")
	}
	cancelled := s.csi.cancelled.Load()
	h.release(pass)
	s.awaitVolume(d.ID, "saved", func(pv *corev1.PersistentVolume) bool { return pv != nil })
	s.ends(first)
	ended := time.Now()
	s.Must(s.await(s.Context(), "the next one works", limit, func(context.Context) error {
		if len(s.disks("meanwhile")) == 0 {
			return errors.New("not yet")
		}
		return nil
	}))
	if took := time.Since(ended); took > 2*time.Second {
		t.Errorf("the next one worked %s after the first had ended, want 2s at most", took)
	}
	if n := s.csi.cancelled.Load(); n != cancelled {
		t.Errorf("%d calls to the driver were cancelled", n-cancelled)
	}
	s.bound("before")
	s.bound("begun")
	s.bound("meanwhile")
}

func TestProvisionerIsNotReadyBeforeItsCachesAre(t *testing.T) {
	s := newScene(t)
	const waiting = "waiting"
	thaw := s.freeze("persistentvolumes")
	defer thaw()
	s.Must(s.Topodisk.StartProvisioner(s.Context(), waiting, append(slices.Clone(s.provisArgs), "--leader-election=true")...))
	defer s.Topodisk.Kill(waiting)
	soon, cancel := context.WithTimeout(s.Context(), 3*time.Second)
	defer cancel()
	if err := s.Topodisk.AwaitReady(soon, waiting); err == nil || !strings.Contains(err.Error(), "caches are not full") {
		t.Errorf("it is ready, or says something else: %v", err)
	}
	s.Must(s.Topodisk.Signal(waiting, syscall.SIGTERM))
	s.ends(waiting)
}

func TestProvisionerOutlivesItsDriversSocket(t *testing.T) {
	s := newScene(t)
	restarts := s.restarts
	for n := range 3 {
		s.kill(victims{driver: true})
		claim := fmt.Sprintf("patient-%d", n)
		s.Must(s.claim(s.Context(), claim, atOnce))
		s.awaitEvent(namespace, claim, "Unavailable")
		s.Must(s.restart(s.Context(), victims{driver: true}))
		s.bound(claim)
	}
	if s.restarts != restarts || s.Topodisk.Ended(lab.ProvisionerName) {
		t.Errorf("the provisioner ended %d times", s.restarts-restarts)
	}
}

func TestSecondVolumeOfAClaimIsReportedAndDeleted(t *testing.T) {
	s := newScene(t)
	b := s.claimBound("doubled")
	second, err := s.driver().CreateVolume(s.Context(), &csi.CreateVolumeRequest{
		Name: "disk-by-a-driver-that-forgets", CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30}, Parameters: map[string]string{"type": "cloud_essd"},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		}},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{
			{Segments: map[string]string{"topology.kubernetes.io/zone": s.Zones()[0]}}}},
	})
	s.Must(err)
	id := second.Volume.VolumeId
	twin := b.Volume.DeepCopy()
	twin.ObjectMeta = metav1.ObjectMeta{Name: id, Annotations: b.Volume.Annotations, Finalizers: b.Volume.Finalizers}
	twin.Spec.CSI.VolumeHandle, twin.Status = id, corev1.PersistentVolumeStatus{}
	_, err = s.Client.CoreV1().PersistentVolumes().Create(s.Context(), twin, metav1.CreateOptions{})
	s.Must(err)
	s.awaitEvent(namespace, "doubled", "were all made for claim "+namespace+"/doubled")
	s.awaitVolume(id, "gone", isGone)
	state, err := s.Simulator.State(s.Context())
	s.Must(err)
	if slices.ContainsFunc(state.Disks, func(d ecssim.DiskState) bool { return d.ID == id }) {
		t.Errorf("disk %s is left", id)
	}
	if got := s.bound("doubled"); got.Disk() != b.Disk() {
		t.Errorf("the claim has disk %s, it had %s", got.Disk(), b.Disk())
	}
	if n := s.metric("topodisk_provisioner_duplicate_volumes_total"); n < 1 {
		t.Errorf("the metric says %v", n)
	}
}

// metric reads one series of the provisioner's metrics.
func (s *scene) metric(series string) float64 {
	s.Helper()
	return s.metricOf(lab.ProvisionerName, series)
}

// metricOf reads one series of the metrics of the provisioner of that name.
func (s *scene) metricOf(name, series string) float64 {
	s.Helper()
	answer, err := http.Get(s.URL(name, "/metrics"))
	s.Must(err)
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			s.Must(err)
			return n
		}
	}
	s.Fatalf("there is no metric %s", series)
	return 0
}

func TestVolumeWithoutFinalizerKeepsItsDisk(t *testing.T) {
	s := newScene(t)
	b := s.claimBound("old")
	s.kill(victims{provisioner: true})
	s.patchVolume(b.Volume.Name, `{"metadata":{"finalizers":["kubernetes.io/pv-protection"]}}`) // as csi-provisioner v1.6 has left it
	s.Must(s.restart(s.Context(), victims{provisioner: true}))
	s.awaitVolume(b.Volume.Name, "given the finalizer", func(pv *corev1.PersistentVolume) bool {
		return pv != nil && slices.Contains(pv.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer")
	})
	s.Must(s.Client.CoreV1().PersistentVolumes().Delete(s.Context(), b.Volume.Name, metav1.DeleteOptions{}))
	s.Must(s.deleteClaim(s.Context(), "old"))
	s.awaitVolume(b.Volume.Name, "gone", isGone)
	if disks := s.disks("old"); len(disks) > 0 {
		t.Errorf("disk %s is left", disks[0].ID)
	}
}

func TestCapacitiesGoWithTheProvisionersReplicaSet(t *testing.T) {
	s := newScene(t)
	const owner = "provisioner-owner"
	labels := map[string]string{"app": owner}
	set, err := s.Client.AppsV1().ReplicaSets(metav1.NamespaceSystem).Create(s.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: owner},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/c"}}},
		}},
	}, metav1.CreateOptions{})
	s.Must(err)
	pod := ""
	s.Must(s.await(s.Context(), "the ReplicaSet has its Pod", limit, func(ctx context.Context) error {
		list, err := s.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "app=" + owner})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("not yet")
		}
		if err == nil {
			pod = list.Items[0].Name
		}
		return err
	}))
	s.kill(victims{provisioner: true})
	s.Topodisk.Pod = pod
	s.Cleanup(func() {
		s.Topodisk.Pod = ""
		s.kill(victims{provisioner: true})
		s.Must(s.restart(context.Background(), victims{provisioner: true}))
	})
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, append(slices.Clone(s.provisArgs), "--capacity-ownerref-level=1")...))
	capacities := func(ctx context.Context, check func(metav1.OwnerReference) bool) error {
		list, err := s.Client.StorageV1().CSIStorageCapacities(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("there is none")
		}
		for _, object := range list.Items {
			if len(object.OwnerReferences) != 1 || !check(object.OwnerReferences[0]) {
				return fmt.Errorf("capacity %s of class %s has owners %v", object.Name, object.StorageClassName, object.OwnerReferences)
			}
		}
		return nil
	}
	s.Must(s.await(s.Context(), "every capacity is owned by the ReplicaSet", limit, func(ctx context.Context) error {
		return capacities(ctx, func(o metav1.OwnerReference) bool {
			return o.Kind == "ReplicaSet" && o.Name == owner && o.UID == set.UID
		})
	}))
	s.kill(victims{provisioner: true})
	s.Must(s.Client.AppsV1().ReplicaSets(metav1.NamespaceSystem).Delete(s.Context(), owner, metav1.DeleteOptions{}))
	s.Must(s.Await(s.Context(), "the capacities go with the ReplicaSet", limit, func(ctx context.Context) (bool, error) {
		list, err := s.Client.StorageV1().CSIStorageCapacities(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, err
	}))
}
