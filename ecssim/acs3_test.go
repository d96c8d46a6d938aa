package ecssim_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// headerSigned is a request whose signature is in its headers. It is signed
// here by the book, apart from the simulator's own reading of it.
type headerSigned struct {
	keyID, secret, token string
	action, version      string
	query                string // sorted and encoded already
	body                 string
	nonce                string
	at                   time.Time
	tamper               func(*http.Request) // after signing
}

func (h headerSigned) send(t *testing.T, s http.RoundTripper) (int, string) {
	t.Helper()
	r, err := http.NewRequest("POST", "http://ecs.test/?"+h.query, strings.NewReader(h.body))
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte(h.body))
	values := [][2]string{
		{"content-type", "application/x-www-form-urlencoded"}, {"host", "ecs.test"}, {"x-acs-action", h.action}, {"x-acs-content-sha256", hex.EncodeToString(hash[:])},
		{"x-acs-date", h.at.UTC().Format("2006-01-02T15:04:05Z")}, {"x-acs-signature-nonce", h.nonce}, {"x-acs-version", h.version},
	}
	if h.token != "" {
		values = slices.Insert(values, 5, [2]string{"x-acs-security-token", h.token})
	}
	var lines, names []string
	for _, v := range values {
		lines, names = append(lines, v[0]+":"+v[1]+"\n"), append(names, v[0])
		if v[0] != "host" {
			r.Header.Set(v[0], v[1])
		}
	}
	canonical := fmt.Sprintf("POST\n/\n%s\n%s\n%s\n%s", h.query, strings.Join(lines, ""), strings.Join(names, ";"), hex.EncodeToString(hash[:]))
	digest := sha256.Sum256([]byte(canonical))
	mac := hmac.New(sha256.New, []byte(h.secret))
	fmt.Fprintf(mac, "ACS3-HMAC-SHA256\n%x", digest)
	r.Header.Set("Authorization", fmt.Sprintf("ACS3-HMAC-SHA256 Credential=%s,SignedHeaders=%s,Signature=%x", h.keyID, strings.Join(names, ";"), mac.Sum(nil)))
	if h.tamper != nil {
		h.tamper(r)
	}
	reply, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body struct{ Code string }
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatalf("reply %q: %v", text, err)
	}
	return reply.StatusCode, body.Code
}

func aDescribe() headerSigned {
	return headerSigned{
		keyID: keyID, secret: secret, action: "DescribeDisks", version: "2014-05-26", nonce: "n-1", at: time.Now(),
		query: "DiskIds=%5B%22d-1%22%5D&DiskName=a%20b%2A~&RegionId=cn-hangzhou&ResourceGroupId=",
	}
}

