package main

import (
	"context"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
)

func (t *turn) podWithDisk(ctx context.Context) error {
	if err := t.runPod(ctx, lab.Claim(loadSpace, t.Name, className, claimSize), shellPod(loadSpace, t.Name, t.Name)); err != nil {
		return err
	}
	return t.drop(ctx, t.Name)
}

func (t *turn) immediateClaim(ctx context.Context) error {
	if err := t.makeClaim(ctx, lab.Claim(loadSpace, t.Name, immediateClass, claimSize)); err != nil {
		return err
	}
	if err := t.awaitBound(ctx, loadSpace, t.Name); err != nil {
		return err
	}
	return t.dropClaim(ctx, t.Name)
}

func (t *turn) rawBlock(ctx context.Context) error {
	claim, mode := lab.Claim(loadSpace, t.Name, className, claimSize), corev1.PersistentVolumeBlock
	claim.Spec.VolumeMode = &mode
	pod := shellPod(loadSpace, t.Name, t.Name)
	c := &pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/raw"}}
	c.Command[2] = "head -c 4096 /dev/raw >/dev/null || exit 1; trap exit TERM; while :; do sleep 3600 & wait; done"
	if err := t.runPod(ctx, claim, pod); err != nil {
		return err
	}
	return t.drop(ctx, t.Name)
}

// expansion has a volume grow while a Pod uses it.
func (t *turn) expansion(ctx context.Context) error {
	if err := t.runPod(ctx, lab.Claim(loadSpace, t.Name, className, claimSize), shellPod(loadSpace, t.Name, t.Name)); err != nil {
		return err
	}
	claims := t.lab.Client.CoreV1().PersistentVolumeClaims(loadSpace)
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, grownSize)
	err := t.try(ctx, "grow claim "+t.Name, func(ctx context.Context) error {
		_, err := claims.Patch(ctx, t.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return err
	}
	want := resource.MustParse(grownSize)
	err = t.wait(ctx, claimGrown, t.Name, func(ctx context.Context) (bool, error) {
		c, err := claims.Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		got := c.Status.Capacity[corev1.ResourceStorage]
		return got.Cmp(want) >= 0, nil
	})
	if err != nil {
		return err
	}
	return t.drop(ctx, t.Name)
}

var (
	snapshots       = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	snapshotClasses = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}
)

func snapshotObject(kind, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields}
	o.SetAPIVersion("snapshot.storage.k8s.io/v1")
	o.SetKind(kind)
	o.SetName(name)
	return o
}

// copies has a volume copied by way of a snapshot, and as a claim, and reads what the copies hold.
func (t *turn) copies(ctx context.Context) error {
	if err := t.runPod(ctx, lab.Claim(loadSpace, t.Name, className, claimSize), shellPod(loadSpace, t.Name, t.Name)); err != nil {
		return err
	}
	if err := t.holds(ctx, t.Name, t.Name); err != nil {
		return err
	}
	// A snapshot has what is on the disk, and a read shows what is in memory.
	err := t.try(ctx, "sync the disk of "+t.Name, func(ctx context.Context) error {
		_, err := t.onDisk(ctx, t.Name, dataFile, "sync", "-f")
		return err
	})
	if err != nil {
		return err
	}
	if err := t.cutSnapshot(ctx); err != nil {
		return err
	}
	group := snapshots.Group
	for name, source := range map[string]corev1.TypedLocalObjectReference{
		t.Name + restoredSuffix: {APIGroup: &group, Kind: "VolumeSnapshot", Name: t.Name},
		t.Name + cloneSuffix:    {Kind: "PersistentVolumeClaim", Name: t.Name},
	} {
		claim := lab.Claim(loadSpace, name, className, claimSize)
		claim.Spec.DataSource = &source
		if err := t.runPod(ctx, claim, shellPod(loadSpace, name, name)); err != nil {
			return err
		}
		if err := t.holds(ctx, name, t.Name); err != nil {
			return err
		}
		if err := t.drop(ctx, name); err != nil {
			return err
		}
	}
	if err := t.dropSnapshot(ctx); err != nil {
		return err
	}
	return t.drop(ctx, t.Name)
}

