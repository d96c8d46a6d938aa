package ecssim_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/sts"

	"github.com/topodisk/topodisk/ecssim"
)

const (
	roleARN     = "acs:ram::1234567890123456:role/disk-driver"
	providerARN = "acs:ram::1234567890123456:oidc-provider/ack-rrsa-c1"
	subject     = "system:serviceaccount:kube-system:disk-driver"
)

// withRole gives the account a role that a key and a Pod can assume.
func withRole(c *ecssim.Config) {
	c.Roles = []ecssim.Role{
		{Name: "disk-driver", OIDCProvider: "ack-rrsa-c1", Subject: subject, Audience: "sts.aliyuncs.com", MaxSession: 2 * time.Hour},
		{Name: "private", Callers: []string{"somebody"}},
	}
	c.Instances[0].Role = "disk-driver"
}

func newSTS(t *testing.T, s *ecssim.Server, id, secret string) *sts.Client {
	t.Helper()
	c, err := sts.NewClientWithOptions(region, sdk.NewConfig().WithTimeout(15*time.Second), credentials.NewStaticAKCredentialsProvider(id, secret))
	if err != nil {
		t.Fatal(err)
	}
	c.SetTransport(s)
	c.Domain = "sts.invalid"
	return c
}

func newAssume(change func(*sts.AssumeRoleRequest)) *sts.AssumeRoleRequest {
	r := sts.CreateAssumeRoleRequest()
	r.Scheme = "http"
	r.RoleArn, r.RoleSessionName = roleARN, "test-1"
	if change != nil {
		change(r)
	}
	return r
}

func assume(t *testing.T, c *sts.Client, change func(*sts.AssumeRoleRequest)) sts.Credentials {
	t.Helper()
	reply, err := c.AssumeRole(newAssume(change))
	if err != nil {
		t.Fatal(err)
	}
	return reply.Credentials
}

// newTokenClient returns an SDK client with a temporary key.
func newTokenClient(t *testing.T, s *ecssim.Server, id, secret, token string) *ecs.Client {
	t.Helper()
	c, err := ecs.NewClientWithOptions(region, sdk.NewConfig().WithTimeout(15*time.Second), credentials.NewStaticSTSCredentialsProvider(id, secret, token))
	if err != nil {
		t.Fatal(err)
	}
	c.SetTransport(s)
	c.Domain = "ecs.invalid"
	return c
}

func readDisks(c *ecs.Client) error {
	_, err := c.DescribeDisks(ecs.CreateDescribeDisksRequest())
	return err
}

func TestAssumedRoleLivesAsLongAsItSays(t *testing.T) {
	for name, seconds := range map[string]int{"an hour by default": 0, "fifteen minutes": 900, "the role's longest": 7200} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, withRole)
				k := assume(t, newSTS(t, s, keyID, secret), func(r *sts.AssumeRoleRequest) {
					if seconds > 0 {
						r.DurationSeconds = requests.NewInteger(seconds)
					}
				})
				ends, err := time.Parse("2006-01-02T15:04:05Z", k.Expiration)
				if err != nil {
					t.Fatal(err)
				}
				if want := max(seconds, 3600-3600*min(seconds, 1)); time.Until(ends) != time.Duration(want)*time.Second || !strings.HasPrefix(k.AccessKeyId, "STS.") {
					t.Errorf("key %s lives for %v, want %d s", k.AccessKeyId, time.Until(ends), want)
				}
				c := newTokenClient(t, s, k.AccessKeyId, k.AccessKeySecret, k.SecurityToken)
				time.Sleep(time.Until(ends) - time.Second)
				if err := readDisks(c); err != nil {
					t.Errorf("a second before its end: %v", err)
				}
				time.Sleep(time.Second)
				wantCode(t, readDisks(c), 400, "InvalidSecurityToken.Expired")
			})
		})
	}
}

