//go:build e2e

package crash

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
)

const limit = 60 * time.Second

// scene is the stage of one interleaving.
type scene struct {
	labtest.T
	*stage
}

// newScene clears the stage when the test is over, and holds what is left against what must be.
func newScene(t *testing.T) *scene {
	t.Helper()
	if *which != ours {
		t.Fatalf("this is a test of %s", ours)
	}
	s := &scene{T: labtest.T{T: t}, stage: shared}
	s.passed()
	t.Cleanup(func() {
		ctx := context.Background()
		err := errors.Join(s.calm(ctx), s.deleteAll(ctx))
		if err == nil {
			err = errors.Join(s.settle(ctx), s.nothingTwice(ctx))
		}
		if err != nil || t.Failed() {
			t.Errorf("%v\nthe calls were:\n  %s", err, strings.Join(s.passed(), "\n  "))
			s.recover(t)
		}
	})
	return s
}

// hold stops the next such call, begin makes it come, and hold returns when it is there.
func (s *scene) hold(m moment, begin func() error) *held {
	s.Helper()
	h := s.stopAt(m)
	err := begin()
	if err == nil {
		err = s.reach(s.Context(), h)
	}
	if err != nil {
		s.forget(h)
		s.Fatal(err)
	}
	return h
}

// withDiskUnheard makes a claim, and stops when its disk is made and the provisioner hasn't heard of it.
func (s *scene) withDiskUnheard(claim, class string) *held {
	s.Helper()
	return s.hold(moment{call: "CreateVolume", after: true}, func() error { return s.claim(s.Context(), claim, class) })
}

// restartProvisioner kills the provisioner and starts it with further flags, until the test is over.
func (s *scene) restartProvisioner(args ...string) {
	s.Helper()
	s.kill(victims{provisioner: true})
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, append(slices.Clone(s.provisArgs), args...)...))
	s.Cleanup(func() {
		s.kill(victims{provisioner: true})
		s.Must(s.restart(context.Background(), victims{provisioner: true}))
	})
}

// ends waits until the provisioner of that name has ended by itself.
func (s *scene) ends(name string) {
	s.Helper()
	s.Must(s.await(s.Context(), name+" ends", limit, func(context.Context) error {
		if !s.Topodisk.Ended(name) {
			return errors.New("it runs")
		}
		return nil
	}))
}

// disks are those of a claim that exist.
func (s *scene) disks(claim string) []ecssim.DiskState {
	s.Helper()
	disks, err := s.Simulator.Disks(s.Context(), namespace)
	s.Must(err)
	return slices.DeleteFunc(disks, func(d ecssim.DiskState) bool { return d.Tags[disk.ClaimNameTag] != claim })
}

func (s *scene) onlyDisk(claim string) ecssim.DiskState {
	s.Helper()
	disks := s.disks(claim)
	if len(disks) != 1 {
		s.Fatalf("there are %d disks for claim %s, want 1", len(disks), claim)
	}
	return disks[0]
}

// bound waits for a claim's volume.
func (s *scene) bound(claim string) lab.Bound {
	s.Helper()
	b, err := s.AwaitBound(s.Context(), namespace, claim, limit)
	s.Must(err)
	return b
}

func (s *scene) patchClaim(claim, patch string) {
	s.Helper()
	_, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Patch(s.Context(), claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

func (s *scene) patchVolume(name, patch string) {
	s.Helper()
	_, err := s.Client.CoreV1().PersistentVolumes().Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

func (s *scene) deletePod(name string) {
	s.Helper()
	now := int64(0)
	s.Must(s.Client.CoreV1().Pods(namespace).Delete(s.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// awaitEvent waits for an event about an object that says the text.
func (s *scene) awaitEvent(in, name, text string) {
	s.Helper()
	s.Must(s.await(s.Context(), name+" has an event that says "+text, limit, func(ctx context.Context) error {
		_, err := s.FindEvent(ctx, in, name, text)
		return err
	}))
}

// awaitVolume waits until a PersistentVolume is as it should be; nil stands for one that is gone.
func (s *scene) awaitVolume(name, what string, is func(*corev1.PersistentVolume) bool) {
	s.Helper()
	s.Must(s.await(s.Context(), "PersistentVolume "+name+" is "+what, limit, func(ctx context.Context) error {
		pv, err := s.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if ignoreNotFound(err) != nil {
			return err
		}
		if err != nil {
			pv = nil
		}
		if !is(pv) {
			return errors.New("not yet")
		}
		return nil
	}))
}

func isGone(pv *corev1.PersistentVolume) bool { return pv == nil }
