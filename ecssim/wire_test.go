package ecssim_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// capture passes requests on and keeps the URL of the last one.
type capture struct {
	next http.RoundTripper
	url  string
}

func (c *capture) RoundTrip(r *http.Request) (*http.Response, error) {
	c.url = r.URL.String()
	return c.next.RoundTrip(r)
}

// answer is what came back to a request made by hand.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

func (a answer) code() string { code, _ := a.body["Code"].(string); return code }

func send(t *testing.T, s http.RoundTripper, method, target, form string) answer {
	t.Helper()
	r, err := http.NewRequest(method, target, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	reply, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: reply.StatusCode, header: reply.Header, text: string(text)}
	if err := json.Unmarshal(text, &a.body); err != nil {
		t.Fatalf("reply %q is no JSON object: %v", text, err)
	}
	return a
}

func unsigned(c *ecssim.Config) { c.AccessKeys = nil }

var requestIDForm = regexp.MustCompile(`^[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}$`)

// wantBody checks that a reply carries its request ID in body and header.
func wantBody(t *testing.T, a answer) {
	t.Helper()
	id, _ := a.body["RequestId"].(string)
	if !requestIDForm.MatchString(id) || a.header.Get("X-Acs-Request-Id") != id {
		t.Errorf("request ID %q in the body and %q in the header, want one upper-case UUID", id, a.header.Get("X-Acs-Request-Id"))
	}
}

func TestParametersOfQueryAndFormAreMerged(t *testing.T) {
	s := newServer(t, unsigned)
	a := send(t, s, "POST", "http://ecs/?Action=CreateDisk&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou", "ZoneId=cn-hangzhou-h&DiskCategory=cloud_ssd&Size=20")
	wantBody(t, a)
	if id, _ := a.body["DiskId"].(string); a.status != 200 || len(id) != 22 || !strings.HasPrefix(id, "d-bp1") {
		t.Errorf("got %d %s, want 200 and an ID d- and 20 characters of region bp1", a.status, a.text)
	}
}

func TestGatewayRefusals(t *testing.T) {
	const disks = "Action=DescribeDisks&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou"
	for _, tt := range []struct {
		name, method, query string
		status              int
		code, mentions      string
	}{
		{"unknown action", "POST", "Action=MakeDisk&Version=2014-05-26&Format=JSON", 404, "InvalidAction.NotFound", "MakeDisk"},
		{"action of another version", "POST", "Action=DescribeDisks&Version=2015-04-01&Format=JSON", 404, "InvalidAction.NotFound", "2015-04-01"},
		{"no action", "GET", "Version=2014-05-26&Format=JSON", 400, "MissingParameter", `"Action"`},
		{"a parameter sent twice", "GET", disks + "&ZoneId=cn-hangzhou-h&ZoneId=cn-hangzhou-i", 400, "InvalidParameter", "ZoneId"},
		{"another method", "PUT", disks, 403, "UnsupportedHTTPMethod", "PUT"},
		{"a broken escape", "GET", disks + "&DiskName=%zz", 400, "InvalidParameter", "%zz"},
		{"missing mandatory parameter", "GET", "Action=CreateDisk&Version=2014-05-26&Format=JSON", 400, "MissingParameter", `"RegionId"`},
		{"its own spelling in DescribeDisks", "GET", "Action=DescribeDisks&Version=2014-05-26&Format=JSON", 400, "MissingParamter.RegionId", `"RegionId"`},
		{"another region", "GET", "Action=DescribeZones&Version=2014-05-26&Format=JSON&RegionId=cn-nowhere", 404, "InvalidRegionId.NotFound", "cn-nowhere"},
		{"another region in DescribeDisks", "GET", "Action=DescribeDisks&Version=2014-05-26&Format=JSON&RegionId=cn-nowhere", 400, "InvalidRegion.NotFound", "cn-nowhere"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := send(t, newServer(t, unsigned), tt.method, "http://ecs.test/?"+tt.query, "")
			wantBody(t, a)
			if a.status != tt.status || a.code() != tt.code || !strings.Contains(a.text, strings.Trim(tt.mentions, `"`)) {
				t.Errorf("got %d %s, want %d %s mentioning %s", a.status, a.text, tt.status, tt.code, tt.mentions)
			}
			if a.body["HostId"] != "ecs.test" || a.body["Message"] == "" || !strings.Contains(a.body["Recommend"].(string), "q="+tt.code) {
				t.Errorf("incomplete error body %s", a.text)
			}
		})
	}
}

