package ecssim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// snap starts to make a snapshot of a disk and returns its ID.
func snap(c *ecs.Client, disk string, changes ...func(*ecs.CreateSnapshotRequest)) (string, error) {
	r := ecs.CreateCreateSnapshotRequest()
	r.DiskId = disk
	for _, change := range changes {
		change(r)
	}
	reply, err := c.CreateSnapshot(r)
	return reply.SnapshotId, err
}

func deleteSnapshot(c *ecs.Client, id string, force bool) error {
	r := ecs.CreateDeleteSnapshotRequest()
	r.SnapshotId = id
	if force {
		r.Force = requests.NewBoolean(true)
	}
	_, err := c.DeleteSnapshot(r)
	return err
}

// snapshots returns what DescribeSnapshots shows.
func snapshots(t *testing.T, c *ecs.Client, change func(*ecs.DescribeSnapshotsRequest)) *ecs.DescribeSnapshotsResponse {
	t.Helper()
	r := ecs.CreateDescribeSnapshotsRequest()
	if change != nil {
		change(r)
	}
	reply, err := c.DescribeSnapshots(r)
	ok(t, err)
	return reply
}

func oneSnapshot(t *testing.T, c *ecs.Client, id string) ecs.Snapshot {
	t.Helper()
	list := snapshots(t, c, func(r *ecs.DescribeSnapshotsRequest) { r.SnapshotIds = idList(id) }).Snapshots.Snapshot
	if len(list) != 1 {
		t.Fatalf("a read of %s shows %d snapshots", id, len(list))
	}
	return list[0]
}

// used makes a disk and lets it have been attached to i-1.
func used(t *testing.T, c *ecs.Client, change func(*ecs.CreateDiskRequest)) string {
	t.Helper()
	id := create(t, c, change)
	ok(t, attach(c, "i-1", id))
	ok(t, detach(c, "i-1", id))
	return id
}

// shotTimes are the times that the tests below are about.
// noneUnattached makes CreateSnapshot refuse every disk that was never attached.
func noneUnattached(c *ecssim.Config) { c.Doubts.SnapshotUnattached = []string{} }

func shotTimes(c *ecssim.Config) {
	c.Latency.SnapshotCut, c.Latency.SnapshotUsable, c.Latency.SnapshotDone = 2*time.Second, 5*time.Second, 100*time.Second
}

func TestSnapshotIsCutThenUsableThenAccomplished(t *testing.T) {
	for category, instant := range map[string]bool{"cloud_essd": true, "cloud_ssd": false} {
		synctest.Test(t, func(t *testing.T) {
			s, c := newServerAndClient(t, shotTimes)
			disk := used(t, c, ofKind(category, "", "40"))
			id, err := snap(c, disk, func(r *ecs.CreateSnapshotRequest) {
				r.SnapshotName, r.Description, r.RetentionDays = "daily", "of a day", "7"
				r.Tag = &[]ecs.CreateSnapshotTag{{Key: "app", Value: "db"}}
			})
			ok(t, err)
			want := func(status, progress, created string, available bool) {
				t.Helper()
				n := oneSnapshot(t, c, id)
				if n.Status != status || n.Progress != progress || n.CreationTime != created || n.Available != available {
					t.Errorf("%s after %v: %s %s, cut at %q, available %v; want %s %s, %q, %v", category, time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)),
						n.Status, n.Progress, n.CreationTime, n.Available, status, progress, created, available)
				}
			}
			want("progressing", "0%", "", false)
			time.Sleep(2 * time.Second)
			want("progressing", "1%", "2000-01-01T00:00:02Z", false)
			time.Sleep(3 * time.Second)
			want("progressing", "4%", "2000-01-01T00:00:02Z", instant)
			time.Sleep(45 * time.Second)
			if n := oneSnapshot(t, c, id); n.RemainTime != 50 {
				t.Errorf("%d s are left, want 50", n.RemainTime)
			}
			time.Sleep(50 * time.Second)
			want("accomplished", "100%", "2000-01-01T00:00:02Z", true)
			n := oneSnapshot(t, c, id)
			if n.SourceDiskId != disk || n.SourceDiskSize != "40" || n.SourceDiskType != "data" || n.SnapshotName != "daily" || n.Description != "of a day" ||
				n.RetentionDays != 7 || n.SnapshotType != "user" || n.Usage != "none" || len(n.Tags.Tag) != 1 || n.Tags.Tag[0].TagKey != "app" || n.RegionId != region {
				t.Errorf("snapshot %+v", n)
			}
			ok(t, s.Check())
		})
	}
}

