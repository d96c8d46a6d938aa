package claim

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
)

// hangingJournal takes a record when its caller gives up.
type hangingJournal struct{ noJournal }

func (hangingJournal) Put(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAnActionThatHangsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.Journal = hangingJournal{}
		begin := time.Now()
		_, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != b.ActionTimeout() {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

func TestAPanicFailsTheAttempt(t *testing.T) {
	b := newBench(t, nil)
	b.Topology = nil
	_, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	if err == nil || outcome != notSent || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("got %v, %v", outcome, err)
	}
}

func TestAPanicInANotificationIsRecovered(t *testing.T) {
	b := newBench(t, []answer{refused(codes.InvalidArgument)})
	b.Events = nil // notify panics
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err == nil || outcome != noVolume {
		t.Errorf("got %v, %v", outcome, err)
	}
	if state, err := b.state("0f1e"), b.Settle(t.Context(), "0f1e"); state != "waiting" || err != nil {
		t.Errorf("the claim is %s, its volume is under way: %v", state, err)
	}
}

// A claim whose attempt has ended in a panic is tried again.
func TestAClaimIsTriedAgainAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []answer{refused(codes.Internal), made("d-bp1", 0, "zone-a")})
		b.Now = time.Now
		events := b.Events
		b.Events = nil
		b.startImmediate(t, "shop", 1)
		taken, _ := b.queue.Get()
		b.work(t.Context(), taken)
		b.queue.Done(taken)
		b.Events = events
		end := b.runs(t.Context())
		time.Sleep(b.RetryMax)
		synctest.Wait()
		if creates, saved := len(b.driver.Created), b.savedVolumes(t); creates != 2 || saved != 1 {
			t.Errorf("the driver was asked %d times, and %d volumes are saved", creates, saved)
		}
		end()
	})
}
