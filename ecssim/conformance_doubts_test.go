package ecssim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// doubt is a thing that sources disagree on, or that differs from account to
// account: each way is a choice of the Config, and each is checked.
type doubt struct {
	page, about string
	ways        []way
}

type way struct {
	says   string
	change func(*ecssim.Config)
	check  func(t *testing.T, c *cloud)
}

func asByDefault(*ecssim.Config) {}

// wants makes a check of one call after another: the last must end so.
func wants(status int, code string, do func(c *cloud) answer) func(*testing.T, *cloud) {
	return func(_ *testing.T, c *cloud) {
		if code == "" {
			c.ok(do(c))
			return
		}
		c.refused(do(c), status, code)
	}
}

func deleteNothing(c *cloud) answer { return c.ask("DeleteDisk", "DiskId", noDisk) }
func deleteNoSnapshot(c *cloud) answer {
	return c.ask("DeleteSnapshot", "SnapshotId", "s-bp1aaaaaaaaaaaaaaaaa")
}

func attachTwice(c *cloud) answer {
	return c.ask("AttachDisk", "DiskId", c.attached(), "InstanceId", c.instance)
}

func detachTwice(c *cloud) answer {
	return c.ask("DetachDisk", "DiskId", c.ready(), "InstanceId", c.instance)
}

func attachAnother(c *cloud) answer {
	one, two := c.ready(), c.ready()
	c.ok(c.ask("AttachDisk", "DiskId", one, "InstanceId", c.instance))
	return c.ask("AttachDisk", "DiskId", two, "InstanceId", c.instance)
}

// attachLeaving attaches a disk to the instance that it is Detaching from.
func attachLeaving(c *cloud) answer {
	id := c.attached()
	c.ok(c.ask("DetachDisk", "DiskId", id, "InstanceId", c.instance))
	return c.ask("AttachDisk", "DiskId", id, "InstanceId", c.instance)
}

// createAfterRefusal makes a disk under the token of a request that was refused.
func createAfterRefusal(c *cloud) answer {
	c.ask("CreateDisk", "ZoneId", c.zone, "DiskCategory", "cloud_none", "Size", "20", "ClientToken", "token")
	return c.ask("CreateDisk", "ZoneId", c.zone, "DiskCategory", "cloud_essd", "Size", "20", "ClientToken", "token")
}

func sharedOnline(c *cloud) answer {
	id := c.ready("MultiAttach", "Enabled")
	if err := c.sim.AddInstance(ecssim.Instance{ID: "i-nvme", Zone: zoneH, Type: "ecs.simn.large"}); err != nil {
		c.t.Fatal(err)
	}
	c.ok(c.ask("AttachDisk", "DiskId", id, "InstanceId", "i-nvme"))
	c.await(id, "In_use")
	return c.ask("ResizeDisk", "DiskId", id, "NewSize", "21", "Type", "online")
}

// levelTask checks whether a change of the level alone has a task.
func levelTask(has bool) func(*testing.T, *cloud) {
	return func(t *testing.T, c *cloud) {
		id := c.ready("Size", "500")
		a := c.ok(c.ask("ModifyDiskSpec", "DiskId", id, "PerformanceLevel", "PL2"))
		if task, _ := a.body["TaskId"].(string); (task != "") != has {
			t.Errorf("task %q", task)
		}
		if !has && c.show(id).text("PerformanceLevel") != "PL2" {
			t.Error("without a task the change is not there at once")
		}
		time.Sleep(24 * time.Hour)
		if d := c.await(id, "Available"); d.text("PerformanceLevel") != "PL2" {
			t.Errorf("level %q", d.text("PerformanceLevel"))
		}
	}
}

func askAsNobody(c *cloud) answer {
	c.keyID = "nobody"
	return c.ask("DescribeRegions")
}

func unattachedSnapshot(c *cloud) answer { return c.ask("CreateSnapshot", "DiskId", c.ready()) }

func throttledWith(code string) way {
	return way{code, func(c *ecssim.Config) {
		c.Throttle = ecssim.Throttle{Limits: map[string]int{"DescribeRegions": 1}, Code: code}
	}, wants(400, code, func(c *cloud) answer {
		c.ok(c.ask("DescribeRegions"))
		return c.ask("DescribeRegions")
	})}
}

func soldOutWith(code string, status int) way {
	return way{code, func(c *ecssim.Config) { c.SoldOutCode = code }, wants(status, code, func(c *cloud) answer {
		if err := c.sim.SetStock(c.zone, "cloud_essd", 0); err != nil {
			c.t.Fatal(err)
		}
		return c.ask("CreateDisk", "ZoneId", c.zone, "DiskCategory", "cloud_essd", "Size", "20")
	})}
}

