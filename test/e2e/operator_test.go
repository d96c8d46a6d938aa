//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/lab"
)

// journalSays runs disk-provisioner journal with a kubeconfig, and returns what it prints and its exit code.
func (s *scene) journalSays(kubeconfig string, args ...string) (said string, code int) {
	s.Helper()
	args = append(append([]string{"journal"}, args...), "--kubeconfig="+kubeconfig, "--leader-election-namespace="+leaseNamespace)
	command := exec.CommandContext(s.Context(), s.Program(lab.ProvisionerName), args...)
	command.Env = append(os.Environ(), "KUBECONFIG=")
	out, err := command.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		s.Fatal(err)
	}
	return string(out), command.ProcessState.ExitCode()
}

// wantJournalSays checks the exit code, and that the output has all texts.
func (s *scene) wantJournalSays(code int, texts []string, kubeconfig string, args ...string) {
	s.Helper()
	said, got := s.journalSays(kubeconfig, args...)
	if got != code {
		s.Errorf("journal %q ends with %d, want %d", args, got, code)
	}
	for _, text := range texts {
		if !strings.Contains(said, text) {
			s.Errorf("journal %q doesn't say %q:\n%s", args, text, said)
		}
	}
}

// unclear makes a claim whose disk ECS never tells about, waits until the journal has it, and returns its UID.
func (s *scene) unclear(name, class string) (uid string) {
	s.Helper()
	s.Claim(name, class, "30Gi")
	uid = s.uid(name)
	s.WaitFor("the journal has claim "+name, soon, func(context.Context) (bool, error) { return s.journal()[uid] != "", nil })
	s.awaitEvent(name, soon, "CreateVolume")
	return uid
}

// awaitEnded waits until a record is gone, of which the claim's event has the reason.
func (s *scene) awaitEnded(claim, uid, reason string) {
	s.Helper()
	s.WaitFor("the journal forgets claim "+claim, soon, func(context.Context) (bool, error) { return s.journal()[uid] == "", nil })
	s.WaitFor("an event tells why the record was ended", soon, func(ctx context.Context) (bool, error) {
		events, err := s.Events(ctx, s.Namespace, claim)
		for _, e := range events {
			if e.Reason == "ProvisioningEnded" && strings.Contains(e.Message, reason) && string(e.InvolvedObject.UID) == uid {
				return true, nil
			}
		}
		return false, err
	})
}

// putAlike puts a record for a claim's volume that is like another one into the journal, while no provisioner runs, and returns
// what removes it.
func (s *scene) putAlike(record, key string) (remove func()) {
	s.Helper()
	like, err := request.Decode([]byte(s.journal()[record]))
	s.Must(err)
	like.Claim.UID, like.Create.Name = types.UID(key), "disk-"+key
	text, err := like.Encode()
	s.Must(err)
	edit := func(change func(entries map[string]string)) {
		s.Helper()
		for _, page := range s.journalPages() {
			if page.Data[record] != "" {
				change(page.Data)
				_, err := s.Client.CoreV1().ConfigMaps(leaseNamespace).Update(s.Context(), &page, metav1.UpdateOptions{})
				s.Must(err)
			}
		}
	}
	edit(func(entries map[string]string) { entries[key] = string(text) })
	return func() { edit(func(entries map[string]string) { delete(entries, key) }) }
}

// TestOperatorEndsARecord ends records whose outcome nobody can prove, with the provisioner's own permissions: while a leader
// runs, and while none does.
func TestOperatorEndsARecord(t *testing.T) {
	s := newScene(t)
	s.Cleanup(s.restartController)
	class := s.Class(atOnce, map[string]string{"type": "cloud_essd"})
	s.fault(ecssim.Fault{Action: "CreateDisk", Params: map[string]string{"Size": "^30$"}, Do: ecssim.FaultError, Status: 503, Code: "ServiceUnavailable"})
	first, second := s.unclear("first", class), s.unclear("second", class)
	s.Claim("saved", class, "20Gi")
	bound, _ := s.bound("saved", late)
	ours := s.Topodisk.Kubeconfig
	record := []string{first, s.Namespace + "/first", "disk-" + first, class, "ServiceUnavailable"}
	s.wantJournalSays(0, append(record, second), s.Kubeconfig, "list", "--events")
	s.wantJournalSays(0, append(record, "Pending", "PersistentVolume now:", `"capacityRange"`), s.Kubeconfig, "show", first, "--events")
	s.wantJournalSays(0, []string{first, second, "see --events"}, ours, "list")
	s.wantJournalSays(1, []string{"CLAIM-UID", "no-such-uid", "allowed are the UIDs"}, ours, "show", "no-such-uid")
	s.wantJournalSays(1, []string{"CLAIM-UID", "no-such-uid"}, ours, "end", "no-such-uid", "--reason=none")
	s.wantJournalSays(1, []string{`--reason is ""`}, ours, "end", first)
	s.wantJournalSays(1, []string{first, "claim " + s.Namespace + "/first still wants a volume"}, ours, "end", first, "--reason=none")

	s.deleteClaim("first")
	s.wantJournalSays(0, []string{"The record of claim " + first + " is ended."}, ours, "end", first, "--reason=the account is closed")
	s.awaitEnded("first", first, "the account is closed")

	s.deleteClaim("second")
	saved := string(bound.Claim.UID)
	s.Topodisk.Kill(lab.ProvisionerName)
	remove := s.putAlike(second, saved)
	s.wantJournalSays(1, []string{saved, "PersistentVolume " + bound.Volume.Name + " stands for its volume"}, ours, "end", saved, "--reason=none")
	remove()
	s.wantJournalSays(1, []string{"no leader has handled the request"}, ours, "end", second, "--reason=moved away", "--wait=0s")
	s.wantJournalSays(0, []string{"to be ended: moved away"}, s.Kubeconfig, "list", "--events")
	s.restartProvisioner()
	s.awaitEnded("second", second, "moved away")
	s.drain(0)
}
