package transport

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
	"github.com/topodisk/topodisk/diskdriver/ecs/signature"
	"github.com/topodisk/topodisk/ecssim"
)

func TestChangeThatIsLateIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		signature signature.Version
		after     time.Duration
		made      int
	}{
		"in time":     {signature.V3, disk.RequestLifetime - 2*time.Second, 1},
		"late":        {signature.V3, disk.RequestLifetime + 2*time.Second, 0},
		"in time, v1": {signature.V1, disk.RequestLifetime - 2*time.Second, 1},
		"late, v1":    {signature.V1, disk.RequestLifetime + 2*time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := ecstest.NewSim(t, nil)
				if err := sim.AddFault(ecssim.Fault{Do: ecssim.FaultLate, Lag: test.after}); err != nil {
					t.Fatal(err)
				}
				s := newSession(t, Config{Signature: test.signature, RoundTripper: sim})
				if err := create(t.Context(), s); disk.KindOf(err) != disk.UnknownOutcome {
					t.Fatalf("the call that hangs: %v", err)
				}
				time.Sleep(test.after)
				if n := len(sim.Disks()); n != test.made {
					t.Errorf("%d disks were made, want %d", n, test.made)
				}
			})
		})
	}
}

// clockedECS takes every call that was signed in its window, and tells its time.
type clockedECS struct {
	ahead, window time.Duration
	ages          []time.Duration // of the signatures
}

func (e *clockedECS) RoundTrip(r *http.Request) (*http.Response, error) {
	now := time.Now().Add(e.ahead)
	signed, err := time.Parse("2006-01-02T15:04:05Z", r.Header.Get("X-Acs-Date"))
	if err != nil {
		return nil, err
	}
	e.ages = append(e.ages, now.Sub(signed))
	status, text := 200, `{"RequestId":"R","DiskId":"d-1"}`
	if now.Sub(signed).Abs() > e.window {
		status, text = 400, `{"RequestId":"R","Code":"InvalidTimeStamp.Expired","Message":"expired"}`
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Date": {now.UTC().Format(http.TimeFormat)}},
		Body: io.NopCloser(bytes.NewReader([]byte(text))), Request: r,
	}, nil
}

func TestChangeExpiresByECSsClock(t *testing.T) {
	for name, test := range map[string]struct {
		ecs   clockedECS
		calls []time.Duration // the ages of the signatures of two creates
	}{
		"the clocks are right": {clockedECS{window: 15 * time.Minute}, []time.Duration{14*time.Minute + 40*time.Second, 14*time.Minute + 40*time.Second}},
		"ours is slow": {
			clockedECS{ahead: 10 * time.Minute, window: 15 * time.Minute},
			[]time.Duration{24*time.Minute + 40*time.Second, 14*time.Minute + 40*time.Second, 14*time.Minute + 40*time.Second},
		},
		"ours is fast": {clockedECS{ahead: -5 * time.Minute, window: 15 * time.Minute}, []time.Duration{9*time.Minute + 40*time.Second, 14*time.Minute + 40*time.Second}},
		"another window": {
			clockedECS{window: 10 * time.Minute},
			[]time.Duration{14*time.Minute + 40*time.Second, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t, Config{RoundTripper: &test.ecs})
				for range 2 {
					if err := create(t.Context(), s); err != nil {
						t.Error(err)
					}
				}
				if len(test.ecs.ages) != len(test.calls) {
					t.Fatalf("calls with signatures of the ages %v, want %v", test.ecs.ages, test.calls)
				}
				for n, age := range test.ecs.ages {
					if (age - test.calls[n]).Abs() > time.Second {
						t.Errorf("call %d has a signature of the age %v, want %v", n, age, test.calls[n])
					}
				}
			})
		})
	}
}

func TestAWrongDateLengthensNoRequest(t *testing.T) {
	for name, test := range map[string]struct {
		skew  time.Duration
		calls int // of two creates
	}{
		"far behind":   {-20 * time.Minute, 2},
		"behind":       {-10 * time.Minute, 3}, // the first is refused, which tells the time
		"ahead":        {10 * time.Minute, 2},
		"far ahead":    {20 * time.Minute, 2},
		"a day behind": {-24 * time.Hour, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := ecstest.NewSim(t, nil)
				sent := 0
				s := newSession(t, Config{RoundTripper: ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
					if r.Header.Get("X-Acs-Action") == "CreateDisk" {
						sent++
					}
					return sim.RoundTrip(r)
				})})
				if err := describe(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				for _, f := range []ecssim.Fault{{Action: "DescribeDisks", Do: ecssim.FaultDate, Skew: test.skew, Count: 1}, {Action: "CreateDisk", Skip: 1, Count: 1, Do: ecssim.FaultLate, Lag: disk.RequestLifetime + 2*time.Second}} {
					if err := sim.AddFault(f); err != nil {
						t.Fatal(err)
					}
				}
				if err := describe(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if err := create(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if _, err := CreateDisk.Send(t.Context(), s, fillCreate("vol-2")); disk.KindOf(err) != disk.UnknownOutcome {
					t.Fatalf("the call that is late: %v", err)
				}
				time.Sleep(time.Minute)
				if n := len(sim.Disks()); n != 1 {
					t.Errorf("%d disks, want one: a request outlived its time", n)
				}
				if sent != test.calls {
					t.Errorf("%d calls for two disks, want %d", sent, test.calls)
				}
			})
		})
	}
}

// A window that seems to differ is tried again after a while, and by each process that begins.
func TestRequestsGetTheirBoundedLifeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := clockedECS{window: 10 * time.Minute}
		s := newSession(t, Config{RoundTripper: &server})
		for range 2 {
			if err := create(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		server.window, server.ages = 15*time.Minute, nil
		time.Sleep(endlessLasts)
		if err := create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if len(server.ages) != 1 || (server.ages[0]-signatureWindow+disk.RequestLifetime).Abs() > time.Second {
			t.Errorf("calls with signatures of the ages %v, want one that expires", server.ages)
		}
	})
}

// lateECS takes every call in the window of its signature that arrives after a time.
type lateECS struct {
	clockedECS
	late time.Duration // of the first call
}

func (e *lateECS) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(e.late)
	e.late = 0
	return e.clockedECS.RoundTrip(r)
}

// A request that was on its way for too long is refused as it was meant to be, which says nothing of the signatures that ECS takes.
func TestALateCallEndsNoBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := &lateECS{clockedECS{window: signatureWindow}, disk.RequestLifetime + 2*time.Second}
		s := newSession(t, Config{RoundTripper: wire})
		if err := create(t.Context(), s); disk.KindOf(err) != disk.Unreachable || len(wire.ages) != 1 {
			t.Errorf("%d calls, %v", len(wire.ages), err)
		}
		if err := create(t.Context(), s); err != nil || len(wire.ages) != 2 || wire.ages[1] < signatureWindow-disk.RequestLifetime-time.Second {
			t.Errorf("signatures of the ages %v, %v", wire.ages, err)
		}
	})
}
