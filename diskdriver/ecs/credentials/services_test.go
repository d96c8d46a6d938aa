package credentials

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
	"github.com/topodisk/topodisk/ecssim"
)

const (
	ramAccount = "1234567890123456"
	instance   = "i-bp1node"
	subject    = "system:serviceaccount:kube-system:topodisk-controller"
)

// withRole gives the simulated account a role that the cluster's service
// account may assume, and that an instance has.
func withRole(config *ecssim.Config) {
	config.Roles = []ecssim.Role{{Name: "disks", OIDCProvider: "ack-c1", Subject: subject}}
	config.Instances = []ecssim.Instance{{ID: instance, Zone: ecstest.ZoneH, Type: "ecs.g6.large", Role: "disks"}}
}

// tokenFileOf writes a file and returns its path.
func tokenFileOf(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func oidcOf(t *testing.T, tokenFile string, transport http.RoundTripper) Provider {
	t.Helper()
	bare(t, map[string]string{tokenFileVariable: tokenFile,
		oidcArnVariable: "acs:ram::" + ramAccount + ":oidc-provider/ack-c1", roleArnVariable: "acs:ram::" + ramAccount + ":role/disks"})
	return chosen(t, transport)
}

func ramRoleOf(t *testing.T, transport http.RoundTripper) Provider {
	t.Helper()
	bare(t, nil)
	return chosen(t, transport)
}

func chosen(t *testing.T, transport http.RoundTripper) Provider {
	t.Helper()
	c, _, err := Choose(Sources{Region: ecstest.Region, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatOIDCRefusesIsNamed(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiJ9.the-token.sig"
	for name, test := range map[string]struct {
		status int
		body   string
		err    error
		want   disk.Kind
		words  []string
	}{
		"no trust":     {403, `{"Code":"AuthenticationFail.NoPermission","Message":"This operation is forbidden.","RequestId":"R1"}`, nil, disk.Unauthenticated, []string{"AuthenticationFail.NoPermission", "role/disks", "trust policy", "R1"}},
		"token ended":  {400, `{"Code":"AuthenticationFail.OIDCToken.Expired","Message":"This OIDC Token is expired: ` + secret + `","RequestId":"R1"}`, nil, disk.Unauthenticated, []string{"AuthenticationFail.OIDCToken.Expired", "clock"}},
		"another key":  {400, `{"Code":"AuthenticationFail.OIDCToken.PublicKeyFingerprintMismatch","Message":"x"}`, nil, disk.Unauthenticated, []string{"fingerprint"}},
		"no such role": {404, `{"Code":"EntityNotExist.Role","Message":"The specified Role does not exist."}`, nil, disk.Unauthenticated, []string{roleArnVariable}},
		"clock":        {400, `{"Code":"InvalidTimeStamp.Expired","Message":"Specified time stamp or date value is expired."}`, nil, disk.Unauthenticated, []string{"15 minutes"}},
		"new code":     {418, `{"Code":"Never.Heard","Message":"x"}`, nil, disk.Unauthenticated, []string{"Never.Heard"}},
		"throttled":    {400, `{"Code":"Throttling.Api","Message":"x"}`, nil, disk.Unreachable, []string{"Throttling.Api"}},
		"down":         {500, `{"Code":"InternalError","Message":"x"}`, nil, disk.Unreachable, []string{"InternalError"}},
		"a page":       {502, `<html>` + secret + `</html>`, nil, disk.Unreachable, []string{"HTTP 502"}},
		"a redirect":   {302, ``, nil, disk.Unreachable, []string{"HTTP 302"}},
		"no JSON":      {200, `{"Credentials":"` + secret, nil, disk.Unreachable, []string{"JSON"}},
		"no keys":      {200, `{"RequestId":"R1"}`, nil, disk.Unreachable, []string{"without"}},
		"no end":       {200, `{"Credentials":{"AccessKeyId":"i","AccessKeySecret":"s","SecurityToken":"t"}}`, nil, disk.Unreachable, []string{"Expiration"}},
		"a bad end":    {200, `{"Credentials":{"AccessKeyId":"i","AccessKeySecret":"s","SecurityToken":"t","Expiration":"soon"}}`, nil, disk.Unreachable, []string{"JSON"}},
		"no route":     {0, ``, errors.New("no route to host"), disk.Unreachable, []string{"no route to host", "sts.cn-hangzhou.aliyuncs.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := oidcOf(t, tokenFileOf(t, secret), ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.Contains(r.URL.String(), secret) {
					t.Errorf("the token is in the URL %s", r.URL)
				}
				if test.err != nil {
					return nil, test.err
				}
				return ecstest.Answer(r, test.status, test.body), nil
			}))
			_, err := c.Get(t.Context())
			e := ecstest.WantKind(t, err, test.want)
			for _, word := range append(test.words, "STS at https://") {
				if !strings.Contains(e.Error(), word) {
					t.Errorf("error %v lacks %q", e, word)
				}
			}
			if strings.Contains(e.Error(), secret) {
				t.Errorf("error %v shows the token", e)
			}
		})
	}
}