func TestSignatureInHeadersIsChecked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*headerSigned)
		status int
		code   string
	}{
		{"as it should be", func(*headerSigned) {}, 200, ""},
		{"with a form", func(h *headerSigned) { h.body = "Status=Available&DiskType=data" }, 200, ""},
		{"a wrong secret", func(h *headerSigned) { h.secret = "wrong" }, 400, "SignatureDoesNotMatch"},
		{"an unknown key", func(h *headerSigned) { h.keyID = "nobody" }, 404, "InvalidAccessKeyId.NotFound"},
		{"another query", func(h *headerSigned) { h.tamper = func(r *http.Request) { r.URL.RawQuery += "&Status=All" } }, 400, "SignatureDoesNotMatch"},
		{"another action", func(h *headerSigned) {
			h.tamper = func(r *http.Request) { r.Header.Set("X-Acs-Action", "DescribeZones") }
		}, 400, "SignatureDoesNotMatch"},
		{"another body", func(h *headerSigned) {
			h.body = "Status=Available"
			h.tamper = func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("Status=All")) }
		}, 400, "InvalidContentSha256"},
		{"another algorithm", func(h *headerSigned) {
			h.tamper = func(r *http.Request) {
				r.Header.Set("Authorization", "ACS3-RSA-SHA256 Credential=a,SignedHeaders=b,Signature=c")
			}
		}, 400, "InvalidSignatureMethod"},
		{"no signature in it", func(h *headerSigned) {
			h.tamper = func(r *http.Request) { r.Header.Set("Authorization", "ACS3-HMAC-SHA256 Credential=a,SignedHeaders=b") }
		}, 400, "IncompleteSignature"},
		{"a header that is not signed", func(h *headerSigned) {
			h.tamper = func(r *http.Request) {
				r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), ";x-acs-date", "", 1))
			}
		}, 400, "IncompleteSignature"},
		{"a header of theirs that is not signed", func(h *headerSigned) { h.tamper = func(r *http.Request) { r.Header.Set("X-Acs-Other", "x") } }, 400, "IncompleteSignature"},
		{"another header", func(h *headerSigned) { h.tamper = func(r *http.Request) { r.Header.Set("Accept", "text/html") } }, 200, ""},
		{"headers in another order", func(h *headerSigned) {
			h.tamper = func(r *http.Request) {
				r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "content-type;host", "host;content-type", 1))
			}
		}, 400, "SignatureDoesNotMatch"},
		{"another host", func(h *headerSigned) { h.tamper = func(r *http.Request) { r.Host = "sts.test" } }, 400, "SignatureDoesNotMatch"},
		{"a time of another form", func(h *headerSigned) {
			h.tamper = func(r *http.Request) { r.Header.Set("X-Acs-Date", time.Now().UTC().Format(time.RFC1123)) }
		}, 400, "InvalidTimeStamp.Format"},
		{"another time", func(h *headerSigned) {
			h.tamper = func(r *http.Request) {
				r.Header.Set("X-Acs-Date", h.at.Add(-time.Minute).UTC().Format("2006-01-02T15:04:05Z"))
			}
		}, 400, "SignatureDoesNotMatch"},
		{"another nonce", func(h *headerSigned) {
			h.tamper = func(r *http.Request) { r.Header.Set("X-Acs-Signature-Nonce", "n-2") }
		}, 400, "SignatureDoesNotMatch"},
		{"a header that is not there", func(h *headerSigned) { h.tamper = func(r *http.Request) { r.Header.Del("X-Acs-Date") } }, 400, "MissingParameter"},
		{"fourteen minutes ago", func(h *headerSigned) { h.at = h.at.Add(-14 * time.Minute) }, 200, ""},
		{"in sixteen minutes", func(h *headerSigned) { h.at = h.at.Add(16 * time.Minute) }, 400, "InvalidTimeStamp.Expired"},
		{"sixteen minutes ago", func(h *headerSigned) { h.at = h.at.Add(-16 * time.Minute) }, 400, "InvalidTimeStamp.Expired"},
		{"a token of nobody", func(h *headerSigned) { h.token = "CAIS" }, 400, "InvalidSecurityToken.Malformed"},
		{"an action of another product", func(h *headerSigned) { h.version = "2015-04-01" }, 404, "InvalidAction.NotFound"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := aDescribe()
			tt.change(&h)
			if status, code := h.send(t, newServer(t, nil)); status != tt.status || code != tt.code {
				t.Errorf("got %d %s, want %d %s", status, code, tt.status, tt.code)
			}
		})
	}
}

func TestNonceInHeadersIsTakenOnce(t *testing.T) {
	s := newServer(t, nil)
	h := aDescribe()
	for i, want := range []string{"", "SignatureNonceUsed"} {
		if _, code := h.send(t, s); code != want {
			t.Errorf("call %d: %q, want %q", i, code, want)
		}
	}
}

func TestLedgerOfSignedHeadersKeepsNoSecrets(t *testing.T) {
	s := newServer(t, nil)
	h := aDescribe()
	h.action, h.query = "CreateDisk", "DiskCategory=cloud_ssd&RegionId=cn-hangzhou&Size=20&ZoneId=cn-hangzhou-h"
	if status, code := h.send(t, s); status != 200 {
		t.Fatalf("got %d %s", status, code)
	}
	text, err := json.Marshal(s.Calls())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Disks()) != 1 || strings.Contains(string(text), "Signature") || strings.Contains(string(text), secret) {
		t.Errorf("%d disks; ledger %s", len(s.Disks()), text)
	}
}

func TestTemporaryKeyInHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, withRole)
		k := assume(t, newSTS(t, s, keyID, secret), nil)
		h := aDescribe()
		h.keyID, h.secret, h.token = k.AccessKeyId, k.AccessKeySecret, k.SecurityToken
		if status, code := h.send(t, s); status != 200 {
			t.Fatalf("got %d %s", status, code)
		}
		time.Sleep(time.Hour)
		h.at, h.nonce = time.Now(), "n-2"
		if status, code := h.send(t, s); status != 400 || code != "InvalidSecurityToken.Expired" {
			t.Errorf("an hour later: %d %s, want 400 InvalidSecurityToken.Expired", status, code)
		}
	})
}

func TestUncheckedSignaturesMayBeMissing(t *testing.T) {
	s := newServer(t, func(c *ecssim.Config) { c.AccessKeys = nil })
	h := aDescribe()
	h.secret = "whatever"
	h.tamper = func(r *http.Request) { r.Header.Del("X-Acs-Date") }
	if status, code := h.send(t, s); status != 200 {
		t.Errorf("got %d %s", status, code)
	}
}
