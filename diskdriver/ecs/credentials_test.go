package ecs

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/ecssim"
)

// instance has the RAM role that subject, a service account, may assume.
const (
	instance = "i-bp1node"
	subject  = "system:serviceaccount:kube-system:topodisk-controller"
)

// chosen returns the credentials that an environment with these variables names.
func chosen(t *testing.T, environment map[string]string, sources credentials.Sources) credentials.Provider {
	t.Helper()
	for _, variable := range []string{"ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN",
		"ALIBABA_CLOUD_OIDC_TOKEN_FILE", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "ALIBABA_CLOUD_ROLE_ARN"} {
		t.Setenv(variable, environment[variable])
	}
	sources.Region = region
	provider, _, err := credentials.Choose(sources)
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// writeKeys replaces the files of an access key at once, as the kubelet does.
func writeKeys(t *testing.T, dir, version string, keys credentials.Keys) {
	t.Helper()
	own, link := filepath.Join(dir, ".."+version), filepath.Join(dir, "..data")
	for _, err := range []error{
		os.Mkdir(own, 0o700),
		os.WriteFile(filepath.Join(own, "access-key-id"), []byte(keys.AccessKeyID), 0o600),
		os.WriteFile(filepath.Join(own, "access-key-secret"), []byte(keys.AccessKeySecret), 0o600),
		os.Symlink(own, link+"_tmp"),
		os.Rename(link+"_tmp", link),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// withTemporaryKeys runs a test with both sources of temporary keys. renewToken
// replaces the service account's token, which is valid for an hour.
func withTemporaryKeys(t *testing.T, test func(t *testing.T, sim *ecssim.Server, c *Client, renewToken func())) {
	for _, source := range []string{"oidc", "ram-role"} {
		t.Run(source, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			environment := map[string]string{}
			if source == "oidc" {
				environment = map[string]string{"ALIBABA_CLOUD_OIDC_TOKEN_FILE": file,
					"ALIBABA_CLOUD_OIDC_PROVIDER_ARN": "acs:ram::1234567890123456:oidc-provider/ack-c1", "ALIBABA_CLOUD_ROLE_ARN": "acs:ram::1234567890123456:role/disks"}
			}
			var service http.RoundTripper
			provider := chosen(t, environment, credentials.Sources{Transport: roundTrip(func(r *http.Request) (*http.Response, error) { return service.RoundTrip(r) })})
			synctest.Test(t, func(t *testing.T) {
				sim := newSim(t, func(config *ecssim.Config) {
					config.Roles = []ecssim.Role{{Name: "disks", OIDCProvider: "ack-c1", Subject: subject}}
					config.Instances = []ecssim.Instance{{ID: instance, Zone: zoneH, Type: "ecs.g6.large", Role: "disks"}}
				})
				if service = sim; source == "ram-role" {
					service = sim.Metadata(instance)
				}
				test(t, sim, newClient(t, Config{Transport: sim, Credentials: provider}), func() {
					part := base64.RawURLEncoding.EncodeToString
					token := part([]byte(`{"alg":"RS256"}`)) + "." + part(fmt.Appendf(nil,
						`{"sub":%q,"iss":"https://cluster","aud":"sts.aliyuncs.com","exp":%d}`, subject, time.Now().Add(time.Hour).Unix())) + ".c2lnbmF0dXJl"
					if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
						t.Fatal(err)
					}
				})
			})
		})
	}
}

// switched is a RoundTripper that tests change between calls.
type switched struct{ to http.RoundTripper }

func (s *switched) RoundTrip(r *http.Request) (*http.Response, error) { return s.to.RoundTrip(r) }

func TestARotationNeedsNoRestart(t *testing.T) {
	dir := t.TempDir()
	other := credentials.Keys{AccessKeyID: "LTAI5tAnotherKeyOfTests", AccessKeySecret: "another/Secret"}
	writeKeys(t, dir, "v1", keys)
	provider := chosen(t, nil, credentials.Sources{Directory: dir})
	synctest.Test(t, func(t *testing.T) {
		old := newSim(t, func(config *ecssim.Config) { config.SecurityTokens = nil })
		fresh := newSim(t, func(config *ecssim.Config) {
			config.AccessKeys = map[string]string{other.AccessKeyID: other.AccessKeySecret}
			config.SecurityTokens = nil
		})
		transport := &switched{to: old}
		c := newClient(t, Config{Credentials: provider, Transport: transport})
		if err := c.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		transport.to = fresh
		wantKind(t, c.Check(t.Context()), disk.Unauthenticated)
		writeKeys(t, dir, "v2", other)
		if err := c.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestMissingCredentialsAreUnauthenticatedAndNamed(t *testing.T) {
	dir := t.TempDir()
	provider := chosen(t, nil, credentials.Sources{Directory: dir})
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(t, nil)
		c := newClient(t, Config{Credentials: provider, Transport: sim})
		for _, op := range operations {
			e := wantKind(t, op.do(t.Context(), c), disk.Unauthenticated)
			if !strings.Contains(e.Error(), dir) {
				t.Errorf("%s: error %v doesn't name %s", op.name, e, dir)
			}
		}
		if len(sim.Calls()) != 0 {
			t.Error("calls were made without credentials")
		}
	})
}

func TestTemporaryKeysLastThroughARunOfADay(t *testing.T) {
	withTemporaryKeys(t, func(t *testing.T, sim *ecssim.Server, c *Client, renewToken func()) {
		for hour := range 24 * 6 {
			renewToken()
			if err := c.Check(t.Context()); err != nil {
				t.Fatalf("after %v: %v", time.Duration(hour)*10*time.Minute, err)
			}
			time.Sleep(10 * time.Minute)
		}
		fetched := sim.Count("AssumeRoleWithOIDC", "") + sim.Count("Metadata", "")
		if fetched < 4 || fetched > 60 {
			t.Errorf("a day took %d requests for keys", fetched)
		}
	})
}

func TestKeysThatEndEarlyAreRenewedWithinTheCall(t *testing.T) {
	withTemporaryKeys(t, func(t *testing.T, sim *ecssim.Server, c *Client, renewToken func()) {
		renewToken()
		if err := c.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := sim.EndTemporaryKeys(); n == 0 {
			t.Fatal("there were no keys to end")
		}
		if _, err := create(t.Context(), c, "vol-1"); err != nil {
			t.Error(err)
		}
		if n := len(sim.Disks()); n != 1 {
			t.Errorf("%d disks, want 1", n)
		}
	})
}

func TestAWrongClockIsNamedWithHowWrongItIs(t *testing.T) {
	for name, test := range map[string]struct {
		off  time.Duration // of ECS's clock, as seen from here
		want string
	}{
		"fast":   {-20 * time.Minute, "it is 20m"},
		"slow":   {3 * time.Hour, "slow"},
		"unsaid": {0, "by more than 15 minutes"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Config{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				reply := answerWith(r, 400, `{"Code":"InvalidTimeStamp.Expired","Message":"Specified time stamp or date value is expired.","RequestId":"R1"}`)
				if test.off != 0 {
					reply.Header.Set("Date", time.Now().Add(test.off).UTC().Format(http.TimeFormat))
				}
				return reply, nil
			})})
			e := wantKind(t, c.Check(t.Context()), disk.Unauthenticated)
			if !strings.Contains(e.Error(), "this machine's clock differs from that of ECS by more than 15 minutes") || !strings.Contains(e.Error(), test.want) {
				t.Errorf("error %v doesn't say %q", e, test.want)
			}
		})
	}
}

func TestTheSimulatorsClockCheckIsNamed(t *testing.T) {
	sim := httptest.NewServer(newSim(t, nil))
	t.Cleanup(sim.Close)
	c := newClient(t, Config{Endpoint: sim.URL, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		r.Header.Set("X-Acs-Date", time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z"))
		return http.DefaultTransport.RoundTrip(r)
	})})
	e := wantKind(t, c.Check(t.Context()), disk.Unauthenticated)
	if !strings.Contains(e.Error(), "15 minutes") {
		t.Errorf("error %v doesn't name the clock", e)
	}
}
