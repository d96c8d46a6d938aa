package diskdriver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
)

// ownerTag says whose a disk is, as ECS has it.
const ownerTag = "topodisk.io/cluster"

// client is somebody else who works with the same ECS.
func (s *story) client() *ecs.Client {
	s.t.Helper()
	client, err := ecs.NewClient(ecs.Config{Region: s.config.Region, ClusterID: "somebody", Credentials: s, Transport: s.sim})
	s.must(err)
	return client
}

// foreign makes a disk with tags, and returns its ID.
func (s *story) foreign(name string, tags disk.Tags) disk.ID {
	s.t.Helper()
	try := disk.Attempt{Zone: "cn-hangzhou-a", Category: "cloud_essd", Size: 20}
	d, err := s.client().Create(s.t.Context(), disk.Spec{Name: name, Tags: tags}, try, disk.Token("foreign "+name))
	s.must(err)
	return d.ID
}

// systemDisk returns the system disk of an instance.
func (s *story) systemDisk(instance string) disk.ID {
	s.t.Helper()
	for n := range len(s.config.Instances) {
		d, err := s.client().Get(s.t.Context(), disk.ID(fmt.Sprintf("d-bp10000000s%09s", strconv.FormatInt(int64(n+1), 36)))) // as the simulator names them
		s.must(err)
		if d.On(disk.InstanceID(instance)) {
			return d.ID
		}
	}
	s.t.Fatalf("%s has no system disk", instance)
	return ""
}

// attached attaches a disk and detaches it: ECS takes no snapshot of one that never was.
func attached(t *testing.T, client *ecs.Client, instance disk.InstanceID, id disk.ID) error {
	t.Helper()
	if d, err := client.Get(t.Context(), id); err != nil || d.On(instance) {
		return err
	}
	_, _, err := client.Attach(t.Context(), instance, id, false)
	return err
}

// changing are the calls that change, attach or delete something in ECS.
func (s *story) changing(since int) (actions []string) {
	for _, c := range s.sim.Calls()[since:] {
		if !strings.HasPrefix(c.Action, "Describe") {
			actions = append(actions, c.Action)
		}
	}
	return actions
}

// TestTheDriverTouchesItsOwn: whatever PersistentVolumes name, the driver changes, attaches and deletes only what its tags make this
// cluster's. Here RAM allows everything.
func TestTheDriverTouchesItsOwn(t *testing.T) {
	ofACK := disk.Tags{"ack.aliyun.com": cluster, "k8s.aliyun.com": "true"} // as nodes' disks have them
	command := "aliyun ecs TagResources --RegionId cn-hangzhou --ResourceType disk --ResourceId.1 %s --Tag.1.Key topodisk.io/cluster --Tag.1.Value c1"
	for name, row := range map[string]struct {
		make func(s *story) disk.ID
		says string
	}{
		"another cluster's": {func(s *story) disk.ID {
			return s.foreign("a", disk.Tags{ownerTag: "c2", "ack.aliyun.com": cluster, "createdby": "topodisk"})
		}, `belongs to cluster "c2"`},
		"nobody's":           {func(s *story) disk.ID { return s.foreign("a", nil) }, command},
		"a node's data disk": {func(s *story) disk.ID { return s.foreign("a", ofACK) }, command},
		"a system disk": {func(s *story) disk.ID {
			id := s.systemDisk("i-a2")
			s.must(s.client().Tag(s.t.Context(), id, disk.Tags{ownerTag: cluster}))
			return id
		}, "system disk"},
		"its tag was removed": {func(s *story) disk.ID {
			s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
			id := disk.ID(s.id("d-1"))
			s.must(s.client().Untag(s.t.Context(), id, []string{ownerTag}))
			return id
		}, command},
		"full of tags": {func(s *story) disk.ID {
			tags := disk.Tags{}
			for n := range 20 {
				tags[fmt.Sprintf("tag-%d", n)] = ""
			}
			return s.foreign("a", tags)
		}, "remove one of its 20 tags, for ECS allows no more, and tag it with keys of your own: " + command},
	} {
		t.Run(name, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.adopted = []string{"topodisk"}
				s.newProcess()
				s.must(s.sim.SetPolicy("", nil))
				id := string(row.make(s))
				time.Sleep(time.Minute)
				says := strings.ReplaceAll(row.says, "%s", id)
				for _, command := range []string{
					"publish " + id + " i-a1", "publish " + id + " i-a1 ro", "expand " + id + " size=30Gi", "modify " + id + " type=cloud_auto", "delete " + id,
					"snapshot snap-1 " + id, "group group-1 " + id, "create copy size=20Gi zones=a type=cloud_essd source=" + id,
				} {
					began := len(s.sim.Calls())
					if answer := s.say(command); strings.HasPrefix(answer, "OK") || !strings.Contains(answer, says) {
						t.Errorf("%s: %s, want an error with %q", command, answer, says)
					}
					if calls := s.changing(began); len(calls) > 0 {
						t.Errorf("%s: changed something in ECS by %v", command, calls)
					}
				}
			})
		})
	}
}

