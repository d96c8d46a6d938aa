package ecssim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// guestSize returns what the guest of i-1 sees of its only data disk.
func guestSize(t *testing.T, s *ecssim.Server) int {
	t.Helper()
	d, err := s.Devices("i-1")
	ok(t, err)
	if len(d) != 1 {
		t.Fatalf("the guest sees %d devices, want 1", len(d))
	}
	return d[0].Size
}

func TestResizeShowsItsSizeAtOnce(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	id := create(t, c, nil)
	ok(t, resize(c, id, 40))
	if d := look(t, c, id); d.Size != 40 || d.Status != "Available" {
		t.Errorf("after an offline resize: %d GiB, %s", d.Size, d.Status)
	}
	ok(t, attach(c, "i-1", id))
	ok(t, resize(c, id, 50, online))
	if d, guest := look(t, c, id).Size, guestSize(t, s); d != 50 || guest != 50 {
		t.Errorf("after an online resize: %d GiB, the guest sees %d, want 50", d, guest)
	}
	ok(t, resize(c, id, 60))
	if d, guest := look(t, c, id).Size, guestSize(t, s); d != 60 || guest != 50 {
		t.Errorf("after an offline resize in use: %d GiB, the guest sees %d, want 60 and 50", d, guest)
	}
	ok(t, s.SetInstance("i-1", ecssim.InstanceChange{Status: ptr("Stopped")}))
	ok(t, s.SetInstance("i-1", ecssim.InstanceChange{Status: ptr("Running")}))
	if guest := guestSize(t, s); guest != 60 {
		t.Errorf("after a boot the guest sees %d GiB, want 60", guest)
	}
	ok(t, s.Check())
}

func TestResizeRefuses(t *testing.T) {
	for _, tt := range []struct {
		name     string
		disk     func(*ecs.CreateDiskRequest)
		instance string
		size     int
		change   func(*ecs.ResizeDiskRequest)
		status   int
		code     string
	}{
		{"the size that it has", nil, "", 20, nil, 403, "InvalidDiskSize"},
		{"a smaller size", func(r *ecs.CreateDiskRequest) { r.Size = "100" }, "", 50, nil, 403, "InvalidDiskSize"},
		{"a size that no such disk has", func(r *ecs.CreateDiskRequest) { r.DiskCategory = "cloud_ssd" }, "", 19, nil, 400, "InvalidParameter"},
		{"a size beyond all", nil, "", 65537, nil, 400, "InvalidParameter"},
		{"a size of zero", nil, "", 0, nil, 400, "InvalidDataDiskSize.ValueNotSupported"},
		{"a word for a size", nil, "", 40, func(r *ecs.ResizeDiskRequest) { r.NewSize = "big" }, 400, "InvalidDataDiskSize.ValueNotSupported"},
		{"no size", nil, "", 40, func(r *ecs.ResizeDiskRequest) { r.NewSize = "" }, 400, "MissingParameter"},
		{"an unknown type", nil, "", 40, func(r *ecs.ResizeDiskRequest) { r.Type = "hot" }, 400, "InvalidParam.Type"},
		{"an unknown disk", nil, "", 40, func(r *ecs.ResizeDiskRequest) { r.DiskId = "d-9" }, 404, "InvalidDiskId.NotFound"},
		{"a token too long", nil, "", 40, func(r *ecs.ResizeDiskRequest) {
			r.ClientToken = "01234567890123456789012345678901234567890123456789012345678901234"
		}, 400, "InvalidParameter"},
		{"online on no instance", nil, "", 40, online, 403, "IncorrectDiskStatus"},
		{"online on a stopped instance", nil, "i-off", 40, online, 403, "InvalidInstanceStatus.NotRunning"},
		{"online of the old category", func(r *ecs.CreateDiskRequest) { r.DiskCategory = "cloud" }, "i-old", 40, online, 403, "InvalidDiskCategory.NotSupported"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := fleet(t, nil)
			c := newClient(t, s)
			id := create(t, c, tt.disk)
			if tt.instance != "" {
				ok(t, attach(c, tt.instance, id))
			}
			size := look(t, c, id).Size
			wantCode(t, resize(c, id, tt.size, func(r *ecs.ResizeDiskRequest) {
				if tt.change != nil {
					tt.change(r)
				}
			}), tt.status, tt.code)
			if got := look(t, c, id).Size; got != size {
				t.Errorf("a refused resize left %d GiB, want %d", got, size)
			}
		})
	}
}

func TestResizeWhileAttachingIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newServer(t, timed))
		id := create(t, c, nil)
		ok(t, attach(c, "i-1", id))
		wantCode(t, resize(c, id, 40), 403, "IncorrectDiskStatus")
		time.Sleep(3 * time.Second)
		ok(t, resize(c, id, 40, online))
		ok(t, detach(c, "i-1", id))
		wantCode(t, resize(c, id, 50), 403, "IncorrectDiskStatus")
	})
}

func TestResizeUnderAToken(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	id := create(t, c, nil)
	under := func(r *ecs.ResizeDiskRequest) { r.ClientToken = "grow" }
	ok(t, resize(c, id, 40, under))
	ok(t, resize(c, id, 40, under)) // without the token it would be InvalidDiskSize
	wantCode(t, resize(c, id, 50, under), 400, "IdempotentParameterMismatch")
	if d := look(t, c, id); d.Size != 40 {
		t.Errorf("%d GiB, want 40", d.Size)
	}
}

func TestAnotherResizeWaitsForTheOrderBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Latency.Order = 20 * time.Second }))
		id := create(t, c, nil)
		ok(t, resize(c, id, 40))
		wantCode(t, resize(c, id, 50), 400, "LastOrderProcessing")
		time.Sleep(20 * time.Second)
		ok(t, resize(c, id, 50))
	})
}

func TestSharedDiskResizesOnlineUnlessRefused(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		c := newClient(t, fleet(t, func(c *ecssim.Config) { c.Doubts.RefuseSharedOnlineResize = refuse }))
		id := create(t, c, shared)
		ok(t, attach(c, "i-nvme1", id))
		if err := resize(c, id, 40, online); refuse {
			wantCode(t, err, 403, "InvalidOperation.MultiAttachDiskNotSupportResizeOnline")
		} else if err != nil {
			t.Error(err)
		}
	}
}