func TestSnapshotInProgressHoldsTheDiskBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newServer(t, shotTimes))
		disk := used(t, c, nil)
		ok(t, second(snap(c, disk)))
		wantCode(t, remove(c, disk), 403, "DiskCreatingSnapshot")
		wantCode(t, resize(c, disk, 40), 403, "DiskCreatingSnapshot")
		wantCode(t, second(modify(c, disk, toCategory("cloud_auto"))), 403, "DiskCreatingSnapshot")
		ok(t, attach(c, "i-1", disk))
		ok(t, detach(c, "i-1", disk))
		time.Sleep(100 * time.Second)
		ok(t, remove(c, disk))
		if n := snapshots(t, c, nil).TotalCount; n != 1 {
			t.Errorf("%d snapshots after the disk is deleted, want 1", n)
		}
	})
}

func TestCreateSnapshotRefuses(t *testing.T) {
	s := fleet(t, noneUnattached)
	c := newClient(t, s)
	disk, fresh := used(t, c, nil), create(t, c, nil)
	eed := create(t, c, ephemeral)
	ok(t, attach(c, "i-eed", eed, withInstance))
	locked := create(t, c, nil)
	ok(t, attach(c, "i-3", locked))
	ok(t, s.SetInstance("i-3", ecssim.InstanceChange{Locked: ptr(true)}))
	booting := create(t, c, nil)
	ok(t, attach(c, "i-tiny", booting))
	ok(t, s.SetInstance("i-tiny", ecssim.InstanceChange{Status: ptr("Starting")}))
	for _, tt := range []struct {
		name   string
		disk   string
		change func(*ecs.CreateSnapshotRequest)
		status int
		code   string
	}{
		{"an unknown disk", "d-9", nil, 404, "InvalidDiskId.NotFound"},
		{"no disk", "", nil, 400, "MissingParameter"},
		{"a disk that was never attached", fresh, nil, 403, "IncorrectDiskStatus.NeverAttached"},
		{"an ephemeral disk", eed, nil, 400, "DiskCategory.OperationNotSupported"},
		{"a locked instance", locked, nil, 403, "InstanceLockedForSecurity"},
		{"an instance that starts", booting, nil, 400, "IncorrectInstanceStatus"},
		{"a name of ECS's own", disk, func(r *ecs.CreateSnapshotRequest) { r.SnapshotName = "auto1" }, 400, "InvalidSnapshotName.Malformed"},
		{"a name of one letter", disk, func(r *ecs.CreateSnapshotRequest) { r.SnapshotName = "x" }, 400, "InvalidSnapshotName.Malformed"},
		{"a description of one letter", disk, func(r *ecs.CreateSnapshotRequest) { r.Description = "x" }, 404, "InvalidDescription.Malformed"},
		{"no days", disk, func(r *ecs.CreateSnapshotRequest) { r.RetentionDays = "0" }, 400, "InvalidRetentionDays.Malformed"},
		{"a tag twice", disk, func(r *ecs.CreateSnapshotRequest) { r.Tag = &[]ecs.CreateSnapshotTag{{Key: "a"}, {Key: "a"}} }, 400, "Duplicate.TagKey"},
		{"a reserved tag", disk, func(r *ecs.CreateSnapshotRequest) { r.Tag = &[]ecs.CreateSnapshotTag{{Key: "aliyun"}} }, 400, "InvalidTagKey.Malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change := tt.change
			if change == nil {
				change = func(*ecs.CreateSnapshotRequest) {}
			}
			wantCode(t, second(snap(c, tt.disk, change)), tt.status, tt.code)
		})
	}
	if n := len(s.Snapshots()); n != 0 {
		t.Errorf("%d snapshots, want none", n)
	}
}