func TestATokenFileThatCantBeReadIsNamed(t *testing.T) {
	for name, test := range map[string]struct{ file, word string }{
		"absent": {"/no/such/token", "/no/such/token"},
		"empty":  {tokenFileOf(t, ""), "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := oidcOf(t, test.file, ecstest.NewSim(t, withRole)).Get(t.Context())
			if e := ecstest.WantKind(t, err, disk.Unauthenticated); !strings.Contains(e.Error(), test.word) || !strings.Contains(e.Error(), tokenFileVariable) {
				t.Errorf("error %v doesn't name the file and the variable", e)
			}
		})
	}
}

// The end of keys is told by the service's clock, so a machine whose own is wrong
// by an hour uses them all the same, and hears of its clock from ECS.
func TestAWrongClockIsNotTakenForTheEndOfKeys(t *testing.T) {
	theirs := time.Now().Add(-2 * time.Hour).UTC()
	c := oidcOf(t, tokenFileOf(t, "a-token"), ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		reply := ecstest.Answer(r, 200, fmt.Sprintf(`{"Credentials":{"AccessKeyId":"STS.id","AccessKeySecret":"the-secret","SecurityToken":"the-token","Expiration":%q}}`,
			theirs.Add(time.Hour).Format(time.RFC3339)))
		reply.Header.Set("Date", theirs.Format(http.TimeFormat))
		return reply, nil
	}))
	if _, err := c.Get(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMetadataTokensAreUsed(t *testing.T) {
	for name, test := range map[string]struct {
		required bool
		puts     http.RoundTripper // answers PUT; nil: the simulator does
		only     bool              // ALIBABA_CLOUD_IMDSV1_DISABLED
		want     string            // in the error
	}{
		"both modes":             {},
		"tokens required":        {required: true},
		"no tokens to be had":    {puts: status(405)},
		"tokens that get lost":   {puts: ecstest.RoundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("timeout") })},
		"required and not there": {required: true, puts: status(405), want: "HTTP 403"},
		"only tokens":            {only: true},
		"only tokens, but none":  {only: true, puts: status(405), want: onlyTokensVariable},
	} {
		t.Run(name, func(t *testing.T) {
			sim := ecstest.NewSim(t, func(config *ecssim.Config) {
				withRole(config)
				config.Instances[0].TokensRequired = test.required
			})
			service := sim.Metadata(instance)
			bare(t, map[string]string{onlyTokensVariable: fmt.Sprint(test.only)})
			c := chosen(t, ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPut && test.puts != nil {
					return test.puts.RoundTrip(r)
				}
				return service.RoundTrip(r)
			}))
			got, err := c.Get(t.Context())
			switch {
			case test.want == "" && (err != nil || got.SecurityToken == ""):
				t.Errorf("got %v, %v", got, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v doesn't say %s", err, test.want)
			}
		})
	}
}

func status(code int) ecstest.RoundTrip {
	return func(r *http.Request) (*http.Response, error) { return ecstest.Answer(r, code, "no"), nil }
}

func TestWhatTheMetadataServiceLacksIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		answers ecstest.RoundTrip
		want    disk.Kind
		word    string
	}{
		"no role":       {status(404), disk.Unauthenticated, idVariable},
		"an empty list": {func(r *http.Request) (*http.Response, error) { return ecstest.Answer(r, 200, "\n"), nil }, disk.Unauthenticated, "no RAM role"},
		"switched off":  {status(403), disk.Unauthenticated, "HTTP 403"},
		"an odd role":   {func(r *http.Request) (*http.Response, error) { return ecstest.Answer(r, 200, "../../x"), nil }, disk.Unreachable, "../../x"},
		"failing":       {status(500), disk.Unreachable, "HTTP 500"},
		"not there":     {func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") }, disk.Unreachable, "100.100.100.200"},
		"a failed code": {func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/disks") {
				return ecstest.Answer(r, 200, `{"Code":"Failed","AccessKeySecret":"the-secret"}`), nil
			}
			return ecstest.Answer(r, 200, "disks\n"), nil
		}, disk.Unreachable, `"Failed"`},
		"no JSON": {func(r *http.Request) (*http.Response, error) { return ecstest.Answer(r, 200, "disks"), nil }, disk.Unreachable, "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ramRoleOf(t, test.answers).Get(t.Context())
			if e := ecstest.WantKind(t, err, test.want); !strings.Contains(e.Error(), test.word) || strings.Contains(e.Error(), "the-secret") {
				t.Errorf("error %v doesn't say %q", e, test.word)
			}
		})
	}
}

func TestTheMetadataServiceIsReachedWithoutAProxy(t *testing.T) {
	sim := ecstest.NewSim(t, withRole)
	server := httptest.NewServer(sim.Metadata(instance))
	t.Cleanup(server.Close)
	bare(t, nil)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	c, _, err := Choose(Sources{Region: ecstest.Region, MetadataEndpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context()); err != nil {
		t.Error(err)
	}
}