func TestActionMayBeNamedInHeaders(t *testing.T) {
	r, err := http.NewRequest("POST", "http://ecs/?RegionId=cn-hangzhou", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("x-acs-action", "DescribeDisks")
	r.Header.Set("x-acs-version", "2014-05-26")
	reply, err := newServer(t, unsigned).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != 200 {
		t.Errorf("status %d, want 200", reply.StatusCode)
	}
}

func TestUnknownParametersAreCountedNotRefused(t *testing.T) {
	s := newServer(t, unsigned)
	a := send(t, s, "GET", "http://ecs/?Action=DescribeDisks&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou&DiskID=d-1&Colour.1.Name=a&Colour.2.Name=b", "")
	if a.status != 200 {
		t.Fatalf("got %d %s, want 200", a.status, a.text)
	}
	got := s.State().UnknownParams
	if len(got) != 2 || got["DescribeDisks DiskID"] != 1 || got["DescribeDisks Colour.N.Name"] != 1 {
		t.Errorf("unknown parameters %v, want DiskID and Colour.N.Name once each", got)
	}
}

func TestSignatureIsChecked(t *testing.T) {
	s := newServer(t, nil)
	t.Run("a wrong secret", func(t *testing.T) {
		c := newSDKClient(t, keyID, "wrong")
		c.SetTransport(s)
		c.Domain = "ecs.invalid"
		_, err := c.DescribeDisks(ecs.CreateDescribeDisksRequest())
		var server *sdkerrors.ServerError
		if !errors.As(err, &server) || server.ErrorCode() != "SignatureDoesNotMatch" || server.HttpStatus() != 400 {
			t.Fatalf("got %v, want 400 SignatureDoesNotMatch", err)
		}
		// The SDK says so only if the server echoes the very string that it signed itself.
		if !strings.HasPrefix(server.Recommend(), "InvalidAccessKeySecret") {
			t.Errorf("recommend %q, want InvalidAccessKeySecret: the echoed string to sign differs", server.Recommend())
		}
	})
	t.Run("an unknown key", func(t *testing.T) {
		c := newSDKClient(t, "nobody", secret)
		c.SetTransport(s)
		c.Domain = "ecs.invalid"
		_, err := c.DescribeDisks(ecs.CreateDescribeDisksRequest())
		wantCode(t, err, 404, "InvalidAccessKeyId.NotFound")
	})
	t.Run("no signature", func(t *testing.T) {
		a := send(t, s, "GET", "http://ecs/?Action=DescribeDisks&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou&AccessKeyId="+keyID, "")
		if a.status != 400 || a.code() != "MissingParameter" || !strings.Contains(a.text, "Signature") {
			t.Errorf("got %d %s, want 400 MissingParameter Signature", a.status, a.text)
		}
	})
	t.Run("another method of signing", func(t *testing.T) {
		a := send(t, s, "GET", "http://ecs/?Action=DescribeDisks&Version=2014-05-26&Format=JSON&SignatureMethod=MD5&SignatureVersion=1.0&SignatureNonce=1&Timestamp=x&Signature=x&AccessKeyId="+keyID, "")
		if a.status != 400 || a.code() != "InvalidSignatureMethod" {
			t.Errorf("got %d %s, want 400 InvalidSignatureMethod", a.status, a.text)
		}
	})
}

func TestNonceIsTakenOnceAndTimestampForFifteenMinutes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		after  time.Duration
		change func(url.Values)
		code   string
	}{
		{"at once", 0, nil, "SignatureNonceUsed"},
		{"after 15 minutes", 15 * time.Minute, nil, "SignatureNonceUsed"},
		{"after 15 minutes and a second", 15*time.Minute + time.Second, nil, "InvalidTimeStamp.Expired"},
		{"with another nonce", 0, func(v url.Values) { v.Set("SignatureNonce", "other") }, "SignatureDoesNotMatch"},
		{"with a local time", 0, func(v url.Values) { v.Set("Timestamp", "2026-01-02 03:04:05") }, "InvalidTimeStamp.Format"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				c, tap := newClient(t, s), &capture{next: s}
				c.SetTransport(tap)
				describe(t, c, nil)
				time.Sleep(tt.after)
				again, err := url.Parse(tap.url)
				if err != nil {
					t.Fatal(err)
				}
				values := again.Query()
				if tt.change != nil {
					tt.change(values)
				}
				again.RawQuery = values.Encode()
				if a := send(t, s, "POST", again.String(), ""); a.status != 400 || a.code() != tt.code {
					t.Errorf("sent again: %d %s, want 400 %s", a.status, a.text, tt.code)
				}
			})
		})
	}
}

func TestAdvanceDoesNotExpireRequests(t *testing.T) {
	s := newServer(t, nil)
	if err := s.Advance(24 * time.Hour); err != nil {
		t.Fatal(err)
	}
	describe(t, newClient(t, s), nil)
}

func TestLedgerKeepsNoSecrets(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	create(t, c, nil)
	calls := s.Calls()
	if len(calls) != 1 {
		t.Fatalf("%d calls, want 1", len(calls))
	}
	call := calls[0]
	if call.Action != "CreateDisk" || call.Code != "" || call.Status != 200 || call.Disk == "" || !strings.Contains(call.UserAgent, "AlibabaCloud") || !requestIDForm.MatchString(call.RequestID) {
		t.Errorf("call %+v", call)
	}
	want := map[string]string{"RegionId": region, "ZoneId": zoneH, "DiskCategory": "cloud_essd", "Size": "20"}
	if len(call.Params) != len(want) {
		t.Errorf("parameters %v, want %v", call.Params, want)
	}
	for name, value := range want {
		if call.Params[name] != value {
			t.Errorf("parameter %s is %q, want %q", name, call.Params[name], value)
		}
	}
}

func TestLedgerIsBoundedAndCountsGoOn(t *testing.T) {
	s, c := newServerAndClient(t, func(c *ecssim.Config) { c.LedgerSize = 3 })
	for range 5 {
		describe(t, c, nil)
	}
	calls := s.Calls()
	if len(calls) != 3 || calls[0].Number != 3 || calls[2].Number != 5 {
		t.Errorf("calls %v, want numbers 3 to 5", calls)
	}
	if n := s.Count("DescribeDisks", ""); n != 5 {
		t.Errorf("count %d, want 5", n)
	}
}

func TestOversizedBodyIsRefused(t *testing.T) {
	s := newServer(t, unsigned)
	h := httptest.NewServer(s)
	defer h.Close()
	reply, err := h.Client().Post(h.URL+"/", "application/x-www-form-urlencoded", strings.NewReader("Action="+strings.Repeat("a", 2<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "too large") {
		t.Errorf("got %d %s %v, want 400 too large", reply.StatusCode, text, err)
	}
}