func TestNeverAttachedIsRefusedByCategory(t *testing.T) {
	c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Doubts.SnapshotUnattached = []string{"cloud_auto"} }))
	ok(t, second(snap(c, create(t, c, ofKind("cloud_auto", "", "40")))))
	wantCode(t, second(snap(c, create(t, c, nil))), 403, "IncorrectDiskStatus.NeverAttached")
}

func TestSnapshotsOfADiskAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newServer(t, func(c *ecssim.Config) {
			shotTimes(c)
			c.Limits = ecssim.Limits{SnapshotsPerDisk: 3, SnapshotsAtOnce: 2}
		}))
		essd, ssd := used(t, c, nil), used(t, c, ofKind("cloud_ssd", "", "40"))
		ok(t, second(snap(c, ssd)))
		wantCode(t, second(snap(c, ssd)), 403, "IncorrectDiskStatus.CreatingSnapshot")
		ok(t, second(snap(c, essd)))
		ok(t, second(snap(c, essd)))
		wantCode(t, second(snap(c, essd)), 403, "IncorrectDiskStatus.TooManyCreatingSnapshots")
		time.Sleep(100 * time.Second)
		ok(t, second(snap(c, essd)))
		time.Sleep(100 * time.Second)
		wantCode(t, second(snap(c, essd)), 403, "QuotaExceed.Snapshot")
	})
}

func TestCreateSnapshotUnderAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.API = map[string]time.Duration{"CreateSnapshot": time.Minute} })
		disk := used(t, c, nil)
		under := func(r *ecs.CreateSnapshotRequest) { r.ClientToken = "snap"; r.SetReadTimeout(time.Hour) }
		first := make(chan string)
		go func() {
			id, err := snap(newClient(t, s), disk, under)
			if err != nil {
				t.Error(err)
			}
			first <- id
		}()
		time.Sleep(time.Second)
		wantCode(t, second(snap(c, disk, under)), 403, "IdempotentProcessing")
		id := <-first
		time.Sleep(time.Minute)
		again, err := snap(c, disk, under)
		if err != nil || again != id {
			t.Errorf("the same token gives %s, %v; want %s", again, err, id)
		}
		wantCode(t, second(snap(c, disk, under, func(r *ecs.CreateSnapshotRequest) { r.SnapshotName = "other" })), 403, "IdempotentParameterMismatch")
		if n := len(s.Snapshots()); n != 1 {
			t.Errorf("%d snapshots, want 1", n)
		}
	})
}

func TestDeleteSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, shotTimes)
		disk := used(t, c, nil)
		running, err := snap(c, disk)
		ok(t, err)
		ok(t, deleteSnapshot(c, running, false)) // which cancels it
		ok(t, remove(c, used(t, c, nil)))
		ok(t, resize(c, disk, 21))
		id, err := snap(c, disk)
		ok(t, err)
		time.Sleep(100 * time.Second)
		copied := create(t, c, func(r *ecs.CreateDiskRequest) { r.SnapshotId = id })
		wantCode(t, deleteSnapshot(c, id, false), 403, "SnapshotCreatedDisk")
		if n := oneSnapshot(t, c, id); n.Usage != "disk" {
			t.Errorf("Usage is %s, want disk", n.Usage)
		}
		ok(t, deleteSnapshot(c, id, true))
		wantCode(t, deleteSnapshot(c, id, true), 404, "InvalidSnapshotId.NotFound")
		if d := look(t, c, copied); d.SourceSnapshotId != id {
			t.Errorf("the disk's source is %q after its snapshot is deleted, want %s", d.SourceSnapshotId, id)
		}
		ok(t, s.Check())
	})
}

