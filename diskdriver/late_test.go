package diskdriver

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// insist repeats a command as csi-attacher does, until it is OK.
func (s *story) insist(command string) {
	s.t.Helper()
	for range 60 {
		answer := s.say(command)
		if strings.HasPrefix(answer, "OK") {
			return
		}
		if !mayBeUnderWay(answer) {
			s.t.Fatalf("%s: %s", command, answer)
		}
		time.Sleep(time.Second)
	}
	s.t.Fatalf("%s never is OK", command)
}

// stays holds what the driver has said against ECS, for as long as a request may be on its way and longer: the disk is on the
// instance, or on none if that is empty.
func (s *story) stays(instance string) {
	s.t.Helper()
	for range 2 * disk.RequestLifetime / time.Second {
		disks := s.sim.Disks()
		at := disks[slices.IndexFunc(disks, func(d ecssim.DiskState) bool { return d.ID == s.id("d-1") })].Attachments
		if instance == "" && len(at) > 0 || instance != "" && (len(at) != 1 || at[0].Instance != instance || at[0].Phase != "In_use") {
			s.t.Fatalf("it was said that the disk is on %q, and it is on %v", instance, at)
		}
		time.Sleep(time.Second)
	}
}

// TestCallsThatECSGetsLateOrNever has calls that are lost or late, and reads that are behind or leave the disk out.
func TestCallsThatECSGetsLateOrNever(t *testing.T) {
	for name, does := range map[string]func(s *story){
		"a detach is lost, and reads are behind": func(s *story) {
			s.ok("publish d-1 i-a1")
			s.say("fault lost-request action=DetachDisk")
			s.say("fault stale action=DescribeDisks lag=8s for=12s count=0")
			s.say("unpublish d-1 i-a1 timeout=2s")
			s.insist("unpublish d-1 i-a1 timeout=2s")
			s.stays("")
			s.ok("publish d-1 i-a2")
		},
		"a detach keeps its position, and reads are behind": func(s *story) {
			s.ok("publish d-1 i-a1")
			s.say("fault error action=DetachDisk status=409 code=InvalidOperation.Conflict count=0 for=6s")
			s.say("fault stale action=DescribeDisks lag=8s for=12s count=0")
			s.say("unpublish d-1 i-a1 timeout=2s")
			s.insist("unpublish d-1 i-a1 timeout=2s")
			s.stays("")
		},
		"a detach is late": func(s *story) {
			s.ok("publish d-1 i-a1")
			s.say("fault delay action=DetachDisk delay-before=18s")
			s.say("unpublish d-1 i-a1 timeout=8s")
			s.insist("unpublish d-1 i-a1 timeout=8s")
			s.insist("publish d-1 i-a1")
			s.stays("i-a1")
		},
		"a detach is under way, and ECS gives it up": func(s *story) {
			s.ok("publish d-1 i-a1")
			s.say("fault fails action=DetachDisk")
			s.say("unpublish d-1 i-a1 timeout=1s")
			s.say("restart")
			s.insist("unpublish d-1 i-a1 timeout=8s")
			s.stays("")
		},
		"an attach is late": func(s *story) {
			s.say("fault delay action=AttachDisk delay-before=18s")
			s.say("publish d-1 i-a1 timeout=5s")
			s.insist("unpublish d-1 i-a1 timeout=8s")
			s.stays("")
			s.ok("publish d-1 i-a2")
		},
		"an attach of the process before is late": func(s *story) {
			s.say("fault delay action=AttachDisk delay-before=18s")
			s.say("publish d-1 i-a1 timeout=5s")
			s.say("restart")
			s.insist("unpublish d-1 i-a1 timeout=8s")
			s.stays("")
		},
		"an attach of the replica before is late": func(s *story) {
			s.ok("publish d-1 i-a1")
			s.ok("unpublish d-1 i-a1")
			s.say("replica B")
			s.say("fault delay action=AttachDisk delay-before=18s")
			s.say("publish d-1 i-a1 timeout=5s")
			s.say("replica A")
			s.insist("unpublish d-1 i-a1 timeout=8s")
			s.stays("")
		},
		"an attach is repeated, and the first one is late": func(s *story) {
			s.say("fault delay action=AttachDisk delay-before=18s")
			s.say("publish d-1 i-a1 timeout=3s")
			s.insist("publish d-1 i-a1 timeout=10s")
			s.insist("unpublish d-1 i-a1 timeout=8s")
			s.stays("")
		},
		"an attach is shown while ECS is at work on it": func(s *story) {
			s.config.Doubts.ListAttaching = true
			s.start()
			s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
			s.say("publish d-1 i-a1 timeout=2s")
			s.ok("publish d-1 i-a1 timeout=8s")
		},
		"reads leave the disk out": func(s *story) {
			s.ok("publish d-1 i-a1")
			var shown atomic.Bool
			s.retell(func(answer map[string]any) {
				if disks, ok := answer["Disks"].(map[string]any); ok && !shown.Load() {
					disks["Disk"] = slices.DeleteFunc(disks["Disk"].([]any), func(d any) bool { return d.(map[string]any)["DiskId"] == s.id("d-1") })
				}
			})
			time.AfterFunc(90*time.Second, func() { shown.Store(true) })
			s.ok("create disk-2 size=20Gi zones=a type=cloud_essd")
			s.insist("unpublish d-1 i-a1 timeout=8s")
			s.stays("")
			if answer := s.say("publish d-1 i-a1 timeout=8s"); strings.HasPrefix(answer, "NotFound") {
				s.t.Errorf("publish: %s", answer)
			}
		},
		"reads show the attachment before": func(s *story) {
			s.ok("publish d-1 i-a1")
			s.ok("unpublish d-1 i-a1")
			s.ok("publish d-1 i-a2")
			s.say("restart")
			s.say("fault stale action=DescribeDisks lag=7s for=20s count=0")
			if answer := s.say("publish d-1 i-a1 timeout=30s"); strings.HasPrefix(answer, "OK") {
				s.stays("i-a1")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			promise(t, func(_ *testing.T, s *story) {
				s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
				time.Sleep(20 * time.Second) // reads that are behind show it
				does(s)
			})
		})
	}
}

