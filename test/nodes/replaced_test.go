//go:build e2enodes

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/labtest"
)

// TestAVolumeAttachmentOutlivesItsVolume: a PersistentVolume is replaced by one of another disk under its claim, while a Pod waits on a node
// for the first disk, and csi-attacher attaches the second disk for the VolumeAttachment of the first. The node refuses that, and neither
// disk is written to.
func TestAVolumeAttachmentOutlivesItsVolume(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ formatted, block bool }{
		"blank disks": {}, "file systems": {formatted: true}, "block volumes": {formatted: true, block: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			newDisk := s.smallDisk
			if row.formatted {
				newDisk = func() string { id, _ := s.formattedDisk(); return id }
			}
			first, second := newDisk(), newDisk()
			before := s.sums(first, second)
			mode, pod := func(*corev1.PersistentVolume) {}, func(*corev1.Pod) {}
			if row.block {
				mode, pod = asBlockVolume, asBlock
			}
			s.static("data", first, "", mode, retained)
			claim, err := s.AwaitBound(s.Context(), s.Namespace, "data", soon)
			s.Must(err)
			s.Must(s.Client.CoreV1().PersistentVolumes().Delete(s.Context(), claim.Volume.Name, metav1.DeleteOptions{}))
			s.Pod("app", "data", labtest.OnNode(here), pod, func(p *corev1.Pod) {
				p.Spec.Containers[0].Command = []string{"sh", "-c", "echo mine | tee /data/file /dev/data; sync; trap exit TERM; while :; do sleep 1; done"}
			})
			s.WaitFor("the kubelet wants the first disk", late, func(ctx context.Context) (bool, error) { return s.isInUse(ctx, first) })
			s.WaitFor("the PersistentVolume can't be attached any more", soon, func(context.Context) (bool, error) {
				return s.says("app", "is marked for deletion")
			})
			stale := s.attachmentOf("data").Name
			s.replaceVolume(claim.Volume, second, mode)
			s.WaitFor("the second disk is attached for the first", soon, func(ctx context.Context) (bool, error) {
				va, err := s.Client.StorageV1().VolumeAttachments().Get(ctx, stale, metav1.GetOptions{})
				return err == nil && va.Status.Attached && va.Status.AttachmentMetadata[disk.VolumeKey] == second, err
			})
			s.WaitFor("the Pod is told", late, func(context.Context) (bool, error) { return s.says("app", "the context is of another volume") })
			for _, id := range []string{first, second} {
				if mounts, err := s.RealNode(here).Mounts(id); err != nil || len(mounts) > 0 {
					t.Errorf("mounted are %v, %v", mounts, err)
				}
			}
			if after := s.sums(first, second); !slices.Equal(after, before) {
				t.Errorf("the disks had the checksums %v and have %v", before, after)
			}

			s.remove("app") // as its event says
			s.WaitFor("its VolumeAttachment is gone", soon, func(ctx context.Context) (bool, error) {
				_, err := s.Client.StorageV1().VolumeAttachments().Get(ctx, stale, metav1.GetOptions{})
				return apierrors.IsNotFound(err), nil
			})
			s.runs("next", "data", labtest.OnNode(here), pod)
			if at := s.attachedTo(second); len(at) != 1 || len(s.attachedTo(first)) > 0 {
				t.Errorf("the second disk is attached to %v, the first to %v", at, s.attachedTo(first))
			}
			s.refusesToPublish(pod, first, second)
			s.Must(s.ecs().Delete(s.Context(), disk.ID(first)))
		})
	}
}

// isInUse says whether the kubelet reports a disk as one that a Pod of its node wants: it keeps the PersistentVolume that it has found then.
func (s *scene) isInUse(ctx context.Context, id string) (bool, error) {
	node, err := s.Client.CoreV1().Nodes().Get(ctx, here, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(node.Status.VolumesInUse, func(v corev1.UniqueVolumeName) bool { return strings.HasSuffix(string(v), "^"+id) }), nil
}

// refusesToPublish has a further Pod come to the node that has staged the second disk, when the VolumeAttachment has the context of the first
// one, then such a context of the version before, and at last its own again.
func (s *scene) refusesToPublish(pod func(*corev1.Pod), first, second string) {
	s.Helper()
	va := s.attachmentOf("data")
	setContext := func(volume, serial string) {
		patch := fmt.Sprintf(`{"status":{"attachmentMetadata":{%q:%s,%q:%q}}}`, disk.VolumeKey, volume, disk.SerialKey, strings.TrimPrefix(serial, "d-"))
		_, err := s.Client.StorageV1().VolumeAttachments().Patch(s.Context(), va.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		s.Must(err)
	}
	refused := func(why string) {
		s.WaitFor("the Pod is told "+why, late, func(context.Context) (bool, error) { return s.says("beside", why) })
	}
	setContext(strconv.Quote(first), first)
	s.Pod("beside", "data", labtest.OnNode(here), pod)
	refused(`and volume_id is "` + second)
	setContext("null", first)
	refused("and the serial number of disk " + second)
	setContext(strconv.Quote(second), second)
	s.running("beside", late)
}

func asBlockVolume(pv *corev1.PersistentVolume) {
	block := corev1.PersistentVolumeBlock
	pv.Spec.VolumeMode = &block
}

func retained(pv *corev1.PersistentVolume) {
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

// sums are checksums of disks as ECS has them, and of where zeros have been written.
func (s *scene) sums(ids ...string) (sums []string) {
	s.Helper()
	for _, id := range ids {
		sums = append(sums, s.tool("", "sh", "-c", `tar --create --sparse --mtime=@0 --directory="$0" "$1" | sha256sum`, filepath.Dir(s.body(id)), id))
	}
	return sums
}

// replaceVolume puts another of the same name, with another disk, in the place of a PersistentVolume that is being deleted, and returns when
// the claim is bound to it.
func (s *scene) replaceVolume(was *corev1.PersistentVolume, id string, change ...func(*corev1.PersistentVolume)) {
	s.Helper()
	volumes, claim := s.Client.CoreV1().PersistentVolumes(), *was.Spec.ClaimRef
	_, err := volumes.Patch(s.Context(), was.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	s.Must(err)
	s.WaitFor("the PersistentVolume is gone", soon, func(ctx context.Context) (bool, error) {
		_, err := volumes.Get(ctx, was.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	s.staticVolume(was.Name, id, claim, change...)
	s.WaitFor("the claim is bound again", soon, func(ctx context.Context) (bool, error) {
		s.PatchClaim(claim.Name, fmt.Sprintf(`{"metadata":{"annotations":{"changed":%q}}}`, time.Now())) // else it is looked at every 15 s
		c, err := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		return err == nil && c.Status.Phase == corev1.ClaimBound, err
	})
}