func TestUnknownSnapshotIsForgivenOnRequest(t *testing.T) {
	c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Doubts.ForgiveUnknownSnapshot = true }))
	ok(t, deleteSnapshot(c, "s-none", false))
}

func TestDiskFromASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) {
			shotTimes(c)
			c.Latency.Initializing, c.Latency.FromSnapshot = time.Second, 100*time.Second
		})
		plain, secret := create(t, c, ofKind("cloud_essd", "", "40")), create(t, c, func(r *ecs.CreateDiskRequest) { r.Encrypted = "true" })
		time.Sleep(time.Second)
		for _, id := range []string{plain, secret} {
			ok(t, attach(c, "i-1", id))
		}
		id, err := snap(c, plain)
		ok(t, err)
		coded, err := snap(c, secret)
		ok(t, err)
		from := func(id, size string, changes ...func(*ecs.CreateDiskRequest)) (string, error) {
			reply, err := c.CreateDisk(newCreate(func(r *ecs.CreateDiskRequest) {
				r.SnapshotId, r.Size = id, requests.Integer(size)
				for _, change := range changes {
					change(r)
				}
			}))
			return reply.DiskId, err
		}
		wantCode(t, second(from(id, "")), 403, "InvalidSnapshotId.NotReady")
		time.Sleep(5 * time.Second)
		for size, want := range map[string]int{"": 40, "20": 40, "60": 60} {
			disk, err := from(id, size)
			ok(t, err)
			if d := look(t, c, disk); d.Size != want || d.SourceSnapshotId != id || d.Encrypted {
				t.Errorf("asked for %q GiB: %d GiB from %q, encrypted %v; want %d from %s", size, d.Size, d.SourceSnapshotId, d.Encrypted, want, id)
			}
		}
		if n := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.SnapshotId = id }).TotalCount; n != 3 {
			t.Errorf("%d disks from the snapshot, want 3", n)
		}
		disk, err := from(coded, "")
		ok(t, err)
		if d := look(t, c, disk); !d.Encrypted {
			t.Error("a disk from an encrypted snapshot is not encrypted")
		}
		wantCode(t, second(from(coded, "", func(r *ecs.CreateDiskRequest) { r.Encrypted = "false" })), 403, "InvalidEncrypted.NotMatchSnapshot")
		wantCode(t, second(from("s-none", "")), 404, "InvalidSnapshotId.NotFound")
		wantCode(t, second(from(id, "64", func(r *ecs.CreateDiskRequest) { r.DiskCategory = "elastic_ephemeral_disk_standard" })), 403, "InvalidOperation.CreateFromSnapshotUnsupported")
		wantCode(t, remove(c, disk), 403, "IncorrectDiskStatus.Initializing") // A6: long after a plain disk would be ready
		time.Sleep(99 * time.Second)
		wantCode(t, attach(c, "i-1", disk), 403, "IncorrectDiskStatus.Initializing")
		time.Sleep(time.Second)
		ok(t, attach(c, "i-1", disk))
		ok(t, s.Check())
	})
}

func TestSizeBelowTheSnapshotIsRefusedOnRequest(t *testing.T) {
	c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Doubts.RefuseLessThanSnapshot = true }))
	id, err := snap(c, used(t, c, ofKind("cloud_essd", "", "40")))
	ok(t, err)
	_, err = c.CreateDisk(newCreate(func(r *ecs.CreateDiskRequest) { r.SnapshotId = id }))
	wantCode(t, err, 403, "InvalidDiskSize.TooSmall")
}

func TestDescribeSnapshotsFiltersAndPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newServerAndClient(t, shotTimes)
		disk, other := used(t, c, nil), used(t, c, func(r *ecs.CreateDiskRequest) { r.Encrypted = "true" })
		var ids []string
		for n := range 12 {
			id, err := snap(c, disk, func(r *ecs.CreateSnapshotRequest) {
				r.SnapshotName = fmt.Sprintf("snap-%d", n)
				r.Tag = &[]ecs.CreateSnapshotTag{{Key: "n", Value: fmt.Sprint(n)}}
			})
			ok(t, err)
			ids = append(ids, id)
			time.Sleep(100 * time.Second)
		}
		late, err := snap(c, other)
		ok(t, err)
		time.Sleep(3 * time.Second)
		ok(t, attach(c, "i-1", other))
		for _, tt := range []struct {
			name   string
			change func(*ecs.DescribeSnapshotsRequest)
			want   int
		}{
			{"ten by default", func(*ecs.DescribeSnapshotsRequest) {}, 10},
			{"100 IDs without a page", func(r *ecs.DescribeSnapshotsRequest) { r.SnapshotIds = idList(ids...) }, 10},
			{"a larger page", func(r *ecs.DescribeSnapshotsRequest) { r.PageSize = "100" }, 13},
			{"the second page", func(r *ecs.DescribeSnapshotsRequest) { r.PageNumber = "2" }, 3},
			{"MaxResults below ten", func(r *ecs.DescribeSnapshotsRequest) { r.MaxResults = "1" }, 10},
			{"MaxResults", func(r *ecs.DescribeSnapshotsRequest) { r.MaxResults = "500" }, 13},
			{"an empty list", func(r *ecs.DescribeSnapshotsRequest) { r.SnapshotIds = "[]" }, 0},
			{"by ID", func(r *ecs.DescribeSnapshotsRequest) { r.SnapshotIds = idList(ids[0], "s-none") }, 1},
			{"by disk", func(r *ecs.DescribeSnapshotsRequest) { r.DiskId = other }, 1},
			{"by instance", func(r *ecs.DescribeSnapshotsRequest) { r.InstanceId = "i-1" }, 1},
			{"by name", func(r *ecs.DescribeSnapshotsRequest) { r.SnapshotName = "snap-3" }, 1},
			{"by tag", func(r *ecs.DescribeSnapshotsRequest) { r.Tag = &[]ecs.DescribeSnapshotsTag{{Key: "n", Value: "4"}} }, 1},
			{"progressing", func(r *ecs.DescribeSnapshotsRequest) { r.Status = "progressing" }, 1},
			{"accomplished", func(r *ecs.DescribeSnapshotsRequest) { r.Status, r.PageSize = "accomplished", "100" }, 12},
			{"all states", func(r *ecs.DescribeSnapshotsRequest) { r.Status, r.PageSize = "all", "100" }, 13},
			{"of users", func(r *ecs.DescribeSnapshotsRequest) { r.SnapshotType, r.PageSize = "user", "100" }, 13},
			{"of ECS itself", func(r *ecs.DescribeSnapshotsRequest) { r.SnapshotType = "auto" }, 0},
			{"of system disks", func(r *ecs.DescribeSnapshotsRequest) { r.SourceDiskType = "system" }, 0},
			{"of data disks", func(r *ecs.DescribeSnapshotsRequest) { r.SourceDiskType, r.PageSize = "data", "100" }, 13},
			{"encrypted", func(r *ecs.DescribeSnapshotsRequest) { r.Encrypted = "true" }, 1},
			{"used for disks", func(r *ecs.DescribeSnapshotsRequest) { r.Usage = "disk" }, 0},
			{"cut after", func(r *ecs.DescribeSnapshotsRequest) {
				r.Filter1Key, r.Filter1Value = "CreationStartTime", "2000-01-01T00:20Z"
			}, 1},
			{"cut before", func(r *ecs.DescribeSnapshotsRequest) {
				r.Filter1Key, r.Filter1Value = "CreationEndTime", "2000-01-01T00:01Z"
			}, 1},
		} {
			if got := len(snapshots(t, c, tt.change).Snapshots.Snapshot); got != tt.want {
				t.Errorf("%s: %d snapshots, want %d", tt.name, got, tt.want)
			}
		}
		if first := snapshots(t, c, nil).Snapshots.Snapshot[0].SnapshotId; first != late {
			t.Errorf("the first is %s, want the newest, %s", first, late)
		}
		var seen []string
		for next := ""; ; {
			reply := snapshots(t, c, func(r *ecs.DescribeSnapshotsRequest) { r.MaxResults, r.NextToken = "10", next })
			for _, n := range reply.Snapshots.Snapshot {
				seen = append(seen, n.SnapshotId)
			}
			if next = reply.NextToken; next == "" {
				break
			}
		}
		slices.Reverse(seen)
		if want := append(slices.Clone(ids), late); !slices.Equal(seen, want) {
			t.Errorf("paging shows %v, want %v", seen, want)
		}
	})
}

