package admin_test

import (
	"html"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/admin"
)

var formOf = regexp.MustCompile(`<form method="post" action="/_sim/control"><input type="hidden" name="method" value="([A-Z]+)"><input type="hidden" name="route" value="([^"]*)"><input type="hidden" name="body" value="([^"]*)"><input type="hidden" name="place" value="([^"]*)"><button([^>]*)>([^<]*)</button></form>`)

// press presses the n-th button of a label on the page, from 0.
func press(t *testing.T, s *ecssim.Server, label string, n int) {
	t.Helper()
	_, page := call(t, s, "GET", "/_sim/", "")
	for _, f := range formOf.FindAllStringSubmatch(page, -1) {
		if html.UnescapeString(f[6]) != label {
			continue
		}
		if n--; n >= 0 {
			continue
		}
		status, location := submit(s, "same-origin", url.Values{"method": {f[1]}, "route": {f[2]}, "body": {html.UnescapeString(f[3])}, "place": {f[4]}})
		if want := strings.TrimSuffix("/_sim/#"+f[4], "#"); status != 303 || location != want {
			t.Fatalf("button %q: %d to %q, want 303 to %q", label, status, location, want)
		}
		return
	}
	t.Fatalf("the page has no such button %q", label)
}

func submit(s *ecssim.Server, site string, form url.Values) (int, string) {
	r := httptest.NewRequest("POST", "/_sim/control", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", site)
	w := httptest.NewRecorder()
	admin.Handler(s).ServeHTTP(w, r)
	return w.Code, w.Header().Get("Location")
}

func TestButtonsOfThePageDoWhatTheySay(t *testing.T) {
	s := newServer(t, nil)

	press(t, s, "sell out", 0) // the first zone
	refused(t, s, "CreateDisk", essd(zoneH), "InvalidDataDiskCategory.NotSupported")
	for _, level := range s.State().Stock {
		if (level.Units == 0) != (level.Zone == zoneH) {
			t.Errorf("stock %+v", level)
		}
	}
	press(t, s, "restock", 0)
	createDisk(t, s, zoneH)

	press(t, s, "CreateDisk", 0)
	refused(t, s, "CreateDisk", essd(zoneH), "EOF")
	if n := len(s.Disks()); n != 2 {
		t.Errorf("after a lost reply there are %d disks, want 2", n)
	}
	press(t, s, "30 % brown-out for a minute", 0)
	if f := s.Faults(); len(f) != 2 || f[1].Percent != 30 {
		t.Errorf("faults %+v", f)
	}
	press(t, s, "clear all faults", 0)
	if f := s.Faults(); len(f) != 0 {
		t.Errorf("faults %+v", f)
	}

	press(t, s, "tight", 0)
	if n := s.State().Throttle.Limits[""]; n != 60 {
		t.Errorf("limit %d, want 60", n)
	}
	if _, page := call(t, s, "GET", "/_sim/", ""); !strings.Contains(page, `class="on" disabled>tight`) {
		t.Error("the page does not show which limits are in force")
	}

	before := s.Now()
	press(t, s, "one minute forward", 0)
	if d := s.Now().Sub(before); d.Minutes() < 1 {
		t.Errorf("the clock went %v forward", d)
	}
	press(t, s, "stop", 0)
	if status := s.State().Instances[0].Status; status != "Stopped" {
		t.Errorf("the instance is %s", status)
	}
	press(t, s, "start", 0)
	press(t, s, "end temporary keys", 0)
}

func TestActionsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name, site string
		form       url.Values
		want       int
	}{
		{"from another site", "cross-site", url.Values{"method": {"DELETE"}, "route": {"faults"}}, 403},
		{"from a sister site", "same-site", url.Values{"method": {"DELETE"}, "route": {"faults"}}, 403},
		{"an unknown route", "same-origin", url.Values{"method": {"POST"}, "route": {"nothing"}}, 404},
		{"a wrong body", "same-origin", url.Values{"method": {"POST"}, "route": {"stock"}, "body": {`{"zone":"x"}`}}, 400},
		{"a zone that is not there", "same-origin", url.Values{"method": {"POST"}, "route": {"zone"}, "body": {`{"zone":"x","units":0}`}}, 400},
		{"a zone without units", "same-origin", url.Values{"method": {"POST"}, "route": {"zone"}, "body": {`{"zone":"cn-hangzhou-h"}`}}, 400},
		{"no form", "", url.Values{}, 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, nil)
			if err := s.AddFault(ecssim.Fault{Do: ecssim.FaultThrottle}); err != nil {
				t.Fatal(err)
			}
			if got, _ := submit(s, tt.site, tt.form); got != tt.want || len(s.Faults()) != 1 {
				t.Errorf("got %d with %d faults left, want %d", got, len(s.Faults()), tt.want)
			}
		})
	}
}

func TestPageShowsWhatIsThereAndEscapesIt(t *testing.T) {
	s := newServer(t, nil)
	request := essd(zoneH)
	request["Tag.1.Key"], request["Tag.1.Value"] = "note", "<script>alert(1)</script>"
	id := must(t, s, "CreateDisk", request)["DiskId"].(string)
	if err := s.SetStock(zoneI, "cloud_ssd", 0); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/_sim/", "/_sim"} {
		status, page := call(t, s, "GET", path, "")
		if status != 200 || strings.Contains(page, "<script>") {
			t.Fatalf("%s: %d %s", path, status, page)
		}
		for _, part := range []string{id, zoneH, "i-1", "CreateDisk", "CreateDisk answers InvalidDataDiskCategory.NotSupported", "sold out</span>", "&lt;script&gt;", `http-equiv="refresh"`, "POST /_sim/faults"} {
			if !strings.Contains(page, part) {
				t.Errorf("the page does not show %q", part)
			}
		}
	}
}

func TestPageShowsAttachmentsSnapshotsAndTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *ecssim.Config) {
			c.Latency = ecssim.Latency{Attach: 3 * time.Second, Detach: 5 * time.Second, SnapshotCut: 2 * time.Second, SnapshotUsable: 5 * time.Second, SnapshotDone: 100 * time.Second, Modify: time.Minute}
			c.Queues = ecssim.Parallel
		})
		attaching, detaching := createDisk(t, s, zoneH), createDisk(t, s, zoneH)
		must(t, s, "AttachDisk", params{"InstanceId": "i-1", "DiskId": detaching})
		time.Sleep(3 * time.Second)
		snapshot := must(t, s, "CreateSnapshot", params{"DiskId": detaching})["SnapshotId"].(string)
		must(t, s, "DetachDisk", params{"InstanceId": "i-1", "DiskId": detaching})
		must(t, s, "AttachDisk", params{"InstanceId": "i-1", "DiskId": attaching})
		task := must(t, s, "ModifyDiskSpec", params{"DiskId": createDisk(t, s, zoneH), "DiskCategory": "cloud_auto"})["TaskId"].(string)
		post(t, s, "instances", `{"id":"i-2","status":"Stopped","locked":true}`)
		_, page := call(t, s, "GET", "/_sim/", "")
		for _, part := range []string{
			`i-1</code> /dev/xvdb <span class="dim">Detaching`, `i-1</code> /dev/xvdc <span class="dim">Attaching`, snapshot, "progressing", task, "cloud_essd PL1",
			"Modifying", "Stopped", "locked", "Each attaches 32 and detaches 5 disks at a time.",
		} {
			if !strings.Contains(page, part) {
				t.Errorf("the page does not show %q", part)
			}
		}
	})
}
