package ecssim_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// passed makes n calls and returns how many were let through; the others
// must have been throttled with a code.
func passed(t *testing.T, c *ecs.Client, n int, code string) int {
	t.Helper()
	through := 0
	for range n {
		_, err := c.DescribeDisks(ecs.CreateDescribeDisksRequest())
		if err == nil {
			through++
			continue
		}
		wantCode(t, err, 400, code)
	}
	return through
}

func limit(n int, change func(*ecssim.Throttle)) func(*ecssim.Config) {
	return func(c *ecssim.Config) {
		c.Throttle.Limits = map[string]int{"DescribeDisks": n}
		if change != nil {
			change(&c.Throttle)
		}
	}
}

func TestThrottleWindowIsTheMinute(t *testing.T) {
	for name, phase := range map[string]time.Duration{"of the clock": 0, "with a phase": 17 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the clock begins at a full minute
				c := newClient(t, newServer(t, limit(3, func(l *ecssim.Throttle) { l.Phase = phase })))
				time.Sleep(phase + 50*time.Second)
				if n := passed(t, c, 5, "Throttling"); n != 3 {
					t.Errorf("%d calls of 5 passed, want 3", n)
				}
				time.Sleep(10*time.Second - time.Nanosecond)
				if n := passed(t, c, 1, "Throttling"); n != 0 {
					t.Error("a call passed at the window's last moment")
				}
				time.Sleep(time.Nanosecond)
				if n := passed(t, c, 5, "Throttling"); n != 3 {
					t.Errorf("%d calls of 5 passed in the next window, want 3", n)
				}
			})
		})
	}
}

func TestThrottleCodes(t *testing.T) {
	for _, code := range ecssim.ThrottleCodes {
		s := newServer(t, limit(1, func(l *ecssim.Throttle) { l.Code = code }))
		if n := passed(t, newClient(t, s), 2, code); n != 1 {
			t.Errorf("%s: %d calls passed, want 1", code, n)
		}
	}
}

func TestActionsAreThrottledSeparately(t *testing.T) {
	s := newServer(t, func(c *ecssim.Config) { c.Throttle.Limits = map[string]int{"": 2, "DescribeDisks": 1} })
	if err := s.AddFault(ecssim.Fault{Action: "CreateDisk", Skip: 2, Do: ecssim.FaultError}); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, s)
	create(t, c, nil)
	create(t, c, nil)
	for range 3 {
		_, err := c.CreateDisk(newCreate(token))
		wantCode(t, err, 400, "Throttling")
	}
	if n := passed(t, c, 2, "Throttling"); n != 1 {
		t.Errorf("%d reads passed, want 1", n)
	}
	if _, err := c.DescribeZones(ecs.CreateDescribeZonesRequest()); err != nil {
		t.Errorf("an action that nobody has used up: %v", err)
	}
	state := s.State()
	if state.DisksMade != 2 || state.Faults[0].Seen != 2 {
		t.Errorf("%d disks made and %d calls seen by the fault, want 2 and 2", state.DisksMade, state.Faults[0].Seen)
	}
	level := state.Throttle.Levels[0]
	if level.Action != "CreateDisk" || level.Limit != 2 || level.Used != 2 || level.Refused != 3 || !level.Renewed.After(state.Now) {
		t.Errorf("level %+v", level)
	}
	if n := s.Count("CreateDisk", "Throttling"); n != 3 {
		t.Errorf("ledger has %d throttled calls, want 3", n)
	}
}

func TestBucketTricklesAndMayStickToTheMinute(t *testing.T) {
	for _, tt := range []struct {
		sticky bool
		want   string // calls that passed of five, second by second
	}{
		{false, "2 2 2 2"},
		{true, "2 0 0 0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newServer(t, limit(120, func(l *ecssim.Throttle) { l.Bucket, l.StickyMinute = true, tt.sticky })))
			var got []string
			for range 4 {
				got = append(got, string(rune('0'+passed(t, c, 5, "Throttling"))))
				time.Sleep(time.Second)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("sticky %v: passed %v, want %s", tt.sticky, got, tt.want)
			}
			time.Sleep(time.Minute - 4*time.Second)
			if n := passed(t, c, 5, "Throttling"); n != 2 {
				t.Errorf("sticky %v: %d calls passed in the next minute, want 2", tt.sticky, n)
			}
		})
	}
}

