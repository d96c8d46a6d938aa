package ecssim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func addFault(t *testing.T, s *ecssim.Server, f ecssim.Fault) {
	t.Helper()
	if err := s.AddFault(f); err != nil {
		t.Fatal(err)
	}
}

// isServer wants an error of ECS's own, of a status and a code.
func isServer(status int, code string) func(error) bool {
	return func(err error) bool {
		var server *sdkerrors.ServerError
		return errors.As(err, &server) && server.HttpStatus() == status && server.ErrorCode() == code
	}
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// isCut wants the error of a connection that was refused or reset.
func isCut(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

func isBadJSON(err error) bool {
	var client *sdkerrors.ClientError
	return errors.As(err, &client) && client.ErrorCode() == "SDK.JsonUnmarshalError"
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		fault  ecssim.Fault
		made   int // disks
		sees   func(error) bool
		ledger string // code
		status int    // in the ledger
	}{
		{ecssim.Fault{Do: ecssim.FaultError}, 0, isServer(500, "InternalError"), "InternalError", 500},
		{ecssim.Fault{Do: ecssim.FaultError, Status: 403, Code: "Forbidden.RAM"}, 0, isServer(403, "Forbidden.RAM"), "Forbidden.RAM", 403},
		{ecssim.Fault{Do: ecssim.FaultThrottle}, 0, isServer(400, "Throttling"), "Throttling", 400},
		{ecssim.Fault{Do: ecssim.FaultThrottle, Code: "Throttling.User"}, 0, isServer(400, "Throttling.User"), "Throttling.User", 400},
		{ecssim.Fault{Do: ecssim.FaultLostRequest}, 0, isEOF, "lost-request", 0},
		{ecssim.Fault{Do: ecssim.FaultLostReply}, 1, isEOF, "", 0},
		{ecssim.Fault{Do: ecssim.FaultErrorAfter}, 1, isServer(503, "ServiceUnavailable"), "", 503},
		{ecssim.Fault{Do: ecssim.FaultTruncated}, 1, isBadJSON, "", 200},
		{ecssim.Fault{Do: ecssim.FaultEmpty}, 1, func(err error) bool { return err == nil }, "", 200},
		{ecssim.Fault{Do: ecssim.FaultHTML}, 1, isServer(502, ""), "", 502},
		{ecssim.Fault{Do: ecssim.FaultDelay, DelayAfter: time.Millisecond}, 1, func(err error) bool { return err == nil }, "", 200},
		{ecssim.Fault{Do: ecssim.FaultBrownOut}, 0, isServer(503, "ServiceUnavailable"), "ServiceUnavailable", 503},
		{ecssim.Fault{Do: ecssim.FaultRefused}, 0, isCut, "refused", 0},
		{ecssim.Fault{Do: ecssim.FaultReset}, 1, isCut, "", 0},
		{ecssim.Fault{Do: ecssim.FaultTrickle, DelayAfter: time.Millisecond}, 1, func(err error) bool { return err == nil }, "", 200},
		{ecssim.Fault{Do: ecssim.FaultDuplicate}, 1, func(err error) bool { return err == nil }, "", 200},
		{ecssim.Fault{Do: ecssim.FaultEcho}, 1, func(err error) bool { return err == nil }, "", 200},
		{ecssim.Fault{Do: ecssim.FaultLate}, 0, isEOF, "late", 0},
		{ecssim.Fault{Do: ecssim.FaultHidden, Hide: []string{"d-1"}}, 1, func(err error) bool { return err == nil }, "", 200},
		{ecssim.Fault{Do: ecssim.FaultIgnored}, 0, func(err error) bool { return err == nil }, "", 200},
		{ecssim.Fault{Do: ecssim.FaultDate}, 1, func(err error) bool { return err == nil }, "", 200},
		{ecssim.Fault{Do: ecssim.FaultFlood}, 1, func(err error) bool { return err == nil }, "", 200},
		{ecssim.Fault{Do: ecssim.FaultNothing}, 1, func(err error) bool { return err == nil }, "", 200},
	} {
		for how, connect := range map[string]func(*testing.T, *ecssim.Server) *ecs.Client{"in process": newClient, "over HTTP": newHTTPClient} {
			t.Run(fmt.Sprintf("%s %s %s", tt.fault.Do, tt.fault.Code, how), func(t *testing.T) {
				s := newServer(t, nil)
				c := connect(t, s)
				tt.fault.Count = 1
				addFault(t, s, tt.fault)
				reply, err := c.CreateDisk(newCreate(token))
				if !tt.sees(err) {
					t.Errorf("the caller sees %v", err)
				}
				if tt.fault.Do == ecssim.FaultEmpty && reply.DiskId != "" {
					t.Errorf("an empty reply has the disk %q", reply.DiskId)
				}
				if made := s.State().DisksMade; made != tt.made {
					t.Errorf("%d disks made, want %d", made, tt.made)
				}
				call := s.Calls()[0]
				if call.Code != tt.ledger || call.Status != tt.status || call.Fault != tt.fault.Do {
					t.Errorf("ledger has code %q, status %d, fault %q; want %q, %d, %q", call.Code, call.Status, call.Fault, tt.ledger, tt.status, tt.fault.Do)
				}
				create(t, c, token)
				if made := s.State().DisksMade; made != 1 {
					t.Errorf("%d disks after the same call again, want 1", made)
				}
			})
		}
	}
}

func TestFaultsStrikeWhomTheyMatch(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	addFault(t, s, ecssim.Fault{Action: "CreateDisk", Params: map[string]string{"ZoneId": "-h$", "SnapshotId": "^$"}, Skip: 1, Count: 2, Do: ecssim.FaultError, Code: "First", Status: 400})
	addFault(t, s, ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultThrottle})
	describe(t, c, nil)
	got := ""
	for i, zone := range []string{zoneH, zoneI, zoneH, zoneH, zoneH} {
		_, err := c.CreateDisk(newCreate(func(r *ecs.CreateDiskRequest) { r.ZoneId = zone }))
		var server *sdkerrors.ServerError
		if !errors.As(err, &server) {
			t.Fatalf("call %d: error %v, want one of the server", i, err)
		}
		got += server.ErrorCode() + " "
	}
	if want := "Throttling Throttling First First Throttling "; got != want {
		t.Errorf("codes %q, want %q", got, want)
	}
	faults := s.Faults()
	if faults[0].ID != 1 || faults[0].Seen != 4 || faults[0].Hit != 2 || faults[1].Seen != 3 || faults[1].Hit != 3 {
		t.Errorf("faults %+v", faults)
	}
	s.ClearFaults()
	create(t, c, nil)
}

func TestDelaysFallOnTheirSideOfTheEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		addFault(t, s, ecssim.Fault{Do: ecssim.FaultDelay, DelayBefore: 2 * time.Second, DelayAfter: 3 * time.Second})
		c, done := newClient(t, s), make(chan struct{})
		start := time.Now()
		go func() { defer close(done); create(t, c, nil) }()
		time.Sleep(2*time.Second - time.Nanosecond)
		if n := len(s.Disks()); n != 0 {
			t.Errorf("%d disks just before the effect, want none", n)
		}
		time.Sleep(time.Nanosecond)
		if n := len(s.Disks()); n != 1 {
			t.Errorf("%d disks at the effect, want 1", n)
		}
		<-done
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("the reply came after %v, want 5s", d)
		}
		if took := s.Calls()[0].Took; took != 5*time.Second {
			t.Errorf("the ledger says it took %v, want 5s", took)
		}
	})
}

func TestAddFaultNamesWhatIsWrong(t *testing.T) {
	s := newServer(t, nil)
	for _, tt := range []struct {
		fault   ecssim.Fault
		field   string
		allowed string
	}{
		{ecssim.Fault{}, "do", "lost-reply"},
		{ecssim.Fault{Do: "explode"}, "do", "lost-reply"},
		{ecssim.Fault{Do: ecssim.FaultDelay}, "do", "delayAfter"},
		{ecssim.Fault{Do: ecssim.FaultError, Action: "MakeDisk"}, "action", "CreateDisk"},
		{ecssim.Fault{Do: ecssim.FaultError, Params: map[string]string{"ZoneId": "("}}, "params.ZoneId", "regular expression"},
		{ecssim.Fault{Do: ecssim.FaultError, Status: 200}, "status", "400 to 599"},
		{ecssim.Fault{Do: ecssim.FaultError, Skip: -1}, "skip", "zero or more"},
		{ecssim.Fault{Do: ecssim.FaultError, Count: -1}, "count", "zero or more"},
		{ecssim.Fault{Do: ecssim.FaultDelay, DelayBefore: -1}, "delayBefore", "zero or more"},
		{ecssim.Fault{Do: ecssim.FaultTrickle}, "do", "delayAfter"},
		{ecssim.Fault{Do: ecssim.FaultStale, Action: "DescribeZones"}, "action", "DescribeInstances"},
		{ecssim.Fault{Do: ecssim.FaultStale, Lag: 3 * time.Minute}, "lag", "2m0s"},
		{ecssim.Fault{Do: ecssim.FaultError, Percent: 101}, "percent", "0 to 100"},
		{ecssim.Fault{Do: ecssim.FaultError, Agent: "["}, "agent", "regular expression"},
		{ecssim.Fault{Do: ecssim.FaultError, For: -1}, "for", "zero or more"},
	} {
		var wrong *ecssim.ConfigError
		if err := s.AddFault(tt.fault); !errors.As(err, &wrong) || wrong.Field != tt.field || !strings.Contains(wrong.Allowed, tt.allowed) {
			t.Errorf("%+v: error %v, want one that names %s and allows %s", tt.fault, err, tt.field, tt.allowed)
		}
	}
	if n := len(s.Faults()); n != 0 {
		t.Errorf("%d faults in the list, want none", n)
	}
}

func TestFaultSurvivesJSON(t *testing.T) {
	want := ecssim.Fault{
		ID: 3, Action: "CreateDisk", Params: map[string]string{"ZoneId": "h"}, Skip: 1, Count: 2, Do: ecssim.FaultErrorAfter,
		Status: 500, Code: "InternalError", Message: "no", DelayBefore: time.Second, DelayAfter: 90 * time.Millisecond, Seen: 5, Hit: 2,
		Agent: "topodisk", Percent: 30, From: time.Minute, For: time.Hour, Lag: 3 * time.Second,
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got ecssim.Fault
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got.Params, want.Params) {
		t.Errorf("params %v, want %v", got.Params, want.Params)
	}
	got.Params, want.Params = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
