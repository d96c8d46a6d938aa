package diskdriver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/ecssim"
)

// renewing is a source of temporary keys whose renewal takes a while.
type renewing struct {
	*story
	takes time.Duration
}

func (r renewing) Renew(context.Context, credentials.Keys) (credentials.Keys, bool) {
	time.Sleep(r.takes)
	return credentials.Keys{AccessKeyID: "story", AccessKeySecret: r.key}, true
}

// with begins anew with a source of keys.
func (s *story) with(keys credentials.Provider) {
	client, err := ecs.NewClient(ecs.Config{Region: s.config.Region, ClusterID: cluster, Credentials: keys, Transport: s})
	s.must(err)
	s.driver, err = New(Config{Version: "story", Region: s.config.Region, ClusterID: cluster, Accounts: opener{client}, Nodes: s}, client)
	s.must(err)
}

// A call that is signed again with other keys lives for as long as one that was sent then.
func TestAnAttachThatIsSignedAgainIsLate(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.with(renewing{s, 12 * time.Second})
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		time.Sleep(time.Minute)
		s.say("fault error action=AttachDisk status=403 code=InvalidSecurityToken.Expired")
		f := s.fault(strings.Fields("late action=AttachDisk lag=18s"))
		s.must(s.sim.AddFault(f))
		s.say("publish d-1 i-a1 timeout=30s")
		s.insist("unpublish d-1 i-a1 timeout=60s")
		s.stays("")
	})
}

func TestADetachThatIsSignedAgainIsLate(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.with(renewing{s, 12 * time.Second})
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.ok("publish d-1 i-a1")
		time.Sleep(time.Minute)
		s.say("fault error action=DetachDisk status=403 code=InvalidSecurityToken.Expired")
		s.must(s.sim.AddFault(s.fault(strings.Fields("late action=DetachDisk lag=18s"))))
		s.say("unpublish d-1 i-a1 timeout=30s")
		s.insist("unpublish d-1 i-a1 timeout=60s")
		s.insist("publish d-1 i-a1")
		s.stays("i-a1")
	})
}

// That no read shows a snapshot or a group doesn't make it this cluster's.
func TestAnEmptyAnswerDeletesNothingOfAnotherCluster(t *testing.T) {
	for _, fault := range []string{"nothing action=DescribeSnapshots count=2", "hidden action=DescribeSnapshots count=2 hide=s-1", "nothing action=DescribeSnapshots count=0"} {
		t.Run("snapshot "+fault, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
				s.ok("publish d-1 i-a1")
				s.must(s.sim.SetPolicy("", nil))
				theirs := disk.Tags{ownerTag: "c2"}
				shot, err := s.client().CreateSnapshot(t.Context(), disk.SnapshotSpec{Name: "n", Source: disk.ID(s.id("d-1")), Tags: theirs}, "shot")
				s.must(err)
				time.Sleep(10 * time.Minute)
				s.say("fault " + fault)
				answer := s.say("delete-snapshot " + string(shot))
				if len(s.sim.Snapshots()) == 0 {
					t.Errorf("%s, and the other cluster's snapshot is gone", answer)
				}
			})
		})
	}
	for _, fault := range []string{"nothing action=DescribeSnapshotGroups", "nothing action=DescribeSnapshotGroups count=0"} {
		t.Run("group "+fault, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
				s.ok("publish d-1 i-a1")
				s.must(s.sim.SetPolicy("", nil))
				theirs := disk.Tags{ownerTag: "c2"}
				group, err := s.client().CreateGroup(t.Context(), disk.GroupSpec{Name: "n", Sources: []disk.ID{disk.ID(s.id("d-1"))}, Tags: theirs}, "group")
				s.must(err)
				underPolicy(t, s.sim, cluster)
				time.Sleep(10 * time.Minute)
				s.say("fault " + fault)
				answer := s.say("delete-group " + string(group))
				if len(s.sim.Snapshots()) == 0 {
					t.Errorf("%s, and the other cluster's group is gone, with the driver's own RAM policy", answer)
				}
			})
		})
	}
}

