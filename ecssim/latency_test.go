package ecssim_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

func TestDiskIsCreatingUntilItIsAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.Available = 3 * time.Second })
		id := create(t, c, nil)
		status := func() string { return describe(t, c, nil).Disks.Disk[0].Status }
		time.Sleep(3*time.Second - time.Nanosecond)
		if got := status(); got != "Creating" {
			t.Errorf("just before: %s, want Creating", got)
		}
		wantCode(t, remove(c, id), 403, "IncorrectDiskStatus")
		time.Sleep(time.Nanosecond)
		if got := status(); got != "Available" {
			t.Errorf("after 3 s: %s, want Available", got)
		}
		if err := remove(c, id); err != nil {
			t.Error(err)
		}
	})
}

func TestNewDiskIsInitializing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.Initializing = time.Second })
		id := create(t, c, nil)
		wantCode(t, remove(c, id), 403, "IncorrectDiskStatus.Initializing")
		time.Sleep(time.Second)
		if err := remove(c, id); err != nil {
			t.Error(err)
		}
	})
}

func TestRepliesTakeTheirLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		real, err := ecssim.Profile("real")
		if err != nil {
			t.Fatal(err)
		}
		real.Spread = 0 // the times are compared
		c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Latency = real }))
		took := func(f func()) time.Duration { start := time.Now(); f(); return time.Since(start) }
		if d := took(func() { create(t, c, nil); create(t, c, nil) }); d != time.Second {
			t.Errorf("two creates took %v, want 1s", d)
		}
		if d := took(func() { describe(t, c, nil) }); d != 122*time.Millisecond {
			t.Errorf("a read of two disks took %v, want 122ms", d)
		}
	})
}

func TestCreateTakesEffectThoughTheCallerHangsUp(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after time.Duration
		early         int // disks when the caller hangs up
	}{
		{"before the reply", 0, 20 * time.Second, 1},
		{"before the effect", 20 * time.Second, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				if err := s.AddFault(ecssim.Fault{Do: ecssim.FaultDelay, Count: 1, DelayBefore: tt.before, DelayAfter: tt.after}); err != nil {
					t.Fatal(err)
				}
				r := newCreate(token)
				r.SetReadTimeout(5 * time.Second)
				start := time.Now()
				if _, err := newClient(t, s).CreateDisk(r); err == nil || time.Since(start) != 5*time.Second {
					t.Fatalf("error %v after %v, want a timeout after 5s", err, time.Since(start))
				}
				if n := len(s.Disks()); n != tt.early {
					t.Errorf("%d disks when the caller hangs up, want %d", n, tt.early)
				}
				time.Sleep(15 * time.Second)
				disks := s.Disks()
				if len(disks) != 1 {
					t.Fatalf("%d disks in the end, want 1", len(disks))
				}
				if id := create(t, newClient(t, s), token); id != disks[0].ID {
					t.Errorf("the same token gives %s, want %s", id, disks[0].ID)
				}
			})
		})
	}
}

func TestAdvanceEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *ecssim.Config) {
			unsigned(c)
			c.Latency.API = map[string]time.Duration{"": time.Hour}
		})
		start, done := time.Now(), make(chan error, 1)
		r, err := http.NewRequest("GET", "http://ecs/?Action=DescribeZones&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou", nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			reply, err := s.RoundTrip(r)
			if err == nil {
				err = reply.Body.Close()
			}
			done <- err
		}()
		synctest.Wait()
		if err := s.Advance(time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || time.Since(start) != 0 {
			t.Errorf("error %v after %v, want a reply at once", err, time.Since(start))
		}
		var wrong *ecssim.ConfigError
		if err := s.Advance(-time.Second); !errors.As(err, &wrong) {
			t.Errorf("going back: error %v, want a *ConfigError", err)
		}
	})
}

func TestLatencySpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(seed uint32) (list []time.Duration) {
			_, c := newServerAndClient(t, func(c *ecssim.Config) {
				c.Seed = seed
				c.Latency = ecssim.Latency{API: map[string]time.Duration{"DeleteDisk": time.Second}, Spread: 0.5}
			})
			for range 200 {
				start := time.Now()
				wantCode(t, remove(c, "d-none"), 404, "InvalidDiskId.NotFound")
				list = append(list, time.Since(start))
			}
			return list
		}
		first, again, other := took(1), took(1), took(2)
		below, far := 0, 0
		for i, d := range first {
			if d != again[i] {
				t.Fatalf("call %d took %v, then %v with the same seed", i, d, again[i])
			}
			if d < time.Second {
				below++
			}
			if d < time.Second/2 || d > 2*time.Second {
				far++
			}
		}
		if below < 70 || below > 130 || far < 15 || far > 60 {
			t.Errorf("of 200 calls %d took less than the middle and %d less than half or more than twice: want about 100 and 33", below, far)
		}
		if first[0] == other[0] {
			t.Error("another seed gives the same times")
		}
	})
}

func TestAwfulProfileHasEveryAnomaly(t *testing.T) {
	l, err := ecssim.Profile("awful")
	ok(t, err)
	for anomaly, d := range map[string]time.Duration{
		"A1": l.AttachShown, "A4": l.DeviceVisible, "A5": l.InstanceReady, "A6": l.Initializing, "A7": l.BurstReady, "A8": l.TagsVisible, "A9": l.Visible,
	} {
		if d <= 0 {
			t.Errorf("%s does not happen", anomaly)
		}
	}
}
