package ecssim_test

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
		s := newServer(t, timed)
		c := newClient(t, s)
		id, other := create(t, c, nil), create(t, c, nil)
		do := func(method, path, body string) string {
			t.Helper()
			status, text := admin(t, s, method, path, body)
			if status != 200 {
				t.Fatalf("%s %s %s: %d %s", method, path, body, status, text)
			}
			return text
		}
		do("POST", "/_sim/instances", `{"id":"i-3","zone":"cn-hangzhou-h","type":"ecs.g7.large","status":"Stopped"}`)
		do("POST", "/_sim/queues", `{"attach":32,"detach":5}`)
		do("POST", "/_sim/faults", `{"action":"AttachDisk","do":"stuck","count":1}`)
		ok(t, attach(c, "i-3", id))
		ok(t, attach(c, "i-3", other))
		time.Sleep(time.Hour)
		wantStatus(t, c, id, "Attaching", "")
		wantStatus(t, c, other, "In_use", "i-3")
		if text := do("POST", "/_sim/unstick", `{"disk":"`+id+`"}`); !strings.Contains(text, `"unstuck": 1`) {
			t.Errorf("unstick: %s", text)
		}
		do("POST", "/_sim/instances", `{"id":"i-3","status":"Running","locked":true}`)
		var devices map[string][]ecssim.Device
		ok(t, json.Unmarshal([]byte(do("GET", "/_sim/devices", "")), &devices))
		if len(devices["i-3"]) != 2 || len(devices["i-1"]) != 0 {
			t.Errorf("devices %v, want two of i-3", devices)
		}
		wantCode(t, detach(c, "i-3", id), 403, "InstanceLockedForSecurity")
		do("DELETE", "/_sim/instances", `{"id":"i-3"}`)
		wantStatus(t, c, id, "Available", "")
		var state ecssim.State
		ok(t, json.Unmarshal([]byte(do("GET", "/_sim/state", "")), &state))
		if state.Queues != ecssim.Parallel || len(state.Instances) != 2 || state.Broken != "" {
			t.Errorf("queues %+v, instances %+v, broken %q", state.Queues, state.Instances, state.Broken)
		}
	})
}

func TestAdminAPIChangesLatenciesAndDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		c := newClient(t, s)
		for path, body := range map[string]string{
			"/_sim/latency": `{"profile":"zero","api":{"AttachDisk":"7s"},"spans":{"Attach":"3s"},"spread":0}`,
			"/_sim/doubts":  `{"inUseCode":"InvalidDisk.InUse"}`,
		} {
			if status, text := admin(t, s, "POST", path, body); status != 200 {
				t.Fatalf("%s: %d %s", path, status, text)
			}
		}
		id := create(t, c, nil)
		start := time.Now()
		ok(t, attach(c, "i-1", id))
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("AttachDisk took %v, want 7s", took)
		}
		wantStatus(t, c, id, "Attaching", "")
		time.Sleep(3 * time.Second)
		wantStatus(t, c, id, "In_use", "i-1")
		wantCode(t, attach(c, "i-1", id), 404, "InvalidDisk.InUse")
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
		{"POST", "/_sim/instances", `{"id":"i-9","zone":"x","type":"ecs.g7.large"}`, "a zone of"},
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
		if status, text := admin(t, s, tt.method, tt.path, tt.body); status != 400 || !strings.Contains(text, tt.mentions) {
			t.Errorf("%s %s %s: %d %s; want 400 and mention of %q", tt.method, tt.path, tt.body, status, text, tt.mentions)
		}
	}
}

func TestLatencySpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(seed uint32) (list []time.Duration) {
			s := newServer(t, func(c *ecssim.Config) {
				c.Seed = seed
				c.Latency = ecssim.Latency{API: map[string]time.Duration{"DeleteDisk": time.Second}, Spread: 0.5}
			})
			c := newClient(t, s)
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

func TestPageShowsAttachmentsSnapshotsAndTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *ecssim.Config) {
			timed(c)
			shotTimes(c)
			c.Latency.Modify = time.Minute
			c.Queues = ecssim.Parallel
		})
		c := newClient(t, s)
		coming, leaving := create(t, c, nil), create(t, c, nil)
		ok(t, attach(c, "i-1", leaving))
		time.Sleep(3 * time.Second)
		shot, err := snap(c, leaving)
		ok(t, err)
		ok(t, detach(c, "i-1", leaving))
		ok(t, attach(c, "i-1", coming))
		task, err := modify(c, create(t, c, nil), toCategory("cloud_auto"))
		ok(t, err)
		ok(t, s.SetInstance("i-2", ecssim.InstanceChange{Status: ptr("Stopped"), Locked: ptr(true)}))
		_, page := admin(t, s, "GET", "/_sim/", "")
		for _, part := range []string{
			`i-1</code> /dev/xvdb <span class="dim">Detaching`, `i-1</code> /dev/xvdc <span class="dim">Attaching`, shot, "progressing", task, "cloud_essd PL1",
			"Modifying", "Stopped", "locked", "Each attaches 32 and detaches 5 disks at a time.",
		} {
			if !strings.Contains(page, part) {
				t.Errorf("the page does not show %q", part)
			}
		}
	})
}
