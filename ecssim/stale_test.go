package ecssim_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// seen is what the reads that may lag behind show of a small world, in one text.
func seen(t *testing.T, c *ecs.Client) string {
	t.Helper()
	text := ""
	instances, err := c.DescribeInstances(ecs.CreateDescribeInstancesRequest())
	ok(t, err)
	for _, i := range instances.Instances.Instance {
		text += fmt.Sprint(i.InstanceId, " ", i.Status, " ", len(i.OperationLocks.LockReason), " ", len(i.Tags.Tag), "; ")
	}
	for _, n := range snapshots(t, c, nil).Snapshots.Snapshot {
		text += fmt.Sprint("snapshot ", n.SnapshotName, " ", n.Status, " ", len(n.Tags.Tag), "; ")
	}
	groups, err := c.DescribeSnapshotGroups(ecs.CreateDescribeSnapshotGroupsRequest())
	ok(t, err)
	for _, g := range groups.SnapshotGroups.SnapshotGroup {
		text += fmt.Sprint("group ", g.Name, " ", g.Status, " of ", len(g.Snapshots.Snapshot), "; ")
	}
	tasks, err := c.DescribeTasks(ecs.CreateDescribeTasksRequest())
	ok(t, err)
	for _, task := range tasks.TaskSet.Task {
		text += fmt.Sprint("task ", task.TaskStatus, "; ")
	}
	list := ecs.CreateListTagResourcesRequest()
	list.ResourceType = "instance"
	list.ResourceId = &[]string{"i-1"}
	tags, err := c.ListTagResources(list)
	ok(t, err)
	counted, err := c.DescribeTags(ecs.CreateDescribeTagsRequest())
	ok(t, err)
	return text + fmt.Sprint(len(tags.TagResources.TagResource), " and ", len(counted.Tags.Tag), " tags")
}

func TestStaleReadsShowEverythingAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) {
			c.Latency.SnapshotCut, c.Latency.SnapshotDone, c.Latency.Modify = time.Second, 10*time.Second, 10*time.Second
		})
		one, two := used(t, c, ofKind("cloud_essd", "PL1", "40")), used(t, c, ofKind("cloud_essd", "PL1", "40"))
		three := create(t, c, nil)
		_, err := snap(c, one, func(r *ecs.CreateSnapshotRequest) { r.SnapshotName = "first" })
		ok(t, err)
		time.Sleep(time.Minute)

		lag := 5 * time.Second
		then := seen(t, c)
		time.Sleep(lag)
		// All of it changes at one moment.
		stopped, locked := "Stopped", true
		ok(t, s.SetInstance("i-1", ecssim.InstanceChange{Status: &stopped}))
		ok(t, s.SetInstance("i-2", ecssim.InstanceChange{Locked: &locked}))
		ok(t, s.AddInstance(ecssim.Instance{ID: "i-3", Zone: zoneH, Type: "ecs.g6.large"}))
		tag := ecs.CreateTagResourcesRequest()
		tag.ResourceType, tag.ResourceId, tag.Tag = "instance", &[]string{"i-1"}, &[]ecs.TagResourcesTag{{Key: "app", Value: "db"}}
		_, err = c.TagResources(tag)
		ok(t, err)
		id, err := snap(c, one, func(r *ecs.CreateSnapshotRequest) { r.SnapshotName = "second" })
		ok(t, err)
		group := ecs.CreateCreateSnapshotGroupRequest()
		group.Name, group.DiskId = "pair", &[]string{one, two}
		_, err = c.CreateSnapshotGroup(group)
		ok(t, err)
		modify := ecs.CreateModifyDiskSpecRequest()
		modify.DiskId, modify.PerformanceLevel, modify.ProvisionedIops = three, "", ""
		modify.DiskCategory = "cloud_auto"
		_, err = c.ModifyDiskSpec(modify)
		ok(t, err)

		now := seen(t, c)
		addFault(t, s, ecssim.Fault{Do: ecssim.FaultStale, Lag: lag})
		if got := seen(t, c); got != then {
			t.Errorf("at once a stale read shows\n%s\nwant what was\n%s", got, then)
		}
		time.Sleep(lag)
		if got := seen(t, c); got != now {
			t.Errorf("%v later a stale read shows\n%s\nwant\n%s", lag, got, now)
		}
		// Snapshots are done and tasks are finished when reads don't know it yet.
		time.Sleep(2 * lag)
		before := now
		s.ClearFaults()
		now = seen(t, c)
		ok(t, deleteSnapshot(c, id, false))
		ok(t, s.RemoveInstance("i-3"))
		addFault(t, s, ecssim.Fault{Do: ecssim.FaultStale, Lag: 2 * lag})
		if got := seen(t, c); got != before {
			t.Errorf("a stale read shows\n%s\nwant\n%s", got, before)
		}
		time.Sleep(2*lag - time.Nanosecond)
		if got := seen(t, c); got != now {
			t.Errorf("just before what was deleted is gone, a stale read shows\n%s\nwant\n%s", got, now)
		}
		if now == before || now == then {
			t.Errorf("nothing has changed: %s", now)
		}
		time.Sleep(time.Nanosecond)
		got := seen(t, c)
		s.ClearFaults()
		if now := seen(t, c); got != now {
			t.Errorf("in the end a stale read shows\n%s\nwant\n%s", got, now)
		}
	})
}

func TestAFilterOfAStaleReadGoesByWhatWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, nil)
		time.Sleep(time.Minute)
		stopped := "Stopped"
		ok(t, s.SetInstance("i-1", ecssim.InstanceChange{Status: &stopped}))
		count := func(status string) int {
			r := ecs.CreateDescribeInstancesRequest()
			r.Status, r.MaxResults = status, requests.NewInteger(10)
			reply, err := c.DescribeInstances(r)
			ok(t, err)
			return len(reply.Instances.Instance)
		}
		addFault(t, s, ecssim.Fault{Action: "DescribeInstances", Do: ecssim.FaultStale})
		if running, stopped := count("Running"), count("Stopped"); running != 2 || stopped != 0 {
			t.Errorf("a stale read finds %d running and %d stopped, want 2 and 0", running, stopped)
		}
		time.Sleep(2 * time.Second)
		if running, stopped := count("Running"), count("Stopped"); running != 1 || stopped != 1 {
			t.Errorf("two seconds later: %d running and %d stopped, want 1 and 1", running, stopped)
		}
	})
}