// An attach of the replica before is late, and the disk leaves the other node while it is waited for.
func TestALateAttachWhileTheDiskIsElsewhere(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		time.Sleep(time.Minute)
		s.say("replica B")
		s.say("publish d-1 i-a3 timeout=20s")
		s.say("unpublish d-1 i-a3 timeout=60s")
		s.must(s.sim.AddFault(s.fault(strings.Fields("late action=AttachDisk lag=15s"))))
		s.say("publish d-1 i-a1 timeout=10s")
		s.say("replica A")
		s.ok("publish d-1 i-a2")
		var unpublished sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		driver, req := s.driver, s.unpublishRequest([]string{"d-1", "i-a1"})
		unpublished.Go(func() { _, _ = invoke(ctx, driver, "ControllerUnpublishVolume", req) })
		time.Sleep(time.Second)
		s.ok("unpublish d-1 i-a2")
		unpublished.Wait()
		s.stays("")
	})
}

// A change without an answer that arrives late finds no other one that is OK by then.
func TestALateChangeUndoesNoLaterOne(t *testing.T) {
	for name, row := range map[string]struct{ late, first, then, want string }{
		"level":          {"ModifyDiskSpec", "modify d-1 performanceLevel=PL2", "modify d-1 performanceLevel=PL1", "PL1"},
		"tags":           {"TagResources", "modify d-1 diskTags/team=a", "modify d-1 diskTags/team=b", "b"},
		"level, another": {"ModifyDiskSpec", "modify d-1 performanceLevel=PL2", "modify d-1 type=cloud_auto", "cloud_auto"},
	} {
		t.Run(name, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.ok("create disk-1 size=500Gi zones=a type=cloud_essd performanceLevel=PL1")
				time.Sleep(time.Minute)
				f := s.fault(strings.Fields("late lag=15s action=" + row.late))
				if row.late == "ModifyDiskSpec" {
					f.Params = map[string]string{"DryRun": "^(false)?$"}
				}
				s.must(s.sim.AddFault(f))
				s.say(row.first + " timeout=10s")
				s.insist(row.then + " timeout=15s")
				time.Sleep(3 * time.Minute)
				d := s.sim.Disks()[0]
				if got := d.PerformanceLevel + " " + d.Category + " " + d.Tags["team"]; !strings.Contains(" "+got+" ", " "+row.want+" ") {
					t.Errorf("the disk is %q, want %s", got, row.want)
				}
			})
		})
	}
}

// The deletion of a disk that was misplaced is late, and the volume may be where the disk is again.
func TestALateDeleteTakesNoVolumeThatIsOK(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.say("fault lost-reply action=CreateDisk")
		s.say("create disk-1 size=20Gi zones=a type=cloud_essd timeout=10s")
		s.must(s.sim.AddFault(s.fault(strings.Fields("late action=DeleteDisk lag=15s"))))
		s.say("create disk-1 size=20Gi zones=b type=cloud_essd timeout=10s")
		for range 3 {
			s.say("create disk-1 size=20Gi zones=a type=cloud_essd timeout=10s")
			time.Sleep(disk.RequestLifetime)
		}
		s.insist("create disk-1 size=20Gi zones=a type=cloud_essd timeout=10s")
		time.Sleep(time.Minute)
		if n := len(s.sim.Disks()); n != 1 {
			t.Errorf("the volume was OK, and there are %d disks of it", n)
		}
	})
}

// A PersistentVolume may name the system disk of an instance that doesn't run, which ECS would detach.
func TestNoSystemDiskIsDetached(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		id := string(s.systemDisk("i-a2"))
		s.must(s.sim.SetPolicy("", nil))
		s.do([]string{"instance", "i-a2", "stopped"})
		time.Sleep(time.Minute)
		s.say("publish " + id + " i-a2")
		if answer := s.say("unpublish " + id + " i-a2 timeout=60s"); strings.HasPrefix(answer, "OK") {
			t.Error("it is OK, and the instance has the disk")
		}
		for _, c := range s.sim.Calls() {
			if c.Action == "DetachDisk" {
				t.Errorf("DetachDisk %v -> %q", c.Params["DiskId"], c.Code)
			}
		}
	})
}

