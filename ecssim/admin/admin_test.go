package admin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
)

func TestAdminAPI(t *testing.T) {
	s := newServer(t, nil)
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/_sim/stock", `{"zone":"cn-hangzhou-h","category":"cloud_essd","units":0,"code":"Zone.NotOnSale"}`},
		{"POST", "/_sim/faults", `{"action":"DeleteDisk","do":"throttle","count":1,"delayBefore":"1ms"}`},
		{"POST", "/_sim/clock", `{"advance":"60s"}`},
	} {
		if status, text := call(t, s, tt.method, tt.path, tt.body); status != 200 {
			t.Fatalf("%s %s: %d %s", tt.method, tt.path, status, text)
		}
	}
	refused(t, s, "CreateDisk", essd(zoneH), "Zone.NotOnSale")
	id := createDisk(t, s, zoneI)
	refused(t, s, "DeleteDisk", params{"DiskId": id}, "Throttling")

	var state ecssim.State
	status, text := call(t, s, "GET", "/_sim/state", "")
	if err := json.Unmarshal([]byte(text), &state); err != nil || status != 200 {
		t.Fatalf("state: %d %v", status, err)
	}
	if state.Region != region || len(state.Zones) != 2 || len(state.Instances) != 2 || len(state.Disks) != 1 || state.Disks[0].ID != id || state.DisksMade != 1 ||
		state.Calls["CreateDisk"]["Zone.NotOnSale"] != 1 || state.Calls["CreateDisk"][""] != 1 || len(state.Faults) != 1 || state.Faults[0].Hit != 1 || state.Broken != "" {
		t.Errorf("state %s", text)
	}
	var calls []ecssim.Call
	_, text = call(t, s, "GET", "/_sim/calls", "")
	if err := json.Unmarshal([]byte(text), &calls); err != nil || len(calls) != 3 || calls[2].Disk != id || calls[2].Fault != "throttle" {
		t.Errorf("calls %v %s", err, text)
	}
	if status, text = call(t, s, "DELETE", "/_sim/faults", ""); status != 200 || strings.TrimSpace(text) != "[]" {
		t.Errorf("no faults: %d %s", status, text)
	}
}

func TestAdminAPIRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		mentions                 []string
	}{
		{"an unknown route", "GET", "/_sim/disks", "", 404, []string{"GET /_sim/disks", "POST /_sim/stock"}},
		{"another method", "PUT", "/_sim/stock", "", 405, []string{"PUT", "POST /_sim/stock"}},
		{"another method of the page", "POST", "/_sim/", "", 405, []string{"GET /_sim/"}},
		{"an unknown field", "POST", "/_sim/stock", `{"zones":"x"}`, 400, []string{`"zones"`, "zone, category, units, code"}},
		{"an unknown field of a fault", "POST", "/_sim/faults", `{"actoin":"x"}`, 400, []string{`"actoin"`, "action"}},
		{"no zone", "POST", "/_sim/stock", `{"category":"cloud_ssd","units":0}`, 400, []string{"zone", zoneH}},
		{"no units", "POST", "/_sim/stock", `{"zone":"cn-hangzhou-h","category":"cloud_ssd"}`, 400, []string{"units", "0 is sold out"}},
		{"no category", "POST", "/_sim/stock", `{"zone":"cn-hangzhou-h","units":0}`, 400, []string{"category", "cloud_ssd"}},
		{"an unknown zone", "POST", "/_sim/stock", `{"zone":"x","category":"cloud_ssd","units":0}`, 400, []string{`zone "x"`, zoneH}},
		{"an unknown code", "POST", "/_sim/stock", `{"zone":"cn-hangzhou-h","category":"cloud_ssd","units":0,"code":"Gone"}`, 400, []string{`code "Gone"`, "Zone.NotOnSale"}},
		{"a word for a number", "POST", "/_sim/stock", `{"zone":"x","category":"y","units":"none"}`, 400, []string{"units", "int"}},
		{"no JSON", "POST", "/_sim/stock", `units=0`, 400, []string{"body", "JSON object"}},
		{"two objects", "POST", "/_sim/clock", `{"advance":"1s"}{}`, 400, []string{"one JSON object"}},
		{"no duration", "POST", "/_sim/clock", `{}`, 400, []string{"advance", "60s"}},
		{"a duration without a unit", "POST", "/_sim/clock", `{"advance":"60"}`, 400, []string{`advance "60"`, "unit"}},
		{"a negative duration", "POST", "/_sim/clock", `{"advance":"-1s"}`, 400, []string{"advance", "zero or more"}},
		{"a fault that does nothing", "POST", "/_sim/faults", `{}`, 400, []string{"do", "lost-reply"}},
		{"a delay without a unit", "POST", "/_sim/faults", `{"do":"delay","delayAfter":"5"}`, 400, []string{`delayAfter "5"`, "unit"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, nil)
			before := s.State()
			status, text := call(t, s, tt.method, tt.path, tt.body)
			if status != tt.status {
				t.Errorf("status %d, want %d", status, tt.status)
			}
			var answer struct {
				Error  string
				Routes []string
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				t.Fatalf("answer %q is no JSON: %v", text, err)
			}
			said := answer.Error + strings.Join(answer.Routes, ",")
			for _, m := range tt.mentions {
				if !strings.Contains(said, m) {
					t.Errorf("error %q does not mention %q", said, m)
				}
			}
			if after := s.State(); len(after.Faults) != 0 || len(after.Stock) != len(before.Stock) {
				t.Errorf("the refused request changed the state: %+v", after)
			}
		})
	}
}

func TestOtherPathsPointTheWay(t *testing.T) {
	if status, text := call(t, newServer(t, nil), "GET", "/favicon.ico", ""); status != 404 || !strings.Contains(text, "/_sim/") {
		t.Errorf("got %d %s", status, text)
	}
}
