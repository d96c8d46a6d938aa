package diskdriver

import (
	"strings"
	"testing"
)

// TestADiskWithoutASerialNumberIsNotAttached: on the node nothing would tell which
// device it is. One that is attached all the same can be given up.
func TestADiskWithoutASerialNumberIsNotAttached(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.ok("create disk-2 size=20Gi zones=a type=cloud_essd")
		s.ok("publish d-2 i-a2")
		s.retell(func(answer map[string]any) {
			each(answer, "Disks", "Disk", func(d map[string]any) { d["SerialNumber"] = "" })
		})
		for _, command := range []string{"publish d-1 i-a1", "publish d-1 i-a1 ro", "publish d-2 i-a2"} {
			answer := s.say(command)
			if !strings.HasPrefix(answer, "FailedPrecondition: d-") || !strings.Contains(answer, "no serial number") || !strings.Contains(answer, "from a snapshot of it") {
				t.Errorf("%s: %s, want FailedPrecondition, the reason and what to do", command, answer)
			}
		}
		if n := s.sim.Count("AttachDisk", ""); n != 1 {
			t.Errorf("%d AttachDisk, want that of the disk that had a number then", n)
		}
		s.ok("unpublish d-2 i-a2")
		s.ok("delete d-1")
	})
}