func (t *turn) cutSnapshot(ctx context.Context) error {
	s := snapshotObject("VolumeSnapshot", t.Name, map[string]any{"spec": map[string]any{
		"volumeSnapshotClassName": snapshotKind, "source": map[string]any{"persistentVolumeClaimName": t.Name},
	}})
	err := t.try(ctx, "make snapshot "+t.Name, func(ctx context.Context) error {
		_, err := t.objects.Resource(snapshots).Namespace(loadSpace).Create(ctx, s, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return t.wait(ctx, snapshotCut, t.Name, func(ctx context.Context) (bool, error) {
		got, err := t.objects.Resource(snapshots).Namespace(loadSpace).Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		ready, _, err := unstructured.NestedBool(got.Object, "status", "readyToUse")
		return ready, err
	})
}

func (t *turn) dropSnapshot(ctx context.Context) error {
	of := t.objects.Resource(snapshots).Namespace(loadSpace)
	if err := t.try(ctx, "delete snapshot "+t.Name, func(ctx context.Context) error { return of.Delete(ctx, t.Name, metav1.DeleteOptions{}) }); err != nil {
		return err
	}
	return poll(ctx, "snapshot "+t.Name+" is gone", waitLimit, func(ctx context.Context) (bool, error) {
		_, err := of.Get(ctx, t.Name, metav1.GetOptions{})
		return gone(err)
	})
}

// holds checks that a Pod's disk holds the name of the Pod that wrote to it first.
func (t *turn) holds(ctx context.Context, pod, want string) error {
	return poll(ctx, fmt.Sprintf("the disk of %s holds %s", pod, want), time.Minute, func(ctx context.Context) (bool, error) {
		got, err := t.read(ctx, pod, dataFile)
		if err == nil && got != want {
			err = fmt.Errorf("it holds %q", got)
		}
		return err == nil, err
	})
}

// read reads a file of a Pod's disk.
func (t *turn) read(ctx context.Context, pod, file string) (string, error) {
	return t.onDisk(ctx, pod, file, "cat")
}

// onDisk runs a command with a file of a Pod's disk as its argument, on the Pod's node.
func (t *turn) onDisk(ctx context.Context, pod, file string, command ...string) (string, error) {
	p, err := t.lab.Client.CoreV1().Pods(loadSpace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	var claim string
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claim = v.PersistentVolumeClaim.ClaimName
		}
	}
	c, err := t.lab.Client.CoreV1().PersistentVolumeClaims(loadSpace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	node := t.lab.RealNode(p.Spec.NodeName)
	if node == nil {
		return "", fmt.Errorf("%s is on no node", pod)
	}
	at := path.Join("/var/lib/kubelet/pods", string(p.UID), "volumes/kubernetes.io~csi", c.Spec.VolumeName, "mount", file)
	return node.Exec(ctx, append(command, at)...)
}

// namespaceDeleted deletes a namespace with all that is in it.
func (t *turn) namespaceDeleted(ctx context.Context) error {
	namespace := t.namespace()
	spaces := t.lab.Client.CoreV1().Namespaces()
	err := t.try(ctx, "make namespace "+namespace, func(ctx context.Context) error {
		_, err := spaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	err = poll(ctx, namespace+" has its ServiceAccount", waitLimit, func(ctx context.Context) (bool, error) {
		_, err := t.lab.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if err := t.makeClaim(ctx, lab.Claim(namespace, "alone", immediateClass, claimSize)); err != nil {
		return err
	}
	if err := t.runPod(ctx, lab.Claim(namespace, "data", className, claimSize), shellPod(namespace, "data", "data")); err != nil {
		return err
	}
	remove := func(ctx context.Context) error { return spaces.Delete(ctx, namespace, metav1.DeleteOptions{}) }
	if err := t.try(ctx, "delete namespace "+namespace, remove); err != nil {
		return err
	}
	return t.wait(ctx, allGone, namespace, func(ctx context.Context) (bool, error) {
		_, err := spaces.Get(ctx, namespace, metav1.GetOptions{})
		return gone(err)
	})
}

// replicas are those of the StatefulSet that is there from the beginning to the end.
const replicas = 3