// TestADetachIsNeverRefused for want of a tag by the driver; where RAM refuses it, the error says what to do.
func TestADetachIsNeverRefused(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		for _, restart := range []bool{false, true} {
			s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
			s.ok("publish d-1 i-a1")
			s.must(s.sim.SetPolicy("", nil))
			s.must(s.client().Untag(t.Context(), disk.ID(s.id("d-1")), []string{ownerTag}))
			underPolicy(t, s.sim, cluster)
			if restart {
				s.newProcess()
			}
			answer := s.say("unpublish d-1 i-a1")
			command := "aliyun ecs TagResources --RegionId cn-hangzhou --ResourceType disk --ResourceId.1 " + s.id("d-1")
			for _, want := range []string{"PermissionDenied: ", "DetachDisk", command} {
				if !strings.Contains(answer, want) {
					t.Errorf("RAM refuses to detach it: %s, want %q", answer, want)
				}
			}
			s.must(s.sim.SetPolicy("", nil))
			s.ok("unpublish d-1 i-a1")
			s.must(s.client().Tag(t.Context(), disk.ID(s.id("d-1")), disk.Tags{ownerTag: cluster}))
			underPolicy(t, s.sim, cluster)
		}
	})
}

// TestOthersIDsAreErrors: a disk of another cluster is not said to be deleted or detached, and stays on its node.
func TestOthersIDsAreErrors(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.must(s.sim.SetPolicy("", nil))
		theirs := s.foreign("b", disk.Tags{ownerTag: "c2"})
		s.must(attached(t, s.client(), "i-a1", theirs))
		for _, process := range []string{"the same", "another"} {
			began := len(s.sim.Calls())
			for _, command := range []string{"delete %s", "unpublish %s i-a1", "unpublish %s i-a2", "unpublish %s"} {
				command = fmt.Sprintf(command, theirs)
				if answer := s.say(command); !strings.HasPrefix(answer, "PermissionDenied: ") || !strings.Contains(answer, `belongs to cluster "c2"`) {
					t.Errorf("%s in %s process: %s, want an error with the cluster", command, process, answer)
				}
			}
			if calls := s.changing(began); len(calls) > 0 {
				t.Errorf("%s process changed something in ECS by %v", process, calls)
			}
			for _, command := range []string{"delete d-99", "unpublish d-99 i-a1", "delete no-such-disk", "unpublish no-such-disk i-a1"} {
				s.ok(command)
			}
			s.newProcess()
		}
	})
}

// TestDisksOfAnotherRegion: that a region has no such disk doesn't say that a node of another one has not.
func TestDisksOfAnotherRegion(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.regions = map[disk.InstanceID]string{"i-far": "cn-beijing", "i-a1": "cn-hangzhou"}
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		for _, gone := range []string{"d-99", "no-such-disk"} {
			answer := s.say("unpublish " + gone + " i-far")
			for _, want := range []string{"FailedPrecondition: ", `"cn-beijing"`, "cn-hangzhou", "i-far"} {
				if !strings.Contains(answer, want) {
					t.Errorf("%s: %s, want %q", gone, answer, want)
				}
			}
			for _, node := range []string{"i-a1", "i-without-a-node", ""} {
				s.ok("unpublish " + gone + " " + node)
			}
		}
		s.ok("unpublish d-1 i-far") // ECS says that no such instance has it
		for _, where := range []string{"pv-zones=cn-beijing-a,cn-beijing-b", "pv-regions=cn-beijing", "pv-regions=cn-beijing pv-zones=cn-beijing-a"} {
			began := len(s.sim.Calls())
			answer := s.say("delete d-99 " + where)
			for _, want := range []string{"FailedPrecondition: ", s.id("d-99"), "cn-beijing", "works in cn-hangzhou"} {
				if !strings.Contains(answer, want) {
					t.Errorf("delete with %s: %s, want %q", where, answer, want)
				}
			}
			if calls := s.changing(began); slices.Contains(calls, "DeleteDisk") {
				t.Errorf("delete with %s: %v", where, calls)
			}
		}
		for _, where := range []string{"", "pv-zones=cn-hangzhou-a", "pv-zones=cn-hangzhou-closed", "pv-zones=cn-beijing-a,cn-hangzhou-b", "pv-regions=cn-hangzhou"} {
			s.ok("delete d-99 " + where)
		}
		s.ok("delete d-1 pv-zones=cn-beijing-a") // ECS has it here, whatever its PersistentVolume says
	})
}