func TestThrottleProfiles(t *testing.T) {
	for name, want := range map[string][2]int{ // creates, reads of disks
		"off": {0, 0}, "tight": {60, 120}, "default": {600, 1200}, "generous": {6000, 6000},
	} {
		synctest.Test(t, func(t *testing.T) {
			profile, err := ecssim.ThrottleProfile(name)
			if err != nil {
				t.Fatal(err)
			}
			s := newServer(t, func(c *ecssim.Config) { c.Throttle = profile; c.AccessKeys = nil; c.LedgerSize = 1 })
			for i, action := range []string{"DeleteDisk", "DescribeDisks"} {
				request := "http://ecs/?Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou&DiskId=d-1&Action=" + action
				n := 0
				for ; n <= 6000; n++ {
					if a := send(t, s, "POST", request, ""); a.code() == "Throttling" {
						break
					}
				}
				if want[i] == 0 {
					want[i] = 6001
				}
				if n != want[i] {
					t.Errorf("%s: %d of %s passed, want %d", name, n, action, want[i])
				}
			}
		})
	}
	if _, err := ecssim.ThrottleProfile("600"); err == nil || !strings.Contains(err.Error(), "tight") {
		t.Errorf("an unknown profile: %v, want the names that exist", err)
	}
}

func TestThrottleIsSetAndRefusedByTheAdminAPI(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	status, text := admin(t, s, "POST", "/_sim/throttle", `{"limits":{"DescribeDisks":2},"code":"Throttling.User","phase":"5s"}`)
	var got ecssim.ThrottleState
	if err := json.Unmarshal([]byte(text), &got); status != 200 || err != nil || got.Limits["DescribeDisks"] != 2 || got.Phase != 5*time.Second {
		t.Fatalf("%d %s %v", status, text, err)
	}
	if n := passed(t, c, 3, "Throttling.User"); n < 2 { // all three, if a window began in between
		t.Errorf("%d calls passed, want 2", n)
	}
	if status, text := admin(t, s, "DELETE", "/_sim/throttle", ""); status != 200 || strings.Contains(text, "DescribeDisks") {
		t.Errorf("no throttle: %d %s", status, text)
	}
	for body, mentions := range map[string]string{
		`{}`: "tight", `{"profile":"slow"}`: "tight", `{"profile":"tight","limits":{}}`: "instead",
		`{"limits":{"MakeDisk":1}}`: "CreateDisk", `{"limits":{"":-1}}`: "zero for no limit",
		`{"profile":"tight","code":"Slow"}`: "Throttling.User", `{"profile":"tight","phase":"60s"}`: "below a minute",
	} {
		if status, text := admin(t, s, "POST", "/_sim/throttle", body); status != 400 || !strings.Contains(text, mentions) {
			t.Errorf("%s: %d %s, want 400 that mentions %q", body, status, text, mentions)
		}
	}
}

func TestThrottledReplyTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newServerAndClient(t, func(c *ecssim.Config) {
			c.Throttle.Limits = map[string]int{"CreateDisk": 1}
			c.Latency.API = map[string]time.Duration{"": time.Second}
		})
		create(t, c, nil)
		start := time.Now()
		_, err := c.CreateDisk(newCreate(nil))
		var server *sdkerrors.ServerError
		if !errors.As(err, &server) || server.ErrorCode() != "Throttling" || time.Since(start) != 0 {
			t.Errorf("got %v after %v, want Throttling at once", err, time.Since(start))
		}
	})
}
