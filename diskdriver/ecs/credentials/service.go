package credentials

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/redact"
)

// replyLimit is more than any reply with keys has.
const replyLimit = 64 << 10

// service is an HTTP service that gives out keys. It is called without the
// SDK, whose providers know no endpoint but their own.
type service struct {
	name      string // in errors
	transport http.RoundTripper
}

// reply is the answer of a service.
type reply struct {
	status int
	body   []byte
	now    time.Time // by the service's clock; this machine's if it doesn't say
}

// call makes one request. Its error names the service and the cause, and nothing
// of what was sent. A redirect is not followed.
func (s *service) call(request *http.Request) (reply, error) {
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		if ended := request.Context().Err(); ended != nil {
			err = ended
		}
		return reply{}, s.unreachable("can't be reached: %s", redact.Text(err.Error()))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, replyLimit))
	if err != nil {
		return reply{}, s.unreachable("broke off its answer: %s", redact.Text(err.Error()))
	}
	answer := reply{status: response.StatusCode, body: body, now: time.Now()}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		answer.now = at
	}
	return answer, nil
}

// unreachable is an error that a retry may mend.
func (s *service) unreachable(format string, args ...any) error {
	return &disk.Error{Kind: disk.Unreachable, Err: fmt.Errorf(s.name+" "+format, args...)}
}

// refused is an error that only a change of this side mends.
func (s *service) refused(format string, args ...any) error {
	return &disk.Error{Kind: disk.Unauthenticated, Err: fmt.Errorf(s.name+" "+format, args...)}
}

// temporaryKeys are keys as STS and the metadata service give them out.
type temporaryKeys struct {
	AccessKeyID     string    `json:"AccessKeyId"`
	AccessKeySecret string    `json:"AccessKeySecret"`
	SecurityToken   string    `json:"SecurityToken"`
	Expiration      time.Time `json:"Expiration"`
}

// check returns the keys of a reply and how long they are valid: by the service's
// clock, so that a wrong one of this machine is not taken for their end.
func (s *service) check(k temporaryKeys, now time.Time) (Keys, time.Duration, error) {
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
func (s *service) decode(body []byte, into any) error {
	if json.Unmarshal(body, into) != nil {
		return s.unreachable("gave an answer that is not the JSON that was expected")
	}
	return nil
}