// The removal of the tag by which a node may not write is late, and the node has the disk for reading again.
func TestALateUntagMakesNoReaderAWriter(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.ok("publish d-1 i-a1 ro")
		time.Sleep(time.Minute)
		s.must(s.sim.AddFault(s.fault(strings.Fields("late action=UntagResources lag=15s"))))
		s.say("unpublish d-1 i-a1 timeout=30s")
		s.insist("unpublish d-1 i-a1 timeout=30s")
		s.ok("publish d-1 i-a1 ro")
		time.Sleep(time.Minute)
		s.ok("publish d-1 i-a1 ro")
	})
}

// A proxy asks twice, and the second answer is that the instance is busy: with the first request.
func TestABusyRefusalMayBeTheSecondAnswer(t *testing.T) {
	for _, again := range []string{"", "restart"} {
		t.Run(again, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
				s.ok("publish d-1 i-a1")
				s.ok("unpublish d-1 i-a1")
				time.Sleep(time.Minute)
				s.must(s.sim.AddFault(s.fault(strings.Fields("error-after status=403 code=InvalidOperation.Conflict action=AttachDisk"))))
				s.say("publish d-1 i-a1 timeout=1s")
				if again != "" {
					s.say(again)
				}
				s.insist("unpublish d-1 i-a1 timeout=20s")
				s.stays("")
			})
		})
	}
}

// ECS may give a list of groups in pages.
func TestAGroupOnALaterPageIsFound(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.ok("publish d-1 i-a1")
		s.ok("group group-0 d-1")
		s.ok("group group-1 d-1")
		time.Sleep(10 * time.Minute)
		s.say("restart")
		answer := ""
		for range 6 {
			s.say("fault partial action=DescribeSnapshotGroups")
			answer = s.say("group group-1 d-1 timeout=30s")
			time.Sleep(time.Minute)
		}
		if !strings.HasPrefix(answer, "OK") {
			t.Error(answer)
		}
		if n := len(s.sim.Snapshots()); n > 2 {
			t.Errorf("%d snapshots", n)
		}
	})
}

// The disk that a token leads to was given to another cluster.
func TestATokenLeadsToNoDiskOfAnotherCluster(t *testing.T) {
	for _, zone := range []string{"a", "b"} {
		for _, restart := range []bool{false, true} {
			t.Run(zone, func(t *testing.T) {
				promise(t, func(t *testing.T, s *story) {
					s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
					s.must(s.sim.SetPolicy("", nil))
					s.must(s.client().Tag(t.Context(), disk.ID(s.id("d-1")), disk.Tags{ownerTag: "c2"}))
					underPolicy(t, s.sim, cluster)
					time.Sleep(time.Hour)
					if restart {
						s.say("restart")
					}
					answer := s.say("create disk-1 size=20Gi type=cloud_essd zones=" + zone)
					if strings.HasPrefix(answer, "OK "+s.id("d-1")) {
						t.Errorf("zone %s, restart %v: the other cluster's disk is the volume: %s", zone, restart, answer)
					}
					if _, ok := s.tagsOf("d-1")[ownerTag]; !ok {
						t.Errorf("zone %s: the other cluster's disk is gone", zone)
					}
				})
			})
		}
	}
}

// A disk that has no room for a mark is attached when a read shows it that is later than the detach before.
func TestAStaleReadOfADiskFullOfTagsIsNoAttachment(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		tags := disk.Tags{ownerTag: cluster}
		for n := range 19 {
			tags["tag-"+string(rune('a'+n))] = ""
		}
		s.must(s.sim.SetPolicy("", nil))
		id := string(s.foreign("a", tags))
		time.Sleep(time.Minute)
		s.ok("publish " + id + " i-a1")
		time.Sleep(time.Minute)
		s.ok("unpublish " + id + " i-a1")
		s.say("fault stuck action=AttachDisk")
		s.say("fault stale action=DescribeDisks lag=6s count=0 for=5s")
		answer := s.say("publish " + id + " i-a1 timeout=30s")
		if at := s.sim.Disks()[0].Attachments; strings.HasPrefix(answer, "OK") && (len(at) != 1 || at[0].Phase != "In_use") {
			t.Errorf("OK, and it is on %v", at)
		}
	})
}

