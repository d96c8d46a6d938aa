package admin_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/admin"
)

const (
	region = "cn-hangzhou"
	zoneH  = "cn-hangzhou-h"
	zoneI  = "cn-hangzhou-i"
)

// newServer returns a simulator of two zones that checks no signatures.
func newServer(t *testing.T, change func(*ecssim.Config)) *ecssim.Server {
	t.Helper()
	config := ecssim.Config{
		Region: region, Zones: []string{zoneH, zoneI},
		Instances: []ecssim.Instance{
			{ID: "i-1", Zone: zoneH, Type: "ecs.g6.large"},
			{ID: "i-2", Zone: zoneI, Type: "ecs.g6.large"},
		},
	}
	if change != nil {
		change(&config)
	}
	s, err := ecssim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call sends a request to the admin API and returns its status and text.
func call(t *testing.T, s *ecssim.Server, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	admin.Handler(s).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// post posts to the admin API and fails the test unless it succeeds.
func post(t *testing.T, s *ecssim.Server, route, body string) string {
	t.Helper()
	status, text := call(t, s, "POST", "/_sim/"+route, body)
	if status != http.StatusOK {
		t.Fatalf("POST %s %s: %d %s", route, body, status, text)
	}
	return text
}

// params are the parameters of an ECS request.
type params map[string]string

// ask sends a request to ECS and returns its reply and the code of its
// refusal, empty for success, "EOF" for a lost reply.
func ask(t *testing.T, s *ecssim.Server, action string, p params) (map[string]any, string) {
	t.Helper()
	form := url.Values{"Action": {action}, "Version": {"2014-05-26"}, "Format": {"JSON"}, "RegionId": {region}}
	for name, value := range p {
		form.Set(name, value)
	}
	reply, err := (&http.Client{Transport: s}).Get("http://ecs.invalid/?" + form.Encode())
	if err != nil {
		return nil, "EOF"
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatalf("reply %q: %v", text, err)
	}
	code, _ := body["Code"].(string)
	return body, code
}

// must is ask that fails the test unless ECS grants the request.
func must(t *testing.T, s *ecssim.Server, action string, p params) map[string]any {
	t.Helper()
	body, code := ask(t, s, action, p)
	if code != "" {
		t.Fatalf("%s %v: %v", action, p, body)
	}
	return body
}

// refused checks the code that ECS refuses a request with.
func refused(t *testing.T, s *ecssim.Server, action string, p params, want string) {
	t.Helper()
	if _, code := ask(t, s, action, p); code != want {
		t.Errorf("%s %v: %q, want %q", action, p, code, want)
	}
}

// essd are the parameters of an ordinary disk.
func essd(zone string) params {
	return params{"ZoneId": zone, "DiskCategory": "cloud_essd", "Size": "20"}
}

// createDisk makes an ordinary disk and returns its ID.
func createDisk(t *testing.T, s *ecssim.Server, zone string) string {
	t.Helper()
	return must(t, s, "CreateDisk", essd(zone))["DiskId"].(string)
}

// status is the status of a disk, and the instance that it is on.
func status(t *testing.T, s *ecssim.Server, disk string) string {
	t.Helper()
	for _, d := range s.Disks() {
		if d.ID == disk {
			text := d.Status
			for _, a := range d.Attachments {
				text += " " + a.Instance
			}
			return text
		}
	}
	return "gone"
}
