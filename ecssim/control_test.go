package ecssim_test

import (
	"html"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
)

var formOf = regexp.MustCompile(`<form method="post" action="/_sim/control"><input type="hidden" name="method" value="([A-Z]+)"><input type="hidden" name="route" value="([^"]*)"><input type="hidden" name="body" value="([^"]*)"><input type="hidden" name="place" value="([^"]*)"><button([^>]*)>([^<]*)</button></form>`)

// press presses the n-th button of a label on the page, from 0.
func press(t *testing.T, s *ecssim.Server, label string, n int) {
	t.Helper()
	_, page := admin(t, s, "GET", "/_sim/", "")
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
	s.ServeHTTP(w, r)
	return w.Code, w.Header().Get("Location")
}

func TestButtonsOfThePageDoWhatTheySay(t *testing.T) {
	s := newServer(t, nil)
	c := newClient(t, s)

	press(t, s, "sell out", 0) // the first zone
	_, err := c.CreateDisk(newCreate(nil))
	wantCode(t, err, 400, "InvalidDataDiskCategory.NotSupported")
	for _, level := range s.State().Stock {
		if (level.Units == 0) != (level.Zone == zoneH) {
			t.Errorf("stock %+v", level)
		}
	}
	press(t, s, "restock", 0)
	create(t, c, nil)

	press(t, s, "CreateDisk", 0)
	if _, err := c.CreateDisk(newCreate(nil)); !isEOF(err) || len(s.Disks()) != 2 {
		t.Errorf("a lost reply: %v with %d disks", err, len(s.Disks()))
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
	if _, page := admin(t, s, "GET", "/_sim/", ""); !strings.Contains(page, `class="on" disabled>tight`) {
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

func TestControlsAreRefused(t *testing.T) {
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
