//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/lab"
)

// What somebody does to the journal's ConfigMaps while it is needed.

// firstPage is the ConfigMap that a journal of few orders is in.
var firstPage = request.JournalName(lab.DriverName) + "-0"

func (s *scene) deleteShard(name string) {
	s.Helper()
	s.Must(s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(context.Background(), name, metav1.DeleteOptions{})) // in clean-ups, too
}

// awaitEntry waits until the journal has the order for a claim, and returns the ConfigMap that has it.
func (s *scene) awaitEntry(claim types.UID) (shard string) {
	s.Helper()
	s.Must(s.await(s.Context(), "the journal has claim "+string(claim), limit, func(ctx context.Context) error {
		list, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(ctx,
			metav1.ListOptions{LabelSelector: "csi.storage.k8s.io/managed-by=disk-provisioner"})
		if err != nil {
			return err
		}
		for _, configMap := range list.Items {
			if configMap.Data[string(claim)] != "" {
				shard = configMap.Name
				return nil
			}
		}
		return fmt.Errorf("none of its %d ConfigMaps has it", len(list.Items))
	}))
	return shard
}

func (s *scene) uid(claim string) types.UID {
	s.Helper()
	c, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Get(s.Context(), claim, metav1.GetOptions{})
	s.Must(err)
	return c.UID
}

// P6: the API server takes no more writes of a ConfigMap that is immutable.
func TestPageThatCannotBeWrittenHoldsUpNoOtherClaim(t *testing.T) {
	s := newScene(t)
	s.Must(s.claim(s.Context(), "first", atOnce))
	s.bound("first")
	_, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Patch(s.Context(), firstPage,
		types.MergePatchType, []byte(`{"immutable":true}`), metav1.PatchOptions{})
	s.Must(err)
	s.Cleanup(func() { s.deleteShard(firstPage) })
	for n := range 5 {
		name := fmt.Sprintf("next-%d", n)
		s.Must(s.claim(s.Context(), name, atOnce))
		s.bound(name)
	}
}

// P7: the orders that a deleted ConfigMap held are in it again before anything else can happen to them.
func TestDeletedJournalForgetsNoDisk(t *testing.T) {
	for claim, test := range map[string]struct {
		what  string
		after func(s *scene, before string)
	}{
		"alone":   {"nothing else happens", func(*scene, string) {}},
		"written": {"the next order is written", func(s *scene, _ string) { s.Must(s.claim(s.Context(), "next", atOnce)); s.bound("next") }},
		"taken":   {"the next order is taken out", func(s *scene, before string) { s.deleteBound(before) }},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newScene(t)
			before, orphan := "before-"+claim, "orphan-"+claim
			s.Must(s.claim(s.Context(), before, atOnce))
			s.bound(before)
			h := s.withDiskUnheard(orphan, atOnce)
			d, uid, restarts := s.onlyDisk(orphan), s.uid(orphan), s.restarts
			s.deleteShard(s.awaitEntry(uid))
			test.after(s, before)
			s.awaitEntry(uid)
			if s.restarts != restarts || s.Topodisk.Ended(lab.ProvisionerName) {
				t.Error("the provisioner has ended by itself")
			}
			s.Must(s.deleteClaim(s.Context(), orphan)) // nobody will ask for it again
			s.awaitNoClaim(orphan)
			s.kill(victims{provisioner: true})
			h.release(lose)
			s.Must(s.restart(s.Context(), victims{provisioner: true}))
			s.Must(s.await(s.Context(), "disk "+d.ID+" is gone", limit, func(context.Context) error {
				if len(s.disks(orphan)) > 0 {
					return errors.New("it is there")
				}
				return nil
			}))
		})
	}
}

// deleteBound deletes a claim, and waits until its volume is gone.
func (s *scene) deleteBound(claim string) {
	s.Helper()
	b := s.bound(claim)
	s.Must(s.deleteClaim(s.Context(), claim))
	s.awaitVolume(b.Volume.Name, "gone", isGone)
}