func TestTemporaryKeyNeedsItsToken(t *testing.T) {
	s := newServer(t, withRole)
	stsClient := newSTS(t, s, keyID, secret)
	a, b := assume(t, stsClient, nil), assume(t, stsClient, nil)
	if a.AccessKeyId == b.AccessKeyId || a.SecurityToken == b.SecurityToken {
		t.Fatal("two sessions have one key")
	}
	wantCode(t, readDisks(newTokenClient(t, s, a.AccessKeyId, a.AccessKeySecret, b.SecurityToken)), 400, "InvalidSecurityToken.MismatchWithAccessKey")
	wantCode(t, readDisks(newTokenClient(t, s, a.AccessKeyId, a.AccessKeySecret, "nonsense")), 400, "InvalidSecurityToken.Malformed")
	wantCode(t, readDisks(newTokenClient(t, s, keyID, secret, a.SecurityToken)), 400, "InvalidSecurityToken.MismatchWithAccessKey")
	noToken := newSDKClient(t, a.AccessKeyId, a.AccessKeySecret)
	noToken.SetTransport(s)
	noToken.Domain = "ecs.invalid"
	wantCode(t, readDisks(noToken), 404, "InvalidAccessKeyId.NotFound")
}

func TestTemporaryKeysEndInMidRun(t *testing.T) {
	s := newServer(t, withRole)
	stsClient := newSTS(t, s, keyID, secret)
	k := assume(t, stsClient, nil)
	c := newTokenClient(t, s, k.AccessKeyId, k.AccessKeySecret, k.SecurityToken)
	if err := readDisks(c); err != nil {
		t.Fatal(err)
	}
	if status, text := admin(t, s, "POST", "/_sim/keys", `{"endTemporary":true}`); status != 200 || !strings.Contains(text, `"ended": 1`) {
		t.Errorf("%d %s", status, text)
	}
	wantCode(t, readDisks(c), 400, "InvalidSecurityToken.Expired")
	k = assume(t, stsClient, nil)
	if err := readDisks(newTokenClient(t, s, k.AccessKeyId, k.AccessKeySecret, k.SecurityToken)); err != nil {
		t.Errorf("a key of afterwards: %v", err)
	}
}

func TestConfiguredTemporaryKeyWorksUntilItIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *ecssim.Config) { c.SecurityTokens = map[string]string{keyID: "CAIStoken"} })
		wantCode(t, readDisks(newClient(t, s)), 404, "InvalidAccessKeyId.NotFound")
		c := newTokenClient(t, s, keyID, secret, "CAIStoken")
		time.Sleep(1000 * time.Hour)
		if err := readDisks(c); err != nil {
			t.Error(err)
		}
		if n := s.EndTemporaryKeys(); n != 1 {
			t.Errorf("%d keys ended, want 1", n)
		}
		wantCode(t, readDisks(c), 400, "InvalidSecurityToken.Expired")
	})
}

