package ecs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
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

// kindOfRefusal says what an answer with an error code means for a call. A code
// that the table doesn't have is Unexpected, for ECS has answered; an answer
// from a server that failed, or from something before ECS, is none.
func kindOfRefusal(a action, status int, code, message string) disk.Kind {
	kind, _, _ := rowOf(a, code)
	switch {
	case kind == disk.Throttled:
		return kind
	case code == "" || status >= 500 || kind == disk.UnknownOutcome:
		return unanswered(a)
	case a == createDisk && saysSoldOut(message):
		return disk.OutOfStock
	case a == createDisk && kind == disk.NotFound:
		// What CreateDisk doesn't find is something that the request names. Its
		// own disk is looked for by a read, and NotFound speaks of that alone.
		return disk.Invalid
	}
	return kind
}

func saysSoldOut(message string) bool {
	for _, words := range soldOut {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
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
func (s *session) failure(ctx context.Context, a action, err error) error {
	e := &disk.Error{Op: a.name, RequestID: s.wire.requestID}
	var refusal *sdkerrors.ServerError
	switch {
	case errors.As(err, &refusal):
		e.Kind = kindOfRefusal(a, refusal.HttpStatus(), refusal.ErrorCode(), refusal.Message())
		e.Err = &refusedError{code: refusal.ErrorCode(), text: refusalText(refusal, s.wire.keys)}
		if refusal.RequestId() != "" {
			e.RequestID = refusal.RequestId()
		}
	case !s.wire.sent.Load():
		e.Kind, e.Err = disk.Unreachable, s.lost(ctx, "ECS can't be reached", err)
	default:
		e.Kind, e.Err = unanswered(a), s.lost(ctx, "no usable answer from ECS", err)
	}
	return e
}

// refusedError is what ECS said when it refused a call.
type refusedError struct{ code, text string }

func (e *refusedError) Error() string { return e.text }

// Code is ECS's own code.
func (e *refusedError) Code() string { return e.code }

// Is says whether ECS refused a snapshot for there is nothing in the disk.
func (e *refusedError) Is(target error) bool {
	return target == disk.ErrBlank && (e.code == "IncorrectDiskStatus.NeverAttached" || e.code == "IncorrectDiskStatus.NeverUsed")
}

// codeOf returns the code with which ECS refused a call, or "".
func codeOf(err error) string {
	var e *refusedError
	if errors.As(err, &e) {
		return e.code
	}
	return ""
}

// noKeys is the error of a call for which there were no keys. Unless their
// source says otherwise, that is for this side to mend.
func noKeys(a action, err error) error {
	e := &disk.Error{Op: a.name, Kind: disk.Unauthenticated, Err: err}
	var said *disk.Error
	if errors.As(err, &said) {
		e.Kind = said.Kind
	}
	return e
}

// refusalText is what ECS said, in one line.
func refusalText(refusal *sdkerrors.ServerError, keys credentials.Keys) string {
	message := keys.Redact(refusal.Message())
	if refusal.ErrorCode() == "" {
		return fmt.Sprintf("HTTP %d without an error code of ECS: %q", refusal.HttpStatus(), message)
	}
	text := keys.Redact(refusal.ErrorCode()) + ": " + message
	if needed, ok := refusal.AccessDeniedDetail()["AuthAction"].(string); ok && needed != "" {
		text += " (permission needed: " + keys.Redact(needed) + ")"
	}
	if hint := hintOn(refusal.ErrorCode(), refusal.RespHeaders); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}