func TestDescribeSnapshotsRefuses(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	for _, tt := range []struct {
		name   string
		change func(*ecs.DescribeSnapshotsRequest)
		status int
		code   string
	}{
		{"101 IDs", func(r *ecs.DescribeSnapshotsRequest) { r.SnapshotIds = idList(slices.Repeat([]string{"s-1"}, 101)...) }, 403, "InvalidSnapshotIds.Malformed"},
		{"a comma list", func(r *ecs.DescribeSnapshotsRequest) { r.SnapshotIds = "s-1,s-2" }, 400, "InvalidParameter.SnapshotIds"},
		{"an unknown status", func(r *ecs.DescribeSnapshotsRequest) { r.Status = "done" }, 400, "InvalidStatus.ValueNotSupported"},
		{"a page of 101", func(r *ecs.DescribeSnapshotsRequest) { r.PageSize = "101" }, 400, "InvalidParameter"},
		{"an unknown filter", func(r *ecs.DescribeSnapshotsRequest) { r.Filter1Key, r.Filter1Value = "Size", "1" }, 404, "InvalidFilterKey.NotFound"},
		{"a dry run", func(r *ecs.DescribeSnapshotsRequest) { r.DryRun = "true" }, 400, "DryRunOperation"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ecs.CreateDescribeSnapshotsRequest()
			tt.change(r)
			_, err := c.DescribeSnapshots(r)
			wantCode(t, err, tt.status, tt.code)
		})
	}
}

func TestSnapshotThatFailsOrSticks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, shotTimes)
		disk := used(t, c, nil)
		addFault(t, s, ecssim.Fault{Action: "CreateSnapshot", Do: ecssim.FaultFails, Count: 1})
		addFault(t, s, ecssim.Fault{Action: "CreateSnapshot", Do: ecssim.FaultStuck, Count: 1})
		bad, err := snap(c, disk)
		ok(t, err)
		time.Sleep(100 * time.Second)
		if n := oneSnapshot(t, c, bad); n.Status != "failed" || n.Available || n.CreationTime != "" {
			t.Errorf("failed snapshot %+v", n)
		}
		wantCode(t, second(c.CreateDisk(newCreate(func(r *ecs.CreateDiskRequest) { r.SnapshotId = bad }))), 403, "InvalidSnapshotId.NotReady")
		slow, err := snap(c, disk)
		ok(t, err)
		time.Sleep(time.Hour)
		if n := oneSnapshot(t, c, slow); n.Status != "progressing" || n.Available || n.CreationTime != "" || n.Progress != "0%" {
			t.Errorf("stuck snapshot %+v", n)
		}
		if n := s.Unstick(disk); n != 1 {
			t.Errorf("%d unstuck, want 1", n)
		}
		if n := oneSnapshot(t, c, slow); n.Status != "accomplished" || n.CreationTime == "" {
			t.Errorf("unstuck snapshot %+v", n)
		}
		ok(t, s.Check())
	})
}