func TestAccessKeysChangeInMidRun(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	if err := s.SetAccessKey(keyID, "another"); err != nil {
		t.Fatal(err)
	}
	if err := readDisks(c); !isServer(400, "SignatureDoesNotMatch")(err) {
		t.Errorf("after its secret changed: %v", err)
	}
	if status, text := admin(t, s, "POST", "/_sim/keys", `{"id":"test-key"}`); status != 200 || strings.TrimSpace(text) != "[]" {
		t.Errorf("%d %s", status, text)
	}
	wantCode(t, readDisks(c), 404, "InvalidAccessKeyId.NotFound")
	for _, body := range []string{`{}`, `{"id":"a","endTemporary":true}`, `{"key":"a"}`} {
		if status, text := admin(t, s, "POST", "/_sim/keys", body); status != 400 || !strings.Contains(text, "endTemporary") {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

func TestCallerIsTheOwnerOrARole(t *testing.T) {
	s := newServer(t, withRole)
	request := sts.CreateGetCallerIdentityRequest()
	request.Scheme = "http"
	reply, err := newSTS(t, s, keyID, secret).GetCallerIdentity(request)
	if err != nil || reply.IdentityType != "Account" || reply.Arn != "acs:ram::1234567890123456:root" {
		t.Errorf("the owner: %+v %v", reply, err)
	}
	k := assume(t, newSTS(t, s, keyID, secret), nil)
	c, err := sts.NewClientWithOptions(region, sdk.NewConfig(), credentials.NewStaticSTSCredentialsProvider(k.AccessKeyId, k.AccessKeySecret, k.SecurityToken))
	if err != nil {
		t.Fatal(err)
	}
	c.SetTransport(s)
	c.Domain = "sts.invalid"
	request = sts.CreateGetCallerIdentityRequest()
	request.Scheme = "http"
	reply, err = c.GetCallerIdentity(request)
	if err != nil || reply.IdentityType != "AssumedRoleUser" || reply.Arn != "acs:ram::1234567890123456:assumed-role/disk-driver/test-1" || reply.RoleId == "" {
		t.Errorf("the role: %+v %v", reply, err)
	}
}

func TestAssumeRoleRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*sts.AssumeRoleRequest)
		status int
		code   string
	}{
		{"no ARN", func(r *sts.AssumeRoleRequest) { r.RoleArn = "" }, 400, "MissingParameter"},
		{"a malformed ARN", func(r *sts.AssumeRoleRequest) { r.RoleArn = "disk-driver" }, 400, "InvalidParameter.RoleArn"},
		{"a role of another account", func(r *sts.AssumeRoleRequest) { r.RoleArn = "acs:ram::1:role/disk-driver" }, 404, "EntityNotExist.Role"},
		{"a role that is not there", func(r *sts.AssumeRoleRequest) { r.RoleArn += "x" }, 404, "EntityNotExist.Role"},
		{"a session of one letter", func(r *sts.AssumeRoleRequest) { r.RoleSessionName = "a" }, 400, "InvalidParameter.RoleSessionName"},
		{"a session with a slash", func(r *sts.AssumeRoleRequest) { r.RoleSessionName = "a/b" }, 400, "InvalidParameter.RoleSessionName"},
		{"too short", func(r *sts.AssumeRoleRequest) { r.DurationSeconds = "899" }, 400, "InvalidParameter.DurationSeconds"},
		{"longer than the role allows", func(r *sts.AssumeRoleRequest) { r.DurationSeconds = "7201" }, 400, "InvalidParameter.DurationSeconds"},
		{"not a number", func(r *sts.AssumeRoleRequest) { r.DurationSeconds = "1h" }, 400, "InvalidParameter.DurationSeconds"},
		{"a policy that is none", func(r *sts.AssumeRoleRequest) { r.Policy = "all" }, 400, "InvalidParameter.PolicyGrammar"},
		{"a policy too long", func(r *sts.AssumeRoleRequest) { r.Policy = "{" + strings.Repeat(" ", 2048) }, 400, "InvalidParameter.PolicySize"},
		{"a role for others", func(r *sts.AssumeRoleRequest) { r.RoleArn = "acs:ram::1234567890123456:role/private" }, 403, "NoPermission"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newSTS(t, newServer(t, withRole), keyID, secret).AssumeRole(newAssume(tt.change))
			wantCode(t, err, tt.status, tt.code)
		})
	}
}

// idToken returns a token as a kubelet mounts it, signed by nobody.
func idToken(claims map[string]any) string {
	text, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + ".c2ln"
}

// oidcForm is the body of AssumeRoleWithOIDC as SDKs send it.
func oidcForm(change func(url.Values, map[string]any)) string {
	claims := map[string]any{"iss": "https://oidc.test", "sub": subject, "aud": []string{"sts.aliyuncs.com"}, "exp": time.Now().Add(time.Hour).Unix()}
	form := url.Values{"RoleArn": {roleARN}, "OIDCProviderArn": {providerARN}, "RoleSessionName": {"pod-1"}, "DurationSeconds": {"3600"}}
	if change != nil {
		change(form, claims)
	}
	if !form.Has("OIDCToken") {
		form.Set("OIDCToken", idToken(claims))
	}
	return form.Encode()
}