var doubts = []doubt{
	{"DeleteDisk", "a disk that does not exist", []way{
		{"is InvalidDiskId.NotFound", asByDefault, wants(404, "InvalidDiskId.NotFound", deleteNothing)},
		{"is passed over", func(c *ecssim.Config) { c.ForgiveUnknownDisk = true }, wants(200, "", deleteNothing)},
	}},
	{"DeleteSnapshot", "a snapshot that does not exist", []way{
		{"is InvalidSnapshotId.NotFound", asByDefault, wants(404, "InvalidSnapshotId.NotFound", deleteNoSnapshot)},
		{"is passed over", func(c *ecssim.Config) { c.Doubts.ForgiveUnknownSnapshot = true }, wants(200, "", deleteNoSnapshot)},
	}},
	{"CreateDisk", "a client token of a refused request", []way{
		{"is free", asByDefault, wants(200, "", createAfterRefusal)},
		{"is bound", func(c *ecssim.Config) { c.BindFailedTokens = true }, wants(400, "IdempotentParameterMismatch", createAfterRefusal)},
	}},
	{"AttachDisk", "a disk that is In_use", []way{
		{"is IncorrectDiskStatus", asByDefault, wants(403, "IncorrectDiskStatus", attachTwice)},
		{"is InvalidDisk.InUse", func(c *ecssim.Config) { c.Doubts.InUseCode = "InvalidDisk.InUse" }, wants(404, "InvalidDisk.InUse", attachTwice)},
	}},
	{"AttachDisk", "a disk that is Detaching from that very instance", []way{
		{"is taken", func(c *ecssim.Config) { c.Queues = ecssim.Parallel }, wants(200, "", attachLeaving)},
		{"is IncorrectDiskStatus", func(c *ecssim.Config) {
			c.Queues, c.Doubts.RefuseAttachWhileDetaching = ecssim.Parallel, true
		}, wants(403, "IncorrectDiskStatus", attachLeaving)},
	}},
	{"AttachDisk", "a second disk while the first is Attaching", []way{
		{"is InvalidOperation.Conflict", asByDefault, wants(403, "InvalidOperation.Conflict", attachAnother)},
		{"is taken", func(c *ecssim.Config) { c.Queues = ecssim.Parallel }, wants(200, "", attachAnother)},
	}},
	{"DetachDisk", "a disk that is attached to nothing", []way{
		{"is InvalidDisk.AlreadyDetached", asByDefault, wants(404, "InvalidDisk.AlreadyDetached", detachTwice)},
		{"is DependencyViolation", func(c *ecssim.Config) { c.Doubts.DetachedCode = "DependencyViolation" }, wants(403, "DependencyViolation", detachTwice)},
		{"is IncorrectDiskStatus", func(c *ecssim.Config) { c.Doubts.DetachedCode = "IncorrectDiskStatus" }, wants(403, "IncorrectDiskStatus", detachTwice)},
	}},
	{"ResizeDisk", "a disk with MultiAttach online", []way{
		{"grows", asByDefault, wants(200, "", sharedOnline)},
		{"is refused", func(c *ecssim.Config) { c.Doubts.RefuseSharedOnlineResize = true }, wants(403, "InvalidOperation.MultiAttachDiskNotSupportResizeOnline", sharedOnline)},
	}},
	{"ModifyDiskSpec", "a change of the level alone", []way{
		{"has a task", asByDefault, levelTask(true)},
		{"has none", func(c *ecssim.Config) { c.Doubts.NoTaskForLevel = true }, levelTask(false)},
	}},
	{"CreateSnapshot", "a disk that was never attached", []way{
		{"is taken in some categories", asByDefault, wants(200, "", unattachedSnapshot)},
		{"is refused", noneUnattached, wants(403, "IncorrectDiskStatus.NeverAttached", unattachedSnapshot)},
	}},
	{"Common errors", "the status of InvalidAccessKeyId.NotFound", []way{
		{"is 404", asByDefault, wants(404, "InvalidAccessKeyId.NotFound", askAsNobody)},
		{"is 400", func(c *ecssim.Config) { c.Doubts.UnknownKeyIs400 = true }, wants(400, "InvalidAccessKeyId.NotFound", askAsNobody)},
	}},
	{"Throttling", "the code is", []way{throttledWith("Throttling"), throttledWith("Throttling.User"), throttledWith("Throttling.Api")}},
	{"CreateDisk", "want of stock is", []way{
		soldOutWith("InvalidDataDiskCategory.NotSupported", 400), soldOutWith("OperationDenied.NoStock", 403), soldOutWith("Zone.NotOnSale", 403),
	}},
}

func TestConformanceWhereSourcesDisagree(t *testing.T) {
	for _, d := range doubts {
		for _, w := range d.ways {
			t.Run(d.page+"/"+d.about+" "+w.says, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newSimulated(t, w.change)
					w.check(t, c)
					if err := c.sim.Check(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
