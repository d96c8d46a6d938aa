package credentials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
)

// issuer gives out keys that are numbered from 1, and fails on request.
type issuer struct {
	life, takes time.Duration

	mu      sync.Mutex
	issued  int
	asked   int
	failing error
}

func (i *issuer) fetch(ctx context.Context) (Keys, time.Duration, error) {
	select {
	case <-time.After(i.takes):
	case <-ctx.Done():
		return Keys{}, 0, ctx.Err()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked++
	if i.failing != nil {
		return Keys{}, 0, i.failing
	}
	i.issued++
	return numbered(i.issued), i.life, nil
}

func (i *issuer) fail(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failing = err
}

func numbered(n int) Keys {
	return Keys{AccessKeyID: fmt.Sprint("id", n), AccessKeySecret: "secret", SecurityToken: "token"}
}

func wantKeys(t *testing.T, c Provider, want int) {
	t.Helper()
	if got, err := c.Get(t.Context()); err != nil || got != numbered(want) {
		t.Errorf("%s, %v; want id%d", got.AccessKeyID, err, want)
	}
}

func TestTheCacheFetchesOnceForAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &issuer{life: time.Hour, takes: time.Second}
		c := newCache(source, newMetrics(fromOIDC))
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() { wantKeys(t, c, 1) })
		}
		all.Wait()
		if source.asked != 1 {
			t.Errorf("500 callers made %d requests", source.asked)
		}
	})
}

func TestTheCacheRenewsEarlyAndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &issuer{life: time.Hour, takes: 5 * time.Second}
		c := newCache(source, newMetrics(fromOIDC))
		wantKeys(t, c, 1)
		time.Sleep(44 * time.Minute)
		wantKeys(t, c, 1)
		synctest.Wait()
		if source.asked != 1 {
			t.Errorf("%d requests; the keys are good for another quarter of an hour", source.asked)
		}
		time.Sleep(2 * time.Minute)
		began := time.Now()
		for range 10 {
			wantKeys(t, c, 1)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("callers waited %v while the old keys were good", took)
		}
		time.Sleep(6 * time.Second)
		wantKeys(t, c, 2)
		if source.asked != 2 {
			t.Errorf("%d requests, want 2", source.asked)
		}
	})
}

func TestTheCacheKeepsOldKeysWhileRenewalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		meter := newMetrics(fromOIDC)
		if err := meter.register(registry); err != nil {
			t.Fatal(err)
		}
		source := &issuer{life: time.Hour}
		c := newCache(source, meter)
		wantKeys(t, c, 1)
		source.fail(disk.Errorf(disk.Unreachable, "down"))
		for range 59 {
			time.Sleep(time.Minute)
			synctest.Wait()
			wantKeys(t, c, 1)
		}
		synctest.Wait()
		if failing := ecstest.Gauge(t, registry, "topodisk_ecs_credentials_failing"); failing != 1 {
			t.Errorf("topodisk_ecs_credentials_failing is %v", failing)
		}
		if source.asked < 10 || source.asked > 25 {
			t.Errorf("a renewal that failed for 15 minutes was tried %d times", source.asked)
		}
		time.Sleep(time.Minute)
		_, err := c.Get(t.Context())
		if e := ecstest.WantKind(t, err, disk.Unreachable); !strings.Contains(e.Error(), "down") {
			t.Errorf("error %v doesn't say why", e)
		}
		source.fail(nil)
		time.Sleep(lastBackoff)
		wantKeys(t, c, 2)
		if failing := ecstest.Gauge(t, registry, "topodisk_ecs_credentials_failing"); failing != 0 {
			t.Errorf("topodisk_ecs_credentials_failing is %v after it went well", failing)
		}
		if end := ecstest.Gauge(t, registry, "topodisk_ecs_credentials_expiry_timestamp_seconds"); end < float64(time.Now().Unix()) {
			t.Errorf("the end is %v", end)
		}
	})
}

func TestACallerThatLeavesEndsNobodysRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &issuer{life: time.Hour, takes: 2 * time.Second}
		c := newCache(source, newMetrics(fromOIDC))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Get(ctx)
		ecstest.WantKind(t, err, disk.Unreachable)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v doesn't say that the time was over", err)
		}
		wantKeys(t, c, 1)
		if source.asked != 1 {
			t.Errorf("%d requests, want 1", source.asked)
		}
	})
}

func TestAFailureIsNotRepeatedForEveryCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &issuer{life: time.Hour}
		source.fail(disk.Errorf(disk.Unauthenticated, "no such role"))
		c := newCache(source, newMetrics(fromOIDC))
		for range 100 {
			_, err := c.Get(t.Context())
			ecstest.WantKind(t, err, disk.Unauthenticated)
			time.Sleep(100 * time.Millisecond)
		}
		if source.asked > 5 {
			t.Errorf("100 calls in 10s made %d requests, want at most 5", source.asked)
		}
	})
}

func TestKeysThatECSRefusesAreRenewedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &issuer{life: time.Hour, takes: 100 * time.Millisecond}
		c := newCache(source, newMetrics(fromOIDC))
		wantKeys(t, c, 1)
		if _, ok := c.Renew(t.Context(), numbered(1)); ok || source.asked != 1 {
			t.Errorf("keys that are just out were renewed: %d requests", source.asked)
		}
		time.Sleep(time.Minute)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if got, ok := c.Renew(t.Context(), numbered(1)); !ok || got != numbered(2) {
					t.Errorf("%s, %v; want id2", got.AccessKeyID, ok)
				}
			})
		}
		all.Wait()
		if source.asked != 2 {
			t.Errorf("%d requests, want 2", source.asked)
		}
		source.fail(disk.Errorf(disk.Unreachable, "down"))
		time.Sleep(time.Minute)
		if _, ok := c.Renew(t.Context(), numbered(2)); ok {
			t.Error("a renewal that failed gave new keys")
		}
		wantKeys(t, c, 2) // the refused ones are better than none
	})
}

func TestKeysThatHaveEndedAreNotGivenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &issuer{life: -time.Minute}
		c := newCache(source, newMetrics(fromOIDC))
		_, err := c.Get(t.Context())
		if e := ecstest.WantKind(t, err, disk.Unauthenticated); !strings.Contains(e.Error(), "1m0s before") {
			t.Errorf("error %v", e)
		}
	})
}
