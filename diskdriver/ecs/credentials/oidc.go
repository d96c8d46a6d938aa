package credentials

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/topodisk/topodisk/diskdriver/ecs/internal/redact"
)

// The environment variables by which a Pod is given a RAM role of its own
// (ACK, "RAM Roles for Service Accounts"), under the names that all tools of
// Alibaba Cloud read.
const (
	tokenFileVariable   = "ALIBABA_CLOUD_OIDC_TOKEN_FILE"
	oidcArnVariable     = "ALIBABA_CLOUD_OIDC_PROVIDER_ARN"
	roleArnVariable     = "ALIBABA_CLOUD_ROLE_ARN"
	sessionNameVariable = "ALIBABA_CLOUD_ROLE_SESSION_NAME"
)

// oidcLife is for how long keys are asked: the most that a role gives unless it
// was told to give more.
const oidcLife = time.Hour

var sessionNameForm = regexp.MustCompile(`^[A-Za-z0-9.@_-]{2,64}$`)

// oidc exchanges a token of the cluster's for keys of a RAM role (STS API,
// AssumeRoleWithOIDC). The token's file is read each time, for the kubelet
// replaces it.
type oidc struct {
	service   service
	address   string // of STS
	tokenFile string
	provider  string // ARN
	role      string // ARN
	session   string
}

// newOIDC reads the environment. Its error names the variable.
func newOIDC(address string, transport http.RoundTripper) (*oidc, error) {
	o := &oidc{
		service:   service{name: "STS at " + address, transport: transport},
		address:   address,
		tokenFile: os.Getenv(tokenFileVariable),
		provider:  os.Getenv(oidcArnVariable),
		role:      os.Getenv(roleArnVariable),
		session:   os.Getenv(sessionNameVariable),
	}
	if o.session == "" {
		o.session = "topodisk"
	}
	for _, v := range []struct{ name, value string }{{tokenFileVariable, o.tokenFile}, {oidcArnVariable, o.provider}, {roleArnVariable, o.role}} {
		if v.value == "" {
			return nil, fmt.Errorf("environment variable %s is empty: with one of %s and %s set, those and %s are required", v.name, tokenFileVariable, oidcArnVariable, roleArnVariable)
		}
	}
	if !sessionNameForm.MatchString(o.session) {
		return nil, fmt.Errorf("environment variable %s is %q: allowed are 2 to 64 letters, digits and .@-_", sessionNameVariable, o.session)
	}
	return o, nil
}

// stsRefusal is what STS says when it refuses.
type stsRefusal struct {
	Code      string
	Message   string
	RequestID string `json:"RequestId"`
}

func (o *oidc) fetch(ctx context.Context) (Keys, time.Duration, error) {
	token, err := o.token()
	if err != nil {
		return Keys{}, 0, err
	}
	request, err := o.request(ctx, token)
	if err != nil {
		return Keys{}, 0, o.service.refused("can't be asked: %v", err)
	}
	reply, err := o.service.call(request)
	if err != nil {
		return Keys{}, 0, err
	}
	if reply.status != http.StatusOK {
		return Keys{}, 0, o.refusal(reply, token)
	}
	var given struct{ Credentials temporaryKeys }
	if err := o.service.decode(reply.body, &given); err != nil {
		return Keys{}, 0, err
	}
	return o.service.check(given.Credentials, reply.now)
}

// token reads the file of the cluster's token.
func (o *oidc) token() (string, error) {
	content, err := os.ReadFile(o.tokenFile)
	token := string(bytes.TrimSpace(content))
	switch {
	case err != nil:
		return "", o.service.refused("can't be asked, for the token of %s can't be read: %w", tokenFileVariable, err)
	case token == "":
		return "", o.service.refused("can't be asked, for the file %s of %s is empty", o.tokenFile, tokenFileVariable)
	}
	return token, nil
}

// request asks for keys. It is not signed: the token is what authenticates, and
// so it goes into the body, not into the URL.
func (o *oidc) request(ctx context.Context, token string) (*http.Request, error) {
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	query := url.Values{
		"Action": {"AssumeRoleWithOIDC"}, "Version": {"2015-04-01"}, "Format": {"JSON"},
		"Timestamp": {time.Now().UTC().Format("2006-01-02T15:04:05Z")}, "SignatureNonce": {hex.EncodeToString(nonce)},
	}
	form := url.Values{
		"RoleArn": {o.role}, "OIDCProviderArn": {o.provider}, "OIDCToken": {token}, "RoleSessionName": {o.session},
		"DurationSeconds": {fmt.Sprint(int(oidcLife.Seconds()))},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.address+"/?"+query.Encode(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return request, nil
}

// stsHints are said with codes of STS whose cause lies on this side.
var stsHints = map[string]string{
	"AuthenticationFail.NoPermission":                           "the role's trust policy doesn't admit this service account",
	"AuthenticationFail.OIDCToken.Expired":                      "the token has ended; if its file is replaced in time, this machine's or the cluster's clock is wrong",
	"AuthenticationFail.OIDCToken.Invalid":                      "is " + oidcArnVariable + " that of this cluster?",
	"AuthenticationFail.OIDCToken.PublicKeyFingerprintMismatch": "the provider's fingerprint is not that of this cluster's",
	"EntityNotExist.Role":                                       "is " + roleArnVariable + " right?",
	"InvalidTimeStamp.Expired":                                  "this machine's clock differs from that of STS by more than 15 minutes",
}

// refusal is the error of an answer that isn't keys.
func (o *oidc) refusal(answer reply, token string) error {
	var said stsRefusal
	if err := o.service.decode(answer.body, &said); err != nil || said.Code == "" {
		return o.service.unreachable("answered HTTP %d without an error code: %q", answer.status, redact.Text(string(answer.body), token))
	}
	what := fmt.Sprintf("refused the role %s: %s: %s", o.role, said.Code, redact.Text(said.Message, token))
	if hint := stsHints[said.Code]; hint != "" {
		what += " (" + hint + ")"
	}
	if said.RequestID != "" {
		what += " (request ID " + redact.Text(said.RequestID) + ")"
	}
	if answer.status >= 500 || strings.HasPrefix(said.Code, "Throttling") || said.Code == "ServiceUnavailable" || said.Code == "InternalError" {
		return o.service.unreachable("%s", what)
	}
	return o.service.refused("%s", what)
}
