package ecssim_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// ask reads from a metadata service and returns status and text.
func ask(t *testing.T, service http.RoundTripper, method, path string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://100.100.100.200"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	reply, err := service.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(text)
}

const (
	ttl       = "X-aliyun-ecs-metadata-token-ttl-seconds"
	imdsToken = "X-aliyun-ecs-metadata-token"
)

func TestMetadataOfAnInstance(t *testing.T) {
	s := newServer(t, withRole)
	for path, want := range map[string]string{
		"/latest/meta-data/instance-id": "i-1", "/latest/meta-data/zone-id": zoneH, "/latest/meta-data/region-id": region,
		"/latest/meta-data/instance/instance-type": "ecs.g6.large", "/latest/meta-data/owner-account-id": "1234567890123456",
		"/latest/meta-data/ram/security-credentials/": "disk-driver", "/latest/meta-data/ram": "security-credentials/",
		"/latest/meta-data/": strings.ReplaceAll("hostname image-id instance-id instance/ mac owner-account-id private-ipv4 ram/ region-id serial-number vpc-id vswitch-id zone-id", " ", "\n"),
	} {
		if status, text := ask(t, s.Metadata("i-1"), "GET", path); status != 200 || text != want {
			t.Errorf("%s: %d %q, want %q", path, status, text, want)
		}
	}
	var document map[string]string
	_, text := ask(t, s.Metadata("i-2"), "GET", "/latest/dynamic/instance-identity/document")
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	if document["instance-id"] != "i-2" || document["zone-id"] != zoneI || document["instance-type"] != "ecs.g6se.26xlarge" || document["region-id"] != region ||
		document["owner-account-id"] == "" || document["serial-number"] == "" || document["private-ipv4"] == "" {
		t.Errorf("document %v", document)
	}
	for _, path := range []string{"/latest/meta-data/nothing", "/latest/", "/latest/meta-data/instance/spot/termination-time", "/latest/meta-data/ram/security-credentials/other"} {
		if status, _ := ask(t, s.Metadata("i-1"), "GET", path); status != 404 {
			t.Errorf("%s: %d, want 404", path, status)
		}
	}
	if status, _ := ask(t, s.Metadata("i-2"), "GET", "/latest/meta-data/ram/security-credentials/"); status != 404 {
		t.Errorf("an instance without a role: %d, want 404", status)
	}
}

func TestMetadataSayWhoseByHeaderOrListener(t *testing.T) {
	s := newServer(t, nil)
	if status, text := ask(t, s, "GET", "/latest/meta-data/instance-id", "X-Sim-Instance", "i-2"); status != 200 || text != "i-2" {
		t.Errorf("by header: %d %q", status, text)
	}
	if status, text := ask(t, s, "GET", "/latest/meta-data/instance-id"); status != 404 || !strings.Contains(text, "X-Sim-Instance") {
		t.Errorf("of nobody: %d %q", status, text)
	}
	h := httptest.NewServer(s.Metadata("i-1"))
	defer h.Close()
	reply, err := http.Get(h.URL + "/latest/meta-data/instance-id")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	if text, _ := io.ReadAll(reply.Body); string(text) != "i-1" || reply.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("by listener: %q of type %q", text, reply.Header.Get("Content-Type"))
	}
	if status, _ := ask(t, plainClient{h}, "GET", "/"); status != 404 {
		t.Errorf("the API at an instance's listener: %d, want 404", status)
	}
}

// plainClient sends requests to a test server, whatever their host.
type plainClient struct{ h *httptest.Server }

func (p plainClient) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Host = strings.TrimPrefix(p.h.URL, "http://")
	return p.h.Client().Transport.RoundTrip(r)
}

func TestTokenMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *ecssim.Config) { c.Instances[0].TokensRequired = true })
		one, two := s.Metadata("i-1"), s.Metadata("i-2")
		status, token := ask(t, one, "PUT", "/latest/api/token", ttl, "60")
		if status != 200 || token == "" {
			t.Fatalf("no token: %d %q", status, token)
		}
		const path = "/latest/meta-data/instance-id"
		for _, tt := range []struct {
			name    string
			service http.RoundTripper
			headers []string
			want    int
		}{
			{"with the token", one, []string{imdsToken, token}, 200},
			{"without one where it is required", one, nil, 403},
			{"without one where it is not", two, nil, 200},
			{"with another instance's", two, []string{imdsToken, token}, 401},
			{"with an invented one", one, []string{imdsToken, "x"}, 401},
			{"through a proxy", one, []string{imdsToken, token, "X-Forwarded-For", "192.0.2.1"}, 403},
		} {
			if status, text := ask(t, tt.service, "GET", path, tt.headers...); status != tt.want {
				t.Errorf("%s: %d %q, want %d", tt.name, status, text, tt.want)
			}
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if status, _ := ask(t, one, "GET", path, imdsToken, token); status != 200 {
			t.Errorf("just before its end: %d, want 200", status)
		}
		time.Sleep(time.Nanosecond)
		if status, _ := ask(t, one, "GET", path, imdsToken, token); status != 401 {
			t.Errorf("after its end: %d, want 401", status)
		}
		for _, seconds := range []string{"", "0", "21601", "x"} {
			if status, text := ask(t, one, "PUT", "/latest/api/token", ttl, seconds); status != 400 || !strings.Contains(text, "21600") {
				t.Errorf("TTL %q: %d %q, want 400", seconds, status, text)
			}
		}
		if status, _ := ask(t, one, "GET", "/latest/api/token", ttl, "60"); status != 405 {
			t.Errorf("GET of a token: %d, want 405", status)
		}
		if status, _ := ask(t, one, "PUT", path); status != 405 {
			t.Errorf("PUT of data: %d, want 405", status)
		}
	})
}

func TestMetadataCanBeOffAndMeetsFaults(t *testing.T) {
	s := newServer(t, func(c *ecssim.Config) { c.Instances[0].MetadataOff = true })
	r := httptest.NewRequest("GET", "http://100.100.100.200/latest/meta-data/instance-id", nil)
	if _, err := s.Metadata("i-1").RoundTrip(r); !errors.Is(err, io.EOF) {
		t.Errorf("a service that is off: %v, want EOF", err)
	}
	if err := s.AddFault(ecssim.Fault{Action: "Metadata", Params: map[string]string{"Path": "zone-id"}, Do: ecssim.FaultError, Status: 429, Message: "slow down"}); err != nil {
		t.Fatal(err)
	}
	if status, text := ask(t, s.Metadata("i-2"), "GET", "/latest/meta-data/zone-id"); status != 429 || text != "slow down" {
		t.Errorf("with a fault: %d %q", status, text)
	}
	if status, _ := ask(t, s.Metadata("i-2"), "GET", "/latest/meta-data/region-id"); status != 200 {
		t.Errorf("beside the fault: %d", status)
	}
	if n := s.Count("Metadata", ""); n != 1 {
		t.Errorf("the ledger has %d requests that went well, want 1", n)
	}
}

func TestInstanceRoleKeysRotateAndWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, withRole)
		type credentials struct{ AccessKeyId, AccessKeySecret, SecurityToken, Expiration, LastUpdated, Code string }
		get := func() credentials {
			t.Helper()
			var k credentials
			_, text := ask(t, s.Metadata("i-1"), "GET", "/latest/meta-data/ram/security-credentials/disk-driver")
			if err := json.Unmarshal([]byte(text), &k); err != nil || k.Code != "Success" || k.LastUpdated == "" {
				t.Fatalf("%s %v", text, err)
			}
			return k
		}
		first := get()
		ends, err := time.Parse("2006-01-02T15:04:05Z", first.Expiration)
		if err != nil || time.Until(ends) != 6*time.Hour {
			t.Fatalf("expiration %q, want in 6h", first.Expiration)
		}
		c := newTokenClient(t, s, first.AccessKeyId, first.AccessKeySecret, first.SecurityToken)
		if err := readDisks(c); err != nil {
			t.Error(err)
		}
		time.Sleep(5*time.Hour + 29*time.Minute)
		if get() != first {
			t.Error("the keys changed before their last half hour")
		}
		time.Sleep(time.Minute)
		second := get()
		if second.AccessKeyId == first.AccessKeyId || second.SecurityToken == first.SecurityToken {
			t.Error("the keys did not change in their last half hour")
		}
		if err := readDisks(c); err != nil {
			t.Errorf("the old keys until their end: %v", err)
		}
		s.EndTemporaryKeys()
		wantCode(t, readDisks(c), 400, "InvalidSecurityToken.Expired")
		if get().AccessKeyId == second.AccessKeyId {
			t.Error("keys that were ended are given out")
		}
	})
}

func TestInstanceShowsItsMetadataOptions(t *testing.T) {
	s := newServer(t, func(c *ecssim.Config) { c.Instances[0].TokensRequired = true; c.AccessKeys = nil })
	a := send(t, s, "GET", "http://ecs/?Action=DescribeInstances&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou", "")
	if !strings.Contains(a.text, `"HttpTokens":"required"`) || !strings.Contains(a.text, `"HttpTokens":"optional"`) {
		t.Errorf("%s", a.text)
	}
}