// TestSnapshotsOfOtherClusters are restored if the operator names the cluster, in the flag and in the policy; and deleted by nobody but
// their own.
func TestSnapshotsOfOtherClusters(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.ok("publish d-1 i-a1")
		s.ok("snapshot snap-1 d-1")
		s.ok("group group-1 d-1")
		s.ok("unpublish d-1 i-a1")
		s.ok("delete d-1") // cluster A is gone, its snapshots stay
		time.Sleep(10 * time.Minute)

		const b = "c2"
		client, err := ecs.NewClient(ecs.Config{Region: s.config.Region, ClusterID: b, Credentials: s, Transport: s})
		s.must(err)
		restart := func(sources ...string) {
			s.driver, err = New(Config{Version: "story", Region: s.config.Region, ClusterID: b, RestoreFrom: sources, Accounts: opener{client}, Nodes: s}, client)
			s.must(err)
		}
		restore := "create disk-2 size=20Gi zones=a type=cloud_essd source=s-1"
		refused := func(command, says string) {
			t.Helper()
			if answer := s.say(command); strings.HasPrefix(answer, "OK") || !strings.Contains(answer, says) {
				t.Errorf("%s: %s, want an error with %q", command, answer, says)
			}
		}
		restart()
		underPolicy(t, s.sim, b, cluster)
		refused(restore, "--restore-from-clusters")
		restart(cluster)
		underPolicy(t, s.sim, b)
		refused(restore, "Forbidden.RAM")
		underPolicy(t, s.sim, b, cluster)
		refused("delete-snapshot s-1", `belongs to cluster "c1"`)
		refused("delete-group ssg-1", `belongs to cluster "c1"`)
		s.ok(restore)
		s.ok("publish d-2 i-a1")
		if tags := s.tagsOf("d-2"); tags[ownerTag] != b {
			t.Errorf("the restored disk has tags %v, want it to be of cluster %s", tags, b)
		}
	})
}

// tagsOf returns the tags of a disk.
func (s *story) tagsOf(id string) map[string]string {
	all := s.sim.Disks()
	if at := slices.IndexFunc(all, func(d ecssim.DiskState) bool { return d.ID == s.id(id) }); at >= 0 {
		return all[at].Tags
	}
	return nil
}

// TestNobodysSnapshotsStay: those without the tag are not deleted, nor are groups, and the error has the command that makes them the
// cluster's.
func TestNobodysSnapshotsStay(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.ok("publish d-1 i-a1")
		s.must(s.sim.SetPolicy("", nil))
		of, marks := disk.ID(s.id("d-1")), disk.Tags{"ack.aliyun.com": cluster, "createdby": "topodisk"} // as 0.1.0 made them
		shot, err := s.client().CreateSnapshot(t.Context(), disk.SnapshotSpec{Name: "n", Source: of, Tags: marks}, "shot")
		s.must(err)
		group, err := s.client().CreateGroup(t.Context(), disk.GroupSpec{Name: "n", Sources: []disk.ID{of}, Tags: marks}, "group")
		s.must(err)
		time.Sleep(10 * time.Minute)
		deletions := map[string]string{
			"delete-snapshot " + string(shot): "aliyun ecs TagResources --RegionId cn-hangzhou --ResourceType snapshot --ResourceId.1 " + string(shot),
			"delete-group " + string(group):   "aliyun ecs TagResources --RegionId cn-hangzhou --ResourceType snapshotgroup --ResourceId.1 " + string(group),
		}
		for command, says := range deletions {
			began := len(s.sim.Calls())
			if answer := s.say(command); !strings.HasPrefix(answer, "PermissionDenied: ") || !strings.Contains(answer, says) {
				t.Errorf("%s: %s, want an error with %q", command, answer, says)
			}
			if calls := s.changing(began); len(calls) > 0 {
				t.Errorf("%s: changed something in ECS by %v", command, calls)
			}
		}
		s.adopted = []string{"topodisk"}
		s.newProcess()
		for command := range deletions {
			s.ok(command)
		}
	})
}

