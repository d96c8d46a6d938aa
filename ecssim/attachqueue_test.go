package ecssim_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func inZoneI(r *ecs.CreateDiskRequest) { r.ZoneId = zoneI }

func TestSerialQueueTakesOneAttachOrDetachAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, timed)
		ids := createMany(t, c, 3, nil)
		other := create(t, c, inZoneI)
		ok(t, attach(c, "i-1", ids[0]))
		wantCode(t, attach(c, "i-1", ids[1]), 403, "InvalidOperation.Conflict")
		ok(t, attach(c, "i-2", other)) // another instance has a queue of its own
		time.Sleep(time.Second)        // two calls took a second each
		ok(t, attach(c, "i-1", ids[1]))
		time.Sleep(3 * time.Second)
		ok(t, detach(c, "i-1", ids[0]))
		wantCode(t, detach(c, "i-1", ids[1]), 403, "InvalidOperation.Conflict")
		wantCode(t, attach(c, "i-1", ids[2]), 403, "InvalidOperation.Conflict")
		time.Sleep(3 * time.Second)
		ok(t, attach(c, "i-1", ids[2]))
		ok(t, s.Check())
	})
}

func TestConflictHasTheStatusThatIsConfigured(t *testing.T) {
	for configured, status := range map[int]int{0: 403, 403: 403, 409: 409} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newServer(t, func(c *ecssim.Config) { timed(c); c.Doubts.ConflictStatus = configured }))
			id, other := create(t, c, nil), create(t, c, nil)
			ok(t, attach(c, "i-1", id))
			wantCode(t, attach(c, "i-1", other), status, "InvalidOperation.Conflict")
		})
	}
}

func TestParallelQueuesTake32AttachesAnd5Detaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) {
			c.Queues = ecssim.Parallel
			c.Latency.Attach, c.Latency.Detach = time.Minute, time.Minute
		})
		ids := createMany(t, c, 33, inZoneI)
		for _, id := range ids[:32] {
			ok(t, attach(c, "i-2", id))
		}
		wantCode(t, attach(c, "i-2", ids[32]), 400, "OperationConflict.DisksAttachingParallellyExceed")
		if i := s.State().Instances[1]; i.Attaching != 32 || i.Detaching != 0 {
			t.Errorf("%d attaching and %d detaching, want 32 and 0", i.Attaching, i.Detaching)
		}
		time.Sleep(time.Minute)
		for _, id := range ids[:5] {
			ok(t, detach(c, "i-2", id))
		}
		wantCode(t, detach(c, "i-2", ids[5]), 400, "DisksDetachingOnEcsExceeded")
		ok(t, attach(c, "i-2", ids[32])) // detaches don't count for attaches
		time.Sleep(time.Minute)
		ok(t, detach(c, "i-2", ids[5]))
		ok(t, s.Check())
	})
}

func TestQueuesChangeWhileTheSimulatorRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, timed)
		ids := createMany(t, c, 3, nil)
		ok(t, attach(c, "i-1", ids[0]))
		ok(t, s.SetQueues(ecssim.Queues{Attach: 2, Detach: 1}))
		ok(t, attach(c, "i-1", ids[1]))
		wantCode(t, attach(c, "i-1", ids[2]), 400, "OperationConflict.DisksAttachingParallellyExceed")
		ok(t, s.SetQueues(ecssim.Serial))
		wantCode(t, attach(c, "i-1", ids[2]), 403, "InvalidOperation.Conflict")
		for _, q := range []ecssim.Queues{{Attach: 1}, {Detach: 1}, {Attach: -1, Detach: -1}} {
			var wrong *ecssim.ConfigError
			if err := s.SetQueues(q); !errors.As(err, &wrong) || wrong.Field != "Queues" {
				t.Errorf("%+v: error %v, want one that names Queues", q, err)
			}
		}
	})
}
