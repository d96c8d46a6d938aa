package diskdriver

import (
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
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

// ECS need not show that a regional disk was taken from an instance by force, so it is new only to a publish that takes it from nobody.
func TestARegionalDiskIsNewUntilItIsPublished(t *testing.T) {
	const (
		refused = "fault error action=AttachDisk status=403 code=InstanceDiskLimitExceeded"
		behind  = "fault stale action=DescribeDisks lag=1m count=1"
	)
	for name, test := range map[string]struct {
		before []string
		want   string
	}{
		"refused before":                  {[]string{refused, "publish d-1 i-a1"}, "new"},
		"refused before, on another node": {[]string{refused, "publish d-1 i-a2", "unpublish d-1 i-a2"}, "new"},
		"not sent before":                 {[]string{"fault refused action=AttachDisk", "publish d-1 i-a1 timeout=1s"}, "new"},
		"refused to another process":      {[]string{refused, "publish d-1 i-a1", "restart"}, "in-use"},
		"taken by hand meanwhile, and no read shows when it was let go":  {[]string{refused, "publish d-1 i-a1", "by-hand attach d-1 i-b1", "by-hand take d-1 i-a1"}, "in-use"},
		"taken by hand, reads lag, and no read shows when it was let go": {[]string{refused, "publish d-1 i-a1", "advance 2m", "by-hand attach d-1 i-b1", "by-hand take d-1 i-a1", behind}, "in-use"},
		"used by hand meanwhile": {[]string{refused, "publish d-1 i-a1", "by-hand attach d-1 i-b1", "by-hand detach d-1 i-b1"}, "in-use"},
		"published elsewhere":    {[]string{refused, "publish d-1 i-a1", "publish d-1 i-b1", "unpublish d-1 i-b1"}, "in-use"},
		"published elsewhere, and no read shows when it was let go": {[]string{refused, "publish d-1 i-a1", "publish d-1 i-b1", "unpublish d-1 i-b1"}, "in-use"},
		"taken from another node":                                   {[]string{"publish d-1 i-b1"}, "in-use"},
		"taken from another node at second try":                     {[]string{"publish d-1 i-b1", "publish d-1 i-a1 timeout=1s"}, "in-use"},
		"taken from a hand at second try":                           {[]string{refused, "publish d-1 i-a1", "by-hand attach d-1 i-b1", "publish d-1 i-a1 timeout=1s"}, "in-use"},
	} {
		t.Run(name, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.config.Instances = append(s.config.Instances, ecssim.Instance{ID: "i-b1", Zone: "cn-hangzhou-b", Type: "ecs.g6.large"})
				s.force = true
				s.start()
				if strings.HasSuffix(name, "no read shows when it was let go") {
					s.retell(func(answer map[string]any) {
						each(answer, "Disks", "Disk", func(d map[string]any) { d["DetachedTime"] = "" })
					})
				}
				s.ok("create disk-1 size=200Gi zones=a type=cloud_regional_disk_auto")
				for _, command := range test.before {
					s.say(command)
				}
				if answer := s.say("publish d-1 i-a1"); !strings.Contains(answer, "state:"+test.want+" ") {
					t.Errorf("%s, want %s", answer, test.want)
				}
			})
		})
	}
}
