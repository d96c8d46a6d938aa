package admin_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

func TestAdminAPIChangesInstancesAndQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *ecssim.Config) { c.Latency.Attach = 3 * time.Second })
		id, other := createDisk(t, s, zoneH), createDisk(t, s, zoneH)
		do := func(method, path, body string) string {
			t.Helper()
			status, text := call(t, s, method, path, body)
			if status != 200 {
				t.Fatalf("%s %s %s: %d %s", method, path, body, status, text)
			}
			return text
		}
		do("POST", "/_sim/instances", `{"id":"i-3","zone":"cn-hangzhou-h","type":"ecs.g6.large","status":"Stopped"}`)
		do("POST", "/_sim/queues", `{"attach":32,"detach":5}`)
		do("POST", "/_sim/faults", `{"action":"AttachDisk","do":"stuck","count":1}`)
		must(t, s, "AttachDisk", params{"InstanceId": "i-3", "DiskId": id})
		must(t, s, "AttachDisk", params{"InstanceId": "i-3", "DiskId": other})
		time.Sleep(time.Hour)
		if a, b := status(t, s, id), status(t, s, other); a != "Attaching i-3" || b != "In_use i-3" {
			t.Errorf("the disks are %q and %q", a, b)
		}
		if text := do("POST", "/_sim/unstick", `{"disk":"`+id+`"}`); !strings.Contains(text, `"unstuck": 1`) {
			t.Errorf("unstick: %s", text)
		}
		do("POST", "/_sim/instances", `{"id":"i-3","status":"Running","locked":true}`)
		var devices map[string][]ecssim.Device
		if err := json.Unmarshal([]byte(do("GET", "/_sim/devices", "")), &devices); err != nil {
			t.Fatal(err)
		}
		if len(devices["i-3"]) != 2 || len(devices["i-1"]) != 0 {
			t.Errorf("devices %v, want two of i-3", devices)
		}
		refused(t, s, "DetachDisk", params{"InstanceId": "i-3", "DiskId": id}, "InstanceLockedForSecurity")
		do("DELETE", "/_sim/instances", `{"id":"i-3"}`)
		if got := status(t, s, id); got != "Available" {
			t.Errorf("after its instance is gone the disk is %q", got)
		}
		var state ecssim.State
		if err := json.Unmarshal([]byte(do("GET", "/_sim/state", "")), &state); err != nil {
			t.Fatal(err)
		}
		if state.Queues != ecssim.Parallel || len(state.Instances) != 2 || state.Broken != "" {
			t.Errorf("queues %+v, instances %+v, broken %q", state.Queues, state.Instances, state.Broken)
		}
	})
}

func TestAdminAPIChangesLatenciesAndDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		for path, body := range map[string]string{
			"/_sim/latency": `{"profile":"zero","api":{"AttachDisk":"7s"},"spans":{"Attach":"3s"},"spread":0}`,
			"/_sim/doubts":  `{"inUseCode":"InvalidDisk.InUse"}`,
		} {
			if status, text := call(t, s, "POST", path, body); status != 200 {
				t.Fatalf("%s: %d %s", path, status, text)
			}
		}
		id := createDisk(t, s, zoneH)
		start := time.Now()
		must(t, s, "AttachDisk", params{"InstanceId": "i-1", "DiskId": id})
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("AttachDisk took %v, want 7s", took)
		}
		if got := status(t, s, id); got != "Attaching i-1" {
			t.Errorf("at first the disk is %q", got)
		}
		time.Sleep(3 * time.Second)
		if got := status(t, s, id); got != "In_use i-1" {
			t.Errorf("then the disk is %q", got)
		}
		refused(t, s, "AttachDisk", params{"InstanceId": "i-1", "DiskId": id}, "InvalidDisk.InUse")
		if st := s.State(); st.Latency.Spans["Attach"] != "3s" || st.Latency.API["AttachDisk"] != "7s" || st.Doubts.InUseCode != "InvalidDisk.InUse" {
			t.Errorf("latency %v, doubts %+v", st.Latency, st.Doubts)
		}
	})
}

func TestAdminAPINamesWhatIsWrongWithInstancesAndTimes(t *testing.T) {
	s := newServer(t, nil)
	for _, tt := range []struct{ method, path, body, mentions string }{
		{"POST", "/_sim/instances", `{"id":"i-9","status":"Stopped"}`, "one of i-1, i-2"},
		{"POST", "/_sim/instances", `{"id":"i-1","status":"Asleep"}`, "Pending, Running"},
		{"POST", "/_sim/instances", `{"id":"i-9","zone":"x","type":"ecs.g6.large"}`, "a zone of"},
		{"POST", "/_sim/instances", `{"id":"i-9","zone":"cn-hangzhou-h","type":"ecs.g9i.large"}`, "did you mean"},
		{"POST", "/_sim/types", `{"id":"ecs.g9i.large","nvme":"required"}`, "DiskQuantity"},
		{"POST", "/_sim/types", `{"id":"ecs.g9i.large","disks":9}`, "diskQuantity"},
		{"POST", "/_sim/instances", `{"name":"i-1"}`, "id, zone, type, status, locked"},
		{"DELETE", "/_sim/instances", `{"id":"i-9"}`, "one of i-1, i-2"},
		{"POST", "/_sim/queues", `{"attach":1}`, "both above zero"},
		{"POST", "/_sim/unstick", `{"disks":""}`, "one of disk"},
		{"POST", "/_sim/locks", `{"disk":"d-none"}`, "d-none"},
		{"POST", "/_sim/locks", `{"disk":"d-none","reasons":["mood"]}`, "financial"},
		{"POST", "/_sim/latency", `{"profile":"slow"}`, "zero, fast, real, awful"},
		{"POST", "/_sim/latency", `{"spans":{"Attached":"1s"}}`, "AttachShown"},
		{"POST", "/_sim/latency", `{"spans":{"Attach":"1"}}`, "with its unit"},
		{"POST", "/_sim/latency", `{"api":{"MakeDisk":"1s"}}`, "CreateDisk"},
		{"POST", "/_sim/latency", `{"spread":4}`, "0 to 3"},
		{"POST", "/_sim/doubts", `{"inUseCode":"Busy"}`, "InvalidDisk.InUse"},
		{"POST", "/_sim/doubts", `{"hide":true}`, "hideDetaching"},
	} {
		if status, text := call(t, s, tt.method, tt.path, tt.body); status != 400 || !strings.Contains(text, tt.mentions) {
			t.Errorf("%s %s %s: %d %s; want 400 and mention of %q", tt.method, tt.path, tt.body, status, text, tt.mentions)
		}
	}
}

func TestAdminAPIDeclaresInstanceTypes(t *testing.T) {
	s := newServer(t, nil)
	for _, step := range []struct{ path, body string }{
		{"/_sim/types", `{"id":"ecs.g9i.large","diskQuantity":9,"nvme":"required","categories":["cloud_auto"]}`},
		{"/_sim/instances", `{"id":"i-9","zone":"cn-hangzhou-h","type":"ecs.g9i.large"}`},
	} {
		if status, text := call(t, s, "POST", step.path, step.body); status != 200 {
			t.Fatalf("%s %s: %d %s", step.path, step.body, status, text)
		}
	}
	list := s.State().Instances
	if i := list[len(list)-1]; i.ID != "i-9" || i.DiskLimit != 9 || i.System == "" {
		t.Errorf("the instance of the declared type is %+v", i)
	}
}