func TestTagsOfSnapshots(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	id, err := snap(c, used(t, c, nil))
	ok(t, err)
	r := ecs.CreateTagResourcesRequest()
	r.ResourceType, r.ResourceId, r.Tag = "snapshot", &[]string{id}, &[]ecs.TagResourcesTag{{Key: "keep", Value: "yes"}}
	ok(t, second(c.TagResources(r)))
	if n := oneSnapshot(t, c, id); len(n.Tags.Tag) != 1 || n.Tags.Tag[0].TagValue != "yes" {
		t.Errorf("tags %+v", n.Tags.Tag)
	}
	l := ecs.CreateListTagResourcesRequest()
	l.ResourceType, l.Tag = "snapshot", &[]ecs.ListTagResourcesTag{{Key: "keep"}}
	reply, err := c.ListTagResources(l)
	ok(t, err)
	if list := reply.TagResources.TagResource; len(list) != 1 || list[0].ResourceId != id {
		t.Errorf("list %+v", list)
	}
}

// group starts to make snapshots of disks and returns the group's ID.
func group(c *ecs.Client, disks []string, changes ...func(*ecs.CreateSnapshotGroupRequest)) (string, error) {
	r := ecs.CreateCreateSnapshotGroupRequest()
	if disks != nil {
		r.DiskId = &disks
	}
	for _, change := range changes {
		change(r)
	}
	reply, err := c.CreateSnapshotGroup(r)
	return reply.SnapshotGroupId, err
}

// groups returns what DescribeSnapshotGroups shows.
func groups(t *testing.T, c *ecs.Client, change func(*ecs.DescribeSnapshotGroupsRequest)) []ecs.SnapshotGroup {
	t.Helper()
	r := ecs.CreateDescribeSnapshotGroupsRequest()
	if change != nil {
		change(r)
	}
	reply, err := c.DescribeSnapshotGroups(r)
	ok(t, err)
	return reply.SnapshotGroups.SnapshotGroup
}

func TestSnapshotGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, shotTimes)
		disks := []string{used(t, c, nil), used(t, c, ofKind("cloud_auto", "", "40"))}
		named := func(r *ecs.CreateSnapshotGroupRequest) {
			r.Name, r.ClientToken, r.Tag = "both", "group", &[]ecs.CreateSnapshotGroupTag{{Key: "app", Value: "db"}}
		}
		id, err := group(c, disks, named)
		ok(t, err)
		if again, err := group(c, disks, named); err != nil || again != id || !strings.HasPrefix(id, "ssg-") {
			t.Errorf("under one token: %s, then %s %v", id, again, err)
		}
		time.Sleep(5 * time.Second)
		list := groups(t, c, func(r *ecs.DescribeSnapshotGroupsRequest) { r.Name = "both" })
		if len(list) != 1 || list[0].SnapshotGroupId != id || list[0].Status != "progressing" || len(list[0].Snapshots.Snapshot) != 2 {
			t.Fatalf("groups %+v", list)
		}
		for i, n := range list[0].Snapshots.Snapshot {
			if n.SourceDiskId != disks[i] || !n.Available || n.SourceDiskSize != "" || n.CreationTime != "" {
				t.Errorf("member %+v", n)
			}
			if single := oneSnapshot(t, c, n.SnapshotId); single.CreationTime == "" || single.SnapshotName != "Created_from_"+id || len(single.Tags.Tag) != 1 {
				t.Errorf("member alone %+v", single)
			}
		}
		time.Sleep(100 * time.Second)
		if got := groups(t, c, func(r *ecs.DescribeSnapshotGroupsRequest) {
			r.SnapshotGroupId, r.Status = &[]string{id}, &[]string{"accomplished", "failed"}
		}); len(got) != 1 {
			t.Errorf("%d groups accomplished, want 1", len(got))
		}
		from := list[0].Snapshots.Snapshot[0].SnapshotId
		copied := create(t, c, func(r *ecs.CreateDiskRequest) { r.SnapshotId = from })
		del := ecs.CreateDeleteSnapshotGroupRequest()
		del.SnapshotGroupId = id
		reply, err := c.DeleteSnapshotGroup(del)
		ok(t, err)
		progress := reply.OperationProgressSet.OperationProgress
		if len(progress) != 2 || progress[0].ErrorCode != "SnapshotCreatedDisk" || progress[1].OperationStatus != "Success" || progress[0].RelatedItemSet.RelatedItem[0].Value != from {
			t.Errorf("progress %+v", progress)
		}
		ok(t, remove(c, copied))
		ok(t, second(c.DeleteSnapshotGroup(del)))
		_, err = c.DeleteSnapshotGroup(del)
		wantCode(t, err, 404, "InvalidSnapshotGroupId.NotFound")
		if n := len(s.Snapshots()); n != 0 {
			t.Errorf("%d snapshots left, want none", n)
		}
		ok(t, s.Check())
	})
}

