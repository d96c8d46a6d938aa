package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/topodisk/topodisk/diskdriver/ecs/internal/redact"
)

// The environment variables that change how the metadata service is used, under
// the names that all tools of Alibaba Cloud read.
const (
	roleNameVariable   = "ALIBABA_CLOUD_ECS_METADATA"
	noMetadataVariable = "ALIBABA_CLOUD_ECS_METADATA_DISABLED"
	onlyTokensVariable = "ALIBABA_CLOUD_IMDSV1_DISABLED"
)

// The metadata service of an instance (ECS User Guide, "Instance metadata"): in
// its hardened mode it wants a token with each question.
const (
	rolePath       = "/latest/meta-data/ram/security-credentials/"
	tokenPath      = "/latest/api/token"
	tokenHeader    = "X-aliyun-ecs-metadata-token"             //nolint:gosec // the name of a header
	tokenTTLHeader = "X-aliyun-ecs-metadata-token-ttl-seconds" //nolint:gosec // the name of a header
	tokenLife      = time.Minute                               // it is for the requests of one renewal
	// metadataTimeout is for one request: the service is on the machine.
	metadataTimeout = 3 * time.Second
)

// roleNameForm is that of RAM.
var roleNameForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ramRole takes the keys of the instance's RAM role from its metadata service.
type ramRole struct {
	service    service
	address    string
	name       string // of the role; empty: the one that the instance has
	onlyTokens bool   // never ask without a token
}

// newRAMRole reads the environment.
func newRAMRole(address string, transport http.RoundTripper) (*ramRole, error) {
	if isTrue(os.Getenv(noMetadataVariable)) {
		return nil, errors.New("environment variable " + noMetadataVariable + " rules the instance's RAM role out")
	}
	name := os.Getenv(roleNameVariable)
	if name != "" && !roleNameForm.MatchString(name) {
		return nil, fmt.Errorf("environment variable %s is %q: allowed are 1 to 64 letters, digits and ._-", roleNameVariable, name)
	}
	return &ramRole{
		service:    service{name: "the instance metadata service at " + address + ", asked for want of other credentials,", transport: transport},
		address:    address,
		name:       name,
		onlyTokens: isTrue(os.Getenv(onlyTokensVariable)),
	}, nil
}

func isTrue(value string) bool {
	b, err := strconv.ParseBool(value)
	return err == nil && b
}

func (r *ramRole) fetch(ctx context.Context) (Keys, time.Duration, error) {
	token, err := r.sessionToken(ctx)
	if err != nil {
		return Keys{}, 0, err
	}
	name := r.name
	if name == "" {
		reply, err := r.get(ctx, rolePath, token)
		if err != nil {
			return Keys{}, 0, err
		}
		first, _, _ := strings.Cut(strings.TrimSpace(string(reply.body)), "\n")
		if name = strings.TrimSpace(strings.TrimSuffix(first, "/")); name == "" {
			return Keys{}, 0, r.noRole()
		}
	}
	if !roleNameForm.MatchString(name) {
		return Keys{}, 0, r.service.unreachable("names a RAM role that can't be: %q", redact.Text(name))
	}
	reply, err := r.get(ctx, rolePath+name, token)
	if err != nil {
		return Keys{}, 0, err
	}
	var given struct {
		temporaryKeys
		Code string
	}
	if err := r.service.decode(reply.body, &given); err != nil {
		return Keys{}, 0, err
	}
	if given.Code != "Success" {
		return Keys{}, 0, r.service.unreachable("gave no keys of the RAM role %s: its answer has the code %q", name, redact.Text(given.Code))
	}
	return r.service.check(given.temporaryKeys, reply.now)
}

func (r *ramRole) noRole() error {
	return r.service.refused("knows no RAM role of this instance; give the instance one, or set %s and %s, or name a directory with the files %s and %s",
		idVariable, secretVariable, idFile, secretFile)
}

// get reads one page.
func (r *ramRole) get(ctx context.Context, path, token string) (reply, error) {
	answer, err := r.send(ctx, http.MethodGet, path, tokenHeader, token)
	switch {
	case err != nil:
		return reply{}, err
	case answer.status == http.StatusNotFound:
		return reply{}, r.noRole()
	case answer.status == http.StatusForbidden || answer.status == http.StatusUnauthorized:
		return reply{}, r.service.refused("answered HTTP %d: it may be switched off for this instance, or want tokens and refuse them", answer.status)
	case answer.status != http.StatusOK:
		return reply{}, r.service.unreachable("answered HTTP %d", answer.status)
	}
	return answer, nil
}

// sessionToken returns a token, or an empty one if the service gives none: then
// requests go without, as its older mode allows, unless that is ruled out.
func (r *ramRole) sessionToken(ctx context.Context) (string, error) {
	reply, err := r.send(ctx, http.MethodPut, tokenPath, tokenTTLHeader, strconv.Itoa(int(tokenLife.Seconds())))
	token := strings.TrimSpace(string(reply.body))
	switch {
	case err == nil && reply.status == http.StatusOK && token != "":
		return token, nil
	case r.onlyTokens && err != nil:
		return "", err
	case r.onlyTokens:
		return "", r.service.refused("gives no tokens (HTTP %d), and %s rules out asking without", reply.status, onlyTokensVariable)
	}
	return "", nil
}

// send makes one request with one header, if that has a value.
func (r *ramRole) send(ctx context.Context, method, path, header, value string) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, r.address+path, nil)
	if err != nil {
		return reply{}, r.service.refused("can't be asked for %q", path)
	}
	if value != "" {
		request.Header.Set(header, value)
	}
	return r.service.call(request)
}