// ECS tells times in minutes, and a disk is used once more within the minute of its archive.
func TestAnArchiveHasAllEvenWithTimesInMinutes(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.config.Latency.SnapshotCut, s.config.Latency.SnapshotUsable, s.config.Latency.SnapshotDone = time.Second, 2*time.Second, 5*time.Minute
		s.start()
		s.retell(func(answer map[string]any) {
			each(answer, "Disks", "Disk", func(d map[string]any) {
				coarse(d, "DetachedTime", "2006-01-02T15:04Z")
				coarse(d, "AttachedTime", "2006-01-02T15:04Z")
			})
		})
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd archiveOnDelete=true")
		s.ok("publish d-1 i-a1")
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		s.ok("unpublish d-1 i-a1")
		s.say("delete d-1 timeout=5s")
		s.must(s.byHand("attach", disk.ID(s.id("d-1")), "i-a2"))
		written := time.Now()
		s.must(s.byHand("detach", disk.ID(s.id("d-1")), "i-a2"))
		time.Sleep(10 * time.Minute)
		s.say("delete d-1")
		covered := false
		for _, shot := range s.sim.Snapshots() {
			covered = covered || shot.Asked.After(written)
		}
		if len(s.sim.Disks()) == 0 && !covered {
			t.Error("the disk is gone, and what was written last is in no archive")
		}
	})
}

// A member that no read shows may be part of a group still.
func TestAnEmptyAnswerTakesNoMemberFromItsGroup(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.ok("publish d-1 i-a1")
		s.ok("group group-0 d-1")
		time.Sleep(10 * time.Minute)
		s.say("delete-snapshot s-1")
		s.say("fault nothing action=DescribeSnapshots count=2")
		s.say("delete-snapshot s-1")
		if len(s.sim.Snapshots()) == 0 {
			t.Error("gone")
		}
	})
}

// A list without a task doesn't say that ECS moves no disk.
func TestAMoveThatNoListShowsIsWaitedFor(t *testing.T) {
	for _, fault := range []string{"partial action=DescribeTasks", "nothing action=DescribeTasks", "stale action=DescribeTasks lag=20s"} {
		t.Run(fault, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.config.Latency.Modify = time.Minute
				s.start()
				s.ok("create disk-1 size=500Gi zones=a type=cloud_essd performanceLevel=PL1")
				time.Sleep(time.Minute)
				s.say("modify d-1 performanceLevel=PL2 timeout=5s")
				s.say("fault " + fault)
				answer := s.say("modify d-1 performanceLevel=PL1")
				time.Sleep(3 * time.Minute)
				if d := s.sim.Disks()[0]; strings.HasPrefix(answer, "OK") && d.PerformanceLevel != "PL1" {
					t.Errorf("%s, and it is %s", answer, d.PerformanceLevel)
				}
			})
		})
	}
}

// NotFound ends what a CO asks for, and two reads that leave a disk out don't say it.
func TestADiskThatReadsLeaveOutIsNotMissing(t *testing.T) {
	const twice = "count=2"
	for _, test := range []struct {
		before          []string
		hidden, command string
	}{
		{nil, twice, "expand d-1 size=30Gi"},
		{nil, "skip=1 count=2", "expand d-1 size=30Gi"},
		{[]string{"publish d-1 i-a1", "instance i-a1 stopped"}, "skip=1 count=2", "expand d-1 size=30Gi"},
		{nil, twice, "modify d-1 type=cloud_auto"},
		{nil, twice, "create copy size=20Gi zones=a type=cloud_essd source=d-1"},
		{nil, twice, "snapshot snap-1 d-1"},
		{nil, twice, "publish d-1 i-a1"},
		{nil, twice, "get d-1"},
		{nil, twice, "health d-1"},
		{nil, twice, "validate d-1"},
	} {
		t.Run(fmt.Sprint(test.before, test.hidden, test.command), func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
				s.ok("create disk-2 size=20Gi zones=a type=cloud_essd")
				for _, command := range test.before {
					s.say(command)
				}
				time.Sleep(time.Minute)
				s.say("fault hidden action=DescribeDisks hide=d-1 " + test.hidden)
				if answer := s.say(test.command); strings.HasPrefix(answer, "NotFound") {
					t.Errorf("%s", answer)
				}
				if hit := s.sim.Faults()[0].Hit; hit < 2 {
					t.Errorf("%d reads left the disk out", hit)
				}
			})
		})
	}
}

