package transport

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/suspension"
)

// counted counts the requests that would be sent.
type counted struct{ sent int }

func (c *counted) RoundTrip(*http.Request) (*http.Response, error) {
	c.sent++
	return nil, errors.New("nobody answers")
}

func TestACallThatWasSuspendedChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := &counted{}
		s := newSession(t, Config{RoundTripper: wire})
		var watch suspension.Watch
		watch.Beat(time.Now())
		before := watch.Mark(t.Context())
		time.Sleep(time.Minute) // without a Beat
		_, err := DetachDisk.Send(before, s, func(r *sdkecs.DetachDiskRequest) { r.DiskId, r.InstanceId = "d-1", "i-1" })
		if !errors.Is(err, ErrSuspended) || disk.KindOf(err) != disk.Pending || wire.sent > 0 {
			t.Errorf("%v, a %v; %d requests were sent", err, disk.KindOf(err), wire.sent)
		}
		_, _ = DescribeDisks.Send(before, s, func(*sdkecs.DescribeDisksRequest) {})
		if wire.sent == 0 {
			t.Error("a read was not sent")
		}
		sent := wire.sent
		_, err = DetachDisk.Send(watch.Mark(t.Context()), s, func(r *sdkecs.DetachDiskRequest) { r.DiskId, r.InstanceId = "d-1", "i-1" })
		if wire.sent == sent {
			t.Errorf("a call that begins afterwards was not sent: %v", err)
		}
	})
}
