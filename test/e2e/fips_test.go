//go:build e2e

package e2e

import (
	"testing"
)

// Both programs refuse cryptography that FIPS 140-3 doesn't approve, and serve a Pod: over TLS with the API server, with signed
// requests to ECS.
func TestFIPSModeServesAPod(t *testing.T) {
	s := newScene(t)
	s.Topodisk.Env = []string{"GODEBUG=fips140=only"}
	s.Cleanup(func() {
		s.Topodisk.Env = nil
		s.restartController()
	})
	s.restartController()
	s.podWithClaim("approved", s.Class(waits, essdThenAuto), "20Gi")
	b, d := s.bound("approved", late)
	s.running("approved", d)
	s.deletePods()
	s.deleteClaim("approved")
	s.awaitNoVolume(b.Volume.Name)
	if left := s.disks("approved"); len(left) > 0 {
		t.Errorf("disk %s is left", left[0].ID)
	}
}