const oidcURL = "http://sts/?Action=AssumeRoleWithOIDC&Version=2015-04-01&Format=JSON&Timestamp=2026-01-01T00:00:00Z&SignatureNonce=1"

func TestAssumeRoleWithOIDCIsUnsignedAndItsKeyWorks(t *testing.T) {
	s := newServer(t, withRole)
	for _, audience := range []any{"sts.aliyuncs.com", []string{"other", "sts.aliyuncs.com"}} {
		a := send(t, s, "POST", oidcURL, oidcForm(func(_ url.Values, claims map[string]any) { claims["aud"] = audience }))
		var reply struct {
			Credentials     sts.Credentials
			AssumedRoleUser sts.AssumedRoleUser
		}
		if err := json.Unmarshal([]byte(a.text), &reply); err != nil || a.status != 200 {
			t.Fatalf("%d %s %v", a.status, a.text, err)
		}
		if reply.AssumedRoleUser.Arn != "acs:ram::1234567890123456:assumed-role/disk-driver/pod-1" {
			t.Errorf("user %+v", reply.AssumedRoleUser)
		}
		k := reply.Credentials
		if err := readDisks(newTokenClient(t, s, k.AccessKeyId, k.AccessKeySecret, k.SecurityToken)); err != nil {
			t.Error(err)
		}
	}
	if text := fmt.Sprint(s.Calls()); strings.Contains(text, "eyJ") {
		t.Errorf("the ledger keeps the token: %s", text)
	}
}

func TestAssumeRoleWithOIDCRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(url.Values, map[string]any)
		status int
		code   string
	}{
		{"no token", func(f url.Values, _ map[string]any) { f.Set("OIDCToken", "") }, 400, "MissingParameter"},
		{"no JSON Web Token", func(f url.Values, _ map[string]any) { f.Set("OIDCToken", "abc") }, 400, "AuthenticationFail.OIDCToken.Invalid"},
		{"a broken payload", func(f url.Values, _ map[string]any) { f.Set("OIDCToken", "a.%%.c") }, 400, "AuthenticationFail.OIDCToken.Invalid"},
		{"no end", func(_ url.Values, c map[string]any) { delete(c, "exp") }, 400, "AuthenticationFail.OIDCToken.Invalid"},
		{"an old token", func(_ url.Values, c map[string]any) { c["exp"] = time.Now().Unix() - 1 }, 400, "AuthenticationFail.OIDCToken.Expired"},
		{"another Pod's token", func(_ url.Values, c map[string]any) { c["sub"] = "system:serviceaccount:default:x" }, 403, "AuthenticationFail.NoPermission"},
		{"a token for somebody else", func(_ url.Values, c map[string]any) { c["aud"] = "kubernetes" }, 403, "AuthenticationFail.NoPermission"},
		{"an unknown provider", func(f url.Values, _ map[string]any) { f.Set("OIDCProviderArn", providerARN+"x") }, 404, "EntityNotExist.OIDCProvider"},
		{"a role without a provider", func(f url.Values, _ map[string]any) { f.Set("RoleArn", "acs:ram::1234567890123456:role/private") }, 403, "AuthenticationFail.NoPermission"},
		{"an unknown role", func(f url.Values, _ map[string]any) { f.Set("RoleArn", roleARN+"x") }, 404, "EntityNotExist.Role"},
		{"too long", func(f url.Values, _ map[string]any) { f.Set("DurationSeconds", "43200") }, 400, "InvalidParameter.DurationSeconds"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := send(t, newServer(t, withRole), "POST", oidcURL, oidcForm(tt.change))
			if a.status != tt.status || a.code() != tt.code {
				t.Errorf("got %d %s, want %d %s", a.status, a.text, tt.status, tt.code)
			}
		})
	}
}
