package transport

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
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

// pausing is a source of keys, or an ECS that finds each request expired, in which the process doesn't run for a minute.
type pausing struct {
	keys credentials.Keys
	sent int
}

func (p *pausing) Get(context.Context) (credentials.Keys, error) {
	time.Sleep(time.Minute)
	return p.keys, nil
}

func (p *pausing) RoundTrip(r *http.Request) (*http.Response, error) {
	p.sent++
	time.Sleep(time.Minute)
	return ecstest.Answer(r, 400, `{"RequestId":"R","Code":"InvalidTimeStamp.Expired","Message":"expired"}`), nil
}

// A process may be suspended after it has looked whether it was: the request that it signs then, or signs again, is not sent.
func TestACallThatIsSuspendedLateChangesNothing(t *testing.T) {
	keys := credentials.Keys{AccessKeyID: "id", AccessKeySecret: "secret"}
	for name, c := range map[string]struct {
		keys func(*pausing) credentials.Provider
		sent int
	}{
		"while it reads the keys": {func(p *pausing) credentials.Provider { return p }, 0},
		"while it waits for ECS":  {func(*pausing) credentials.Provider { return credentials.Static(keys) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pausing{keys: keys}
				s := newSession(t, Config{RoundTripper: p})
				s.keys = c.keys(p)
				var watch suspension.Watch
				watch.Beat(time.Now())
				_, err := DetachDisk.Send(watch.Mark(t.Context()), s, func(r *sdkecs.DetachDiskRequest) { r.DiskId, r.InstanceId = "d-1", "i-1" })
				if p.sent != c.sent || err == nil {
					t.Errorf("%d requests were sent, want %d: %v", p.sent, c.sent, err)
				}
			})
		})
	}
}