// TestUsersKeepTheirTags: beside as many tags as users are promised, a disk has room for every tag of the driver, and it is
// published for writing and for reading. What does not fit is refused by a text that says so.
func TestUsersKeepTheirTags(t *testing.T) {
	const users = "diskTags=a:1,b:2,c:3,d:4,e:5,f:6,g:7,h:8,i:9,j:10 archiveOnDelete=true csi.storage.k8s.io/pvc/name=data csi.storage.k8s.io/pvc/namespace=prod"
	promise(t, func(t *testing.T, s *story) {
		s.ok("create source size=20Gi zones=a type=cloud_essd")
		s.ok("publish d-1 i-a1")
		s.ok("unpublish d-1 i-a1")
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd " + users)
		s.ok("create disk-2 size=20Gi zones=a type=cloud_essd source=d-1 " + users)
		for _, id := range []string{"d-2", "d-3"} {
			for _, mode := range []string{"", " ro", "", " ro"} {
				s.ok("publish " + id + " i-a1" + mode)
				s.newProcess()
				s.ok("unpublish " + id + " i-a1")
			}
			tags := s.tagsOf(id)
			for _, user := range strings.Split("abcdefghij", "") {
				if tags[user] == "" {
					t.Errorf("%s has lost the tag %s: %v", id, user, tags)
				}
			}
			for n := 0; len(s.tagsOf(id)) < disk.MostTags; n++ {
				s.ok(fmt.Sprintf("modify %s diskTags/more-%d=", id, n))
			}
			for command, says := range map[string]string{
				"modify " + id + " diskTags/too-many=": "would have 21 tags; at most 20",
				"publish " + id + " i-a1 ro":           "at most 20 tags",
			} {
				if answer := s.say(command); strings.HasPrefix(answer, "OK") || !strings.Contains(answer, says) {
					t.Errorf("%s with 20 tags: %s, want an error with %q", command, answer, says)
				}
			}
			s.ok("publish " + id + " i-a1")
			s.ok("expand " + id + " size=30Gi")
			s.ok("unpublish " + id + " i-a1")
		}
	})
}

// TestForgedNames: a disk of another cluster with the name of a volume of this one is not taken for it.
func TestForgedNames(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.adopted = []string{"topodisk"}
		s.newProcess()
		s.must(s.sim.SetPolicy("", nil))
		forged := disk.VolumeTags(nil, "disk-1", cluster, "", "").And(nil)
		forged[ownerTag] = "c2"
		id := s.foreign("disk-1", forged)
		underPolicy(t, s.sim, cluster)
		if answer := s.say("create disk-1 size=20Gi zones=a type=cloud_essd upstream"); !strings.HasPrefix(answer, "OK ") || strings.Contains(answer, string(id)) {
			t.Errorf("created: %s, want a disk other than %s", answer, id)
		}
	})
}

// TestASnapshotParameterNeedsAFlag: without it a class can't name one, whosever it is.
func TestASnapshotParameterNeedsAFlag(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.ok("publish d-1 i-a1")
		s.ok("snapshot snap-1 d-1")
		time.Sleep(10 * time.Minute)
		create := "create disk-2 size=20Gi zones=a type=cloud_essd csi.alibabacloud.com/disk-snapshot-id=s-1"
		if answer := s.say(create); !strings.HasPrefix(answer, "InvalidArgument: ") || !strings.Contains(answer, "--allow-snapshot-parameter") {
			t.Errorf("without the flag: %s", answer)
		}
		s.anySnapshot = true
		s.newProcess()
		s.ok(create)
	})
}

// TestDisksOf01AreTheClusters: disks that 0.1.0 made have no tag of their own, and are this cluster's as long as it adopts them.
func TestDisksOf01AreTheClusters(t *testing.T) {
	for name, row := range map[string]struct {
		tags    disk.Tags
		adopted []string
		own     bool
	}{
		"of 0.1.0":                    {disk.Tags{"ack.aliyun.com": cluster, "createdby": "topodisk"}, []string{"topodisk"}, true},
		"of 0.1.0, after the upgrade": {disk.Tags{"ack.aliyun.com": cluster, "createdby": "topodisk"}, nil, false},
		"of 0.1.0 in another cluster": {disk.Tags{"ack.aliyun.com": "c2", "createdby": "topodisk"}, []string{"topodisk"}, false},
		"of another driver":           {disk.Tags{"ack.aliyun.com": cluster, "createdby": "alibabacloud-csi-plugin"}, []string{"topodisk"}, false},
		"of another driver, adopted": {disk.Tags{"ack.aliyun.com": cluster, "createdby": "alibabacloud-csi-plugin"},
			[]string{"topodisk", "alibabacloud-csi-plugin"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.adopted = row.adopted
				s.newProcess()
				s.must(s.sim.SetPolicy("", nil))
				id := string(s.foreign("a", row.tags))
				underOldPolicy(t, s.sim)
				for _, command := range []string{"publish " + id + " i-a1", "expand " + id + " size=30Gi", "unpublish " + id + " i-a1", "delete " + id} {
					if answer := s.say(command); strings.HasPrefix(answer, "OK") != row.own && !strings.HasPrefix(command, "unpublish") {
						t.Errorf("%s: %s; is it the cluster's own: %v", command, answer, row.own)
					}
				}
			})
		})
	}
}
