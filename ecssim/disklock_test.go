package ecssim_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
)

func TestALockShowsAndAPaymentKeepsTheDiskOff(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	id := create(t, c, nil)
	shown := func() string {
		var reasons []string
		for _, lock := range describe(t, c, nil).Disks.Disk[0].OperationLocks.OperationLock {
			reasons = append(reasons, lock.LockReason)
		}
		return strings.Join(reasons, " ")
	}
	if status, text := admin(t, s, "POST", "/_sim/locks", `{"disk":"`+id+`","reasons":["financial","security"]}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if got := shown(); got != "financial security" {
		t.Errorf("locks %q", got)
	}
	wantCode(t, attach(c, "i-1", id), 403, "DiskInArrears")
	if err := s.LockDisk(id); err != nil || shown() != "" {
		t.Errorf("unlocked: locks %q, error %v", shown(), err)
	}
	if err := attach(c, "i-1", id); err != nil {
		t.Error(err)
	}
	for _, bad := range []error{s.LockDisk("d-none"), s.LockDisk(id, "mood")} {
		if e := (*ecssim.ConfigError)(nil); !errors.As(bad, &e) {
			t.Errorf("error %v", bad)
		}
	}
}