func TestSnapshotGroupOfAnInstance(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	var disks []string
	for range 3 {
		disks = append(disks, create(t, c, nil))
		ok(t, attach(c, "i-1", disks[len(disks)-1]))
	}
	of := func(r *ecs.CreateSnapshotGroupRequest) { r.InstanceId = "i-1" }
	ok(t, second(group(c, nil, of, func(r *ecs.CreateSnapshotGroupRequest) { r.ExcludeDiskId = &[]string{disks[1]} })))
	var got []string
	for _, n := range groups(t, c, nil)[0].Snapshots.Snapshot {
		got = append(got, n.SourceDiskId)
	}
	system := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.InstanceId, r.DiskType = "i-1", "system" }).Disks.Disk[0].DiskId
	if !slices.Equal(got, []string{system, disks[0], disks[2]}) {
		t.Errorf("snapshots of %v, want of the system disk and of the first and the third of %v", got, disks)
	}
	wantCode(t, second(group(c, []string{create(t, c, nil)}, of)), 403, "DependencyViolation")
}

func TestCreateSnapshotGroupRefuses(t *testing.T) {
	c := newClient(t, fleet(t, noneUnattached))
	one, other, fresh := used(t, c, nil), create(t, c, inZoneI), create(t, c, nil)
	wide := create(t, c, regional)
	both := create(t, c, shared)
	old := create(t, c, ofKind("cloud_ssd", "", "40"))
	large := create(t, c, ofKind("cloud_essd", "", "32768"))
	for _, tt := range []struct {
		name   string
		disks  []string
		change func(*ecs.CreateSnapshotGroupRequest)
		status int
		code   string
	}{
		{"no disk", nil, nil, 400, "MissingParameter"},
		{"an unknown disk", []string{"d-9"}, nil, 404, "InvalidDiskId.NotFound"},
		{"an unknown instance", nil, func(r *ecs.CreateSnapshotGroupRequest) { r.InstanceId = "i-9" }, 404, "InvalidInstanceId.NotFound"},
		{"disks and exceptions", []string{one}, func(r *ecs.CreateSnapshotGroupRequest) { r.ExcludeDiskId = &[]string{other} }, 400, "InvalidParameter.Conflict"},
		{"17 disks", slices.Repeat([]string{one}, 17), nil, 403, "NumberExceed.TooManyDisks"},
		{"two zones", []string{one, other}, nil, 400, "InvalidDiskIds.NotInSameZone"},
		{"a regional disk among others", []string{one, wide}, nil, 403, "InvalidDisk.DiskCategoryInconsistent"},
		{"a shared disk", []string{both}, nil, 403, "InvalidOperation.MultiAttachDisk"},
		{"a category without groups", []string{old}, nil, 400, "DiskCategory.OperationNotSupported"},
		{"more than 32 TiB", []string{one, large}, nil, 403, "CapacityExceed.TooManyDisks"},
		{"a disk that was never attached", []string{one, fresh}, nil, 403, "IncorrectDiskStatus.NeverAttached"},
		{"a name of one letter", []string{one}, func(r *ecs.CreateSnapshotGroupRequest) { r.Name = "x" }, 400, "InvalidName.Malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change := tt.change
			if change == nil {
				change = func(*ecs.CreateSnapshotGroupRequest) {}
			}
			wantCode(t, second(group(c, tt.disks, change)), tt.status, tt.code)
		})
	}
	if n := len(groups(t, c, nil)); n != 0 {
		t.Errorf("%d groups, want none", n)
	}
}