// The same of a disk that was still being made a moment ago.
func TestADiskInTheMakingThatReadsLeaveOutIsNotMissing(t *testing.T) {
	for command, takes := range map[string]time.Duration{"expand d-2 size=30Gi": 8 * time.Second, "publish d-2 i-a1": 3 * time.Second} {
		t.Run(command, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.config.Latency.Available = takes
				s.start()
				s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
				s.say("create disk-2 size=20Gi zones=a type=cloud_essd timeout=2s")
				time.Sleep(2 * time.Second)
				s.say("fault hidden action=DescribeDisks hide=d-2 skip=1 count=4")
				if answer := s.say(command); strings.HasPrefix(answer, "NotFound") {
					t.Errorf("%s", answer)
				}
				if hit := s.sim.Faults()[0].Hit; hit < 4 {
					t.Errorf("%d reads left the disk out", hit)
				}
			})
		})
	}
}

// The same of a snapshot.
func TestASnapshotThatReadsLeaveOutIsNotMissing(t *testing.T) {
	for _, command := range []string{"create disk-2 size=20Gi zones=a type=cloud_essd source=s-1", "get-snapshot s-1"} {
		t.Run(command, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
				s.ok("snapshot snap-1 d-1")
				s.ok("snapshot snap-2 d-1")
				time.Sleep(time.Minute)
				s.say("fault hidden action=DescribeSnapshots hide=s-1 count=2")
				if answer := s.say(command); strings.HasPrefix(answer, "NotFound") {
					t.Errorf("%s", answer)
				}
				if hit := s.sim.Faults()[0].Hit; hit == 0 {
					t.Error("no read left the snapshot out")
				}
			})
		})
	}
}

// A gateway that gives up may send any code, which says nothing of the disk.
func TestACodeOfNoAnswerProvesNothing(t *testing.T) {
	for _, test := range []struct{ action, code, command string }{
		{"DetachDisk", "InvalidInstanceId.NotFound", "unpublish d-1 i-a1"},
		{"DetachDisk", "InvalidDisk.AlreadyDetached", "unpublish d-1 i-a1"},
		{"CreateSnapshot", "IncorrectDiskStatus.NeverAttached", "delete d-1"},
		{"CreateSnapshot", "IncorrectDiskStatus.NeverUsed", "delete d-1"},
		{"ModifyDiskSpec", "DryRunOperation", "modify d-1 type=cloud_auto"},
		{"ResizeDisk", "InvalidInstanceStatus.NotRunning", "expand d-1 size=30Gi"},
	} {
		for _, status := range []int{408, 429, 500, 502} {
			t.Run(fmt.Sprintf("%s %d %s", test.action, status, test.code), func(t *testing.T) {
				promise(t, func(t *testing.T, s *story) {
					s.ok("create disk-1 size=20Gi zones=a type=cloud_essd archiveOnDelete=true")
					s.ok("publish d-1 i-a1")
					if test.action == "CreateSnapshot" {
						s.ok("unpublish d-1 i-a1")
					}
					time.Sleep(time.Minute)
					s.must(s.sim.AddFault(ecssim.Fault{Do: ecssim.FaultError, Action: test.action, Status: status, Code: test.code, Count: 1}))
					if answer := s.say(test.command + " timeout=10s"); !mayBeUnderWay(answer) {
						t.Errorf("%s: %s", test.command, answer)
					}
					if n := s.sim.Count(test.action, test.code); n != 1 {
						t.Errorf("%d of %s are answered so", n, test.action)
					}
				})
			})
		}
	}
}
