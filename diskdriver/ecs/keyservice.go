package ecs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// keyReplyLimit is more than any reply with keys has.
const keyReplyLimit = 64 << 10

// keyService is an HTTP service that gives out keys. It is called without the
// SDK, whose providers know no endpoint but their own.
type keyService struct {
	name      string // in errors
	transport http.RoundTripper
}

// keyReply is the answer of a key service.
type keyReply struct {
	status int
	body   []byte
	now    time.Time // by the service's clock; this machine's if it doesn't say
}

// call makes one request. Its error names the service and the cause, and nothing
// of what was sent. A redirect is not followed.
func (s *keyService) call(ctx context.Context, request *http.Request) (keyReply, error) {
	response, err := s.transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return keyReply{}, s.unreachable("can't be reached: %s", oneLine(cause(err)))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, keyReplyLimit))
	if err != nil {
		return keyReply{}, s.unreachable("broke off its answer: %s", oneLine(err.Error()))
	}
	reply := keyReply{status: response.StatusCode, body: body, now: time.Now()}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		reply.now = at
	}
	return reply, nil
}

// unreachable is an error that time may mend.
func (s *keyService) unreachable(format string, args ...any) error {
	return &disk.Error{Kind: disk.Unreachable, Err: fmt.Errorf(s.name+" "+format, args...)}
}

// refused is an error that this side must mend.
func (s *keyService) refused(format string, args ...any) error {
	return &disk.Error{Kind: disk.Unauthenticated, Err: fmt.Errorf(s.name+" "+format, args...)}
}

// temporaryKeys are keys as STS and the metadata service give them out.
type temporaryKeys struct {
	AccessKeyID     string    `json:"AccessKeyId"`
	AccessKeySecret string    `json:"AccessKeySecret"`
	SecurityToken   string    `json:"SecurityToken"`
	Expiration      time.Time `json:"Expiration"`
}

// taken returns the keys of a reply and how long they are good: by the service's
// clock, so that a wrong one of this machine is not taken for their end.
func (s *keyService) taken(k temporaryKeys, now time.Time) (Keys, time.Duration, error) {
	for name, value := range map[string]string{"AccessKeyId": k.AccessKeyID, "AccessKeySecret": k.AccessKeySecret, "SecurityToken": k.SecurityToken} {
		if value == "" {
			return Keys{}, 0, s.unreachable("gave out keys without %s", name)
		}
	}
	if k.Expiration.IsZero() {
		return Keys{}, 0, s.unreachable("gave out keys without Expiration")
	}
	return Keys{AccessKeyID: k.AccessKeyID, AccessKeySecret: k.AccessKeySecret, SecurityToken: k.SecurityToken}, k.Expiration.Sub(now), nil
}

// decode reads a reply of JSON. Its error quotes nothing, for there may be keys
// in it.
func (s *keyService) decode(body []byte, into any) error {
	if json.Unmarshal(body, into) != nil {
		return s.unreachable("gave an answer that is not the JSON that was expected")
	}
	return nil
}

// quote is a foreign text for an error, without the secret that was sent.
func quote(foreign, secret string) string {
	foreign = oneLine(foreign)
	if len(secret) >= shortestKey {
		foreign = strings.ReplaceAll(foreign, secret, "***")
	}
	return Keys{}.scrub(foreign)
}
