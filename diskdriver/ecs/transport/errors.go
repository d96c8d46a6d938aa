package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/redact"
	"github.com/topodisk/topodisk/diskdriver/ecs/ratelimit"
)

// soldOut are the messages by which ECS says that a zone is out of stock under
// codes that mean other things too.
var soldOut = []string{
	"inventory is insufficient",
	"is out of stock",
	"'DataDisk.n.Category' is not valid in this region",
}

// hints are said with codes whose cause lies on this side.
var hints = map[string]string{
	"InvalidTimeStamp.Expired":              clockHint,
	"IllegalTimestamp":                      clockHint,
	"InvalidOperation.NotSupportedEndpoint": "the endpoint is not that of the region",
	"InvalidAction.NotFound":                "the endpoint is not one of ECS",
}

// clockHint is said with the refusal of a wrong time. ECS takes a call that was
// signed up to 15 minutes before or after its own time.
const clockHint = "this machine's clock differs from that of ECS by more than 15 minutes"

// hintOn returns what is said with an error code whose cause lies on this side,
// or "". The reply's own time tells how wrong this machine's clock is.
func hintOn(code string, header http.Header) string {
	hint := hints[code]
	if hint != clockHint {
		return hint
	}
	theirs, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return hint
	}
	ahead := time.Since(theirs).Round(time.Second)
	switch {
	case ahead > 0:
		return fmt.Sprintf("%s: it is %v fast", hint, ahead)
	case ahead < 0:
		return fmt.Sprintf("%s: it is %v slow", hint, -ahead)
	}
	return hint
}

// KindOf says what an answer with an error code means for a call. An answer
// from a server that failed, from something before ECS, or about the time that a
// call took, is none. Of a change that is answered with a code that the tables
// don't have nothing follows: ECS may have sent it after the effect.
func (a action) KindOf(status int, code, message string) disk.Kind {
	kind, _, listed := rowOf(a.Name, code)
	switch {
	case kind == disk.Throttled:
		return kind
	case code == "" || status >= 500 || kind == disk.UnknownOutcome || tellsNothing(status):
		return unanswered(a)
	case a.Name == CreateDisk.Name && saysSoldOut(message):
		return disk.OutOfStock
	case a.Name == CreateDisk.Name && kind == disk.NotFound:
		// What CreateDisk doesn't find is something that the request names. Its
		// own disk is looked for by a read, and NotFound speaks of that alone.
		return disk.Invalid
	case !listed && a.mutates:
		return disk.UnknownOutcome
	}
	return kind
}

// tellsNothing says whether an HTTP status is that of a proxy or gateway that gave
// up, or refused to wait, whatever the code beside it.
func tellsNothing(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
}

func saysSoldOut(message string) bool {
	return slices.ContainsFunc(soldOut, func(words string) bool { return strings.Contains(message, words) })
}

// unanswered is the Kind of a call that may have reached ECS and whose outcome
// is not known. A read has no effect, so nothing of it can be unknown.
func unanswered(a action) disk.Kind {
	if a.mutates {
		return disk.UnknownOutcome
	}
	return disk.Unreachable
}

var (
	errUnreadable = errors.New("the reply can't be read")
	errHollow     = errors.New("the reply says success and holds nothing")
)

// failure says what became of a call that failed, in an error without secrets.
func (x *exchange) failure(ctx, limited context.Context, a action, err error) error {
	e := &disk.Error{Op: a.Name, RequestID: redact.Text(x.header.Get("X-Acs-Request-Id"))}
	var refusal *sdkerrors.ServerError
	switch {
	case errors.As(err, &refusal):
		e.Kind = a.KindOf(refusal.HttpStatus(), refusal.ErrorCode(), refusal.Message())
		text := x.refusalText(refusal)
		if _, _, listed := rowOf(a.Name, refusal.ErrorCode()); !listed && e.Kind == disk.UnknownOutcome && refusal.ErrorCode() != "" {
			text += " (the driver doesn't know this code, so the call may have taken effect)"
		}
		e.Err = &refusedError{code: x.keys.Redact(refusal.ErrorCode()), text: text, isNone: e.Kind == unanswered(a)}
		if refusal.RequestId() != "" {
			e.RequestID = redact.Text(refusal.RequestId())
		}
		if isExpired(e) {
			x.transport.clock.correct(x.header)
		}
	case !x.sent.Load():
		e.Kind, e.Err = disk.Unreachable, x.lost(ctx, limited, "ECS can't be reached", err)
	default:
		e.Kind, e.Err = unanswered(a), x.lost(ctx, limited, "no usable answer from ECS", err)
	}
	return e
}

// refusedError is what ECS said when it refused a call.
type refusedError struct {
	code, text string
	isNone     bool // the answer is none by action.KindOf, so the code is for people alone
}

func (e *refusedError) Error() string { return e.text }

// Code is ECS's own code.
func (e *refusedError) Code() string { return e.code }

// Is says whether ECS refused a call for the calls beside it, or a snapshot for there is nothing in the disk.
func (e *refusedError) Is(target error) bool {
	code := CodeOf(e)
	if target == ratelimit.ErrTooManyAtOnce {
		return strings.HasSuffix(code, ".ConcurrentLimitExceeded")
	}
	return target == disk.ErrBlank && (code == "IncorrectDiskStatus.NeverAttached" || code == "IncorrectDiskStatus.NeverUsed")
}

// CodeOf returns the code with which ECS refused a call, or "", as it is if the answer is none.
func CodeOf(err error) string {
	var e *refusedError
	if errors.As(err, &e) && !e.isNone {
		return e.code
	}
	return ""
}

// noKeys is the error of a call for which there were no keys. Unless their
// source says otherwise, that is for this side to mend.
func noKeys(a action, err error) error {
	e := &disk.Error{Op: a.Name, Kind: disk.Unauthenticated, Err: err}
	var said *disk.Error
	if errors.As(err, &said) {
		e.Kind = said.Kind
	}
	return e
}

// refusalText is what ECS said, in one line.
func (x *exchange) refusalText(refusal *sdkerrors.ServerError) string {
	keys := x.keys
	message := keys.Redact(refusal.Message())
	if refusal.ErrorCode() == "" {
		return fmt.Sprintf("HTTP %d without an error code of ECS: %q", refusal.HttpStatus(), message)
	}
	text := keys.Redact(refusal.ErrorCode()) + ": " + message
	if needed, ok := refusal.AccessDeniedDetail()["AuthAction"].(string); ok && needed != "" {
		text += " (permission needed: " + keys.Redact(needed) + ")"
	}
	if hint := hintOn(refusal.ErrorCode(), x.header); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// lost describes a call without an answer. Of the causes only the end of the
// caller's context is kept for errors.Is.
func (x *exchange) lost(ctx, limited context.Context, what string, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("%s: %w", what, ended)
	}
	if limited.Err() != nil {
		return fmt.Errorf("%s in time", what)
	}
	return fmt.Errorf("%s: %s", what, x.keys.Redact(cause(err)))
}

// cause is the text of the reason of a failed call.
func cause(err error) string {
	var client *sdkerrors.ClientError
	if errors.As(err, &client) && client.ErrorCode() == sdkerrors.JsonUnmarshalErrorCode {
		return "the reply is not the JSON that was expected"
	}
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		return fmt.Sprintf("the reply is longer than %d MiB", long.Limit>>20)
	}
	return err.Error()
}