// TestUnpublishFromAllNodesGoesByNoEarlierRead has a disk on a node that this process has not attached it to, and reads that are from
// before that in between.
func TestUnpublishFromAllNodesGoesByNoEarlierRead(t *testing.T) {
	const before, detaching = "Available", "Detaching" // which ECS may show without the node; empty: a read that isn't behind
	for name, reads := range map[string][]string{
		"the first":                   {before},
		"the second":                  {before, "", before},
		"all but one":                 {before, "", before, before, before},
		"after a detach is given up":  {before, detaching, before},
		"at first, and such a detach": {detaching, before, "", before},
	} {
		t.Run(name, func(t *testing.T) {
			promise(t, func(_ *testing.T, s *story) {
				s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
				s.ok("publish d-1 i-a1")
				var seen atomic.Int32
				s.retell(func(answer map[string]any) {
					each(answer, "Disks", "Disk", func(d map[string]any) {
						n := int(seen.Add(1)) - 1
						if n >= len(reads) || reads[n] == "" {
							return
						}
						d["Status"], d["InstanceId"], d["Attachments"], d["AttachedTime"] = reads[n], "", map[string]any{"Attachment": []any{}}, ""
						if reads[n] == before {
							each(d, "Tags", "Tag", func(tag map[string]any) {
								if tag["TagKey"] == disk.HistoryTag {
									tag["TagValue"] = string(disk.HistoryNew)
								}
							})
						}
					})
				})
				s.insist("unpublish d-1")
				s.stays("")
			})
		})
	}
}

// TestTheSameNodeWithinTheSameTick has a disk taken off and put back on the same node so soon that ECS's times are the same, with reads
// that show the attachment before.
func TestTheSameNodeWithinTheSameTick(t *testing.T) {
	for _, format := range []string{time.RFC3339, "2006-01-02T15:04:00Z", "2006-01-02T15:04Z", ""} {
		for _, class := range []string{"", " multiAttach=true block mode=MULTI_NODE_MULTI_WRITER"} {
			t.Run(format+class, func(t *testing.T) {
				promise(t, func(t *testing.T, s *story) {
					s.config.Latency.Attach, s.config.Latency.Detach, s.config.Latency.API = 20*time.Millisecond, 20*time.Millisecond, nil
					for n := range s.config.Instances {
						s.config.Instances[n].Type = "ecs.g7se.large"
					}
					s.start()
					s.retell(func(answer map[string]any) {
						each(answer, "Disks", "Disk", func(d map[string]any) {
							coarse(d, "DetachedTime", format)
							coarse(d, "AttachedTime", format)
							each(d, "Attachments", "Attachment", func(a map[string]any) { coarse(a, "AttachedTime", format) })
						})
					})
					_, use, _ := strings.Cut(class, " block")
					if use != "" {
						use = " block" + use
					}
					s.ok("create disk-1 size=20Gi zones=a type=cloud_essd" + class)
					time.Sleep(time.Minute)
					s.ok("publish d-1 i-a1" + use)
					for range 4 {
						before := time.Now()
						s.ok("unpublish d-1 i-a1")
						s.say("fault stale action=DescribeDisks lag=1s count=2")
						s.ok("publish d-1 i-a1" + use)
						if took := time.Since(before); took > 20*time.Second {
							t.Errorf("it took %v to put the disk back", took)
						}
						if at := s.sim.Disks()[0].Attachments; len(at) != 1 || at[0].Phase != "In_use" {
							t.Errorf("it was said that the disk is attached, and it is on %v", at)
						}
					}
					s.ok("unpublish d-1 i-a1")
					s.stays("")
				})
			})
		}
	}
}

// coarse gives a time of ECS another form; empty: there is none.
func coarse(o map[string]any, field, format string) {
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(o[field])); err == nil {
		o[field] = at.Format(format)
	}
}
