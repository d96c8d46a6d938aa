//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
)

// laterField is what a version to come may add to an order, laterFormat what it may make of orders.
const laterField, laterFormat = `"since":{"version":"99"},`, `"format":99,`

// TestJournalSurvivesUpgradeAndRollback replaces driver and provisioner while orders are under way and of
// unknown outcome: by a version that is older than what has written some of them, for they have fields that it doesn't know
// or a format that it can't read, and by the later one again. Those versions are played: the entries are edited while no
// provisioner runs.
func TestJournalSurvivesUpgradeAndRollback(t *testing.T) {
	s := newScene(t)
	s.Cleanup(s.restartController)
	state, err := s.Simulator.State(s.Context())
	s.Must(err)
	class := s.Class(atOnce, map[string]string{"type": "cloud_essd"})
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayAfter: 40 * time.Second, Count: 6})
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultError, Status: 503, Code: "ServiceUnavailable"})
	var names []string
	for n := range 12 {
		names = append(names, fmt.Sprintf("order-%d", n))
		s.Claim(names[n], class, "20Gi")
	}
	s.WaitFor("six disks are made and unheard, and all orders are in the journal", soon, func(ctx context.Context) (bool, error) {
		disks, err := s.Simulator.Disks(ctx, s.Namespace)
		return len(disks) == 6 && len(s.journal()) == 12, err
	})
	made, asked := s.aClaimWithDisk(names, true), s.aClaimWithDisk(names, false)
	s.Topodisk.Kill(lab.ProvisionerName)
	s.Topodisk.Kill(lab.DriverProgram)

	// The way back: the one that starts is older.
	original, edited := s.journal(), map[string]string{}
	for claim, order := range original {
		edit := laterField
		if claim == s.uid(made) || claim == s.uid(asked) {
			edit = laterFormat
		}
		edited[claim] = "{" + edit + strings.TrimPrefix(order, "{")
	}
	s.editJournal(edited)
	s.restartController()
	for _, claim := range []string{made, asked} {
		s.awaitEvent(claim, soon, "can't read", "key "+s.uid(claim))
	}
	s.WaitFor("the orders that it can read and whose disks are there have ended", late, func(context.Context) (bool, error) { return s.saved("d-") == 5, nil })
	s.drain(7) // five have ended, five wait for ECS, two for the other version
	kept := maps.Clone(edited)
	maps.DeleteFunc(kept, func(claim, _ string) bool { return s.journal()[claim] == "" })
	if diff := cmp.Diff(kept, s.journal()); diff != "" || len(kept) != 7 {
		t.Fatalf("the older version kept %d entries, want 7; as written before and after (-before +after):\n%s", len(kept), diff)
	}

	// The upgrade again.
	for claim := range kept {
		kept[claim] = original[claim]
	}
	s.editJournal(kept)
	s.Must(s.Simulator.ClearFaults(s.Context()))
	s.restartController()
	for _, name := range names {
		s.bound(name, late)
	}
	s.checkCrowd(names, state.DisksMade)
	s.drain(0)
}

// aClaimWithDisk returns a claim that has a disk in ECS, or one that has none.
func (s *scene) aClaimWithDisk(names []string, has bool) string {
	s.Helper()
	for _, name := range names {
		if len(s.disks(name)) > 0 == has {
			return name
		}
	}
	s.Fatalf("there is no claim whose having a disk is %v", has)
	return ""
}

func (s *scene) uid(claim string) string {
	s.Helper()
	c, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.Context(), claim, metav1.GetOptions{})
	s.Must(err)
	return string(c.UID)
}

// journal returns what the journal holds, by the claim's UID.
func (s *scene) journal() map[string]string {
	s.Helper()
	entries := map[string]string{}
	for _, page := range s.journalPages() {
		maps.Copy(entries, page.Data)
	}
	return entries
}

func (s *scene) journalPages() []corev1.ConfigMap {
	s.Helper()
	pages, err := s.Client.CoreV1().ConfigMaps(leaseNamespace).List(s.Context(),
		metav1.ListOptions{LabelSelector: "csi.storage.k8s.io/managed-by=disk-provisioner"})
	s.Must(err)
	return pages.Items
}

// editJournal puts other text in the place of entries.
func (s *scene) editJournal(entries map[string]string) {
	s.Helper()
	for _, page := range s.journalPages() {
		for claim := range page.Data {
			page.Data[claim] = entries[claim]
		}
		_, err := s.Client.CoreV1().ConfigMaps(leaseNamespace).Update(s.Context(), &page, metav1.UpdateOptions{})
		s.Must(err)
	}
}
