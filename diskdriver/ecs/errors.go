package ecs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// codes says what an error code of ECS means. The codes are those of the pages
// CreateDisk, DeleteDisk and DescribeDisks of the ECS API and of its page on
// common error codes. A code that ends in * stands for all that begin so; the
// longest match wins, so an exception stands beside its rule.
var codes = map[string]disk.Kind{
	// The rate of calls.
	"Throttling*":          disk.Throttled,
	"Rejected.Throttling*": disk.Throttled,

	// ECS doesn't say, or doesn't know, whether the call took effect.
	"InternalError":       disk.UnknownOutcome,
	"ServiceUnavailable*": disk.UnknownOutcome,
	"UnknownError":        disk.UnknownOutcome,
	"SignatureNonceUsed":  disk.UnknownOutcome, // something sent the request twice: the first one counts

	// The same call is under way, or what it needs is not ready.
	"LastTokenProcessing":              disk.Pending,
	"LastOrderProcessing":              disk.Pending,
	"IdempotentProcessing":             disk.Pending,
	"OperationConflict*":               disk.Pending,
	"InvalidOperation.Conflict":        disk.Pending,
	"Operation.Conflict":               disk.Pending,
	"IncorrectDiskStatus.Initializing": disk.Pending,
	"InvalidSnapshot.NotReady":         disk.Pending,
	"InvalidSnapshotId.NotReady":       disk.Pending,

	// The keys.
	"InvalidAccessKeyId*":         disk.Unauthenticated,
	"Forbidden.AccessKeyDisabled": disk.Unauthenticated,
	"SignatureDoesNotMatch":       disk.Unauthenticated,
	"IncompleteSignature":         disk.Unauthenticated,
	"InvalidTimeStamp.Expired":    disk.Unauthenticated,
	"IllegalTimestamp":            disk.Unauthenticated,
	"InvalidSecurityToken*":       disk.Unauthenticated,
	"MissingSecurityToken":        disk.Unauthenticated,

	// What the keys may not do.
	"Forbidden":                   disk.Denied,
	"Forbidden.*":                 disk.Denied,
	"NoPermission*":               disk.Denied,
	"RealNameAuthenticationError": disk.Denied,
	"RegionUnauthorized":          disk.Denied,
	"UserNotInTheWhiteList":       disk.Denied,
	"InvalidPayMethod":            disk.Denied,
	"OperationDenied.RiskIssue":   disk.Denied,
	"InvalidAccountStatus.SnapshotServiceUnavailable": disk.Denied,
	"InvalidParameter.KMSKeyId.KMSUnauthorized":       disk.Denied,
	"InvalidParameter.KMSKeyId.CMKUnauthorized":       disk.Denied,
	"InvalidDiskStatus.DeleteProtection":              disk.Denied,

	// The client token was used with other parameters.
	"IdempotentParameterMismatch":          disk.Mismatch,
	"InvalidIdempotenceParameter.Mismatch": disk.Mismatch,

	// Not to be had of this category, level or size in this zone, now or ever:
	// ECS answers a category that is sold out as one that the zone doesn't know.
	"InvalidDataDiskCategory.*":                     disk.OutOfStock,
	"InvalidDiskCategory.*":                         disk.OutOfStock,
	"InvalidDiskSizeOrCategory":                     disk.OutOfStock,
	"InvalidDiskSize.NotSupported":                  disk.OutOfStock,
	"InvalidDataDiskSize.ValueNotSupported":         disk.OutOfStock,
	"InvalidSize.ValueNotSupported":                 disk.OutOfStock,
	"InvalidPerformanceLevel.*":                     disk.OutOfStock,
	"OperationDenied.PerformanceLevelNotMatch":      disk.OutOfStock,
	"InvalidProvisionedIops.LimitExceed":            disk.OutOfStock,
	"ProvisionedIopsForDiskCategoryUnsupported":     disk.OutOfStock,
	"BurstingEnabledForDiskCategoryUnsupported":     disk.OutOfStock,
	"InvalidParameter.DiskCategoryAndMultiAttach*":  disk.OutOfStock,
	"OperationDenied.ZoneNotSupportMultiAttachDisk": disk.OutOfStock,
	"OperationDenied":                               disk.OutOfStock, // "the specified zone is not available or not authorized"
	"OperationDenied.NoStock":                       disk.OutOfStock,
	"OperationDenied.ZoneNotAllowed":                disk.OutOfStock,
	"OperationDenied.ZoneSystemCategoryNotMatch":    disk.OutOfStock,
	"OperationDenied.CloudSSDNotSupported":          disk.OutOfStock,
	"Zone.NotOnSale":                                disk.OutOfStock,
	"QuotaExceed.DiskCapacity":                      disk.OutOfStock, // counted per zone and category

	// Limits of the account, money among them.
	"QuotaExceed.*":                         disk.Quota,
	"QuotaExceeded.*":                       disk.Quota,
	"OperationDenied.QuotaExceed":           disk.Quota,
	"Account.Arrearage":                     disk.Quota,
	"InsufficientBalance":                   disk.Quota,
	"InvalidAccountStatus.NotEnoughBalance": disk.Quota,

	// A size that no other category would take either.
	"InvalidDiskSize.TooSmall":                disk.OutOfRange, // smaller than the snapshot
	"InvalidDiskSize.ExceedsMultiAttachLimit": disk.OutOfRange,

	// The request.
	"MissingParameter*":                              disk.Invalid,
	"MissingParamter*":                               disk.Invalid, // ECS's spelling, here and below
	"IncompleteParamter*":                            disk.Invalid,
	"InvalidParamter*":                               disk.Invalid,
	"InvalidParameter*":                              disk.Invalid,
	"UnsupportedParameter*":                          disk.Invalid,
	"InvalidParam.ZoneIdAndInstanceId.Conflict":      disk.Invalid,
	"InvalidDiskName.*":                              disk.Invalid,
	"InvalidDescription.*":                           disk.Invalid,
	"InvalidRegionId.*":                              disk.Invalid,
	"InvalidRegion.*":                                disk.Invalid,
	"InvalidZoneId.*":                                disk.Invalid,
	"InvalidDiskIds.*":                               disk.Invalid,
	"InvalidDiskType.*":                              disk.Invalid,
	"InvalidCategory.*":                              disk.Invalid,
	"InvalidStatus.*":                                disk.Invalid,
	"InvalidFilterKey.*":                             disk.Invalid,
	"InvalidFilterValue*":                            disk.Invalid,
	"InvalidDiskChargeType.*":                        disk.Invalid,
	"InvalidLockReason.*":                            disk.Invalid,
	"InvalidStorageClusterId.*":                      disk.Invalid,
	"InvalidResourceGroup.*":                         disk.Invalid,
	"InvalidEncrypted.*":                             disk.Invalid,
	"EncryptedOption.Conflict":                       disk.Invalid,
	"InvalidKMSKeyId.*":                              disk.Invalid,
	"Duplicate.TagKey":                               disk.Invalid,
	"InvalidTagKey.*":                                disk.Invalid,
	"InvalidTagValue.*":                              disk.Invalid,
	"InvalidTag.*":                                   disk.Invalid,
	"InvalidTagCount":                                disk.Invalid,
	"NumberExceed.Tags":                              disk.Invalid,
	"QuotaExceed.Tags":                               disk.Invalid, // more tags than one disk takes
	"InvalidSnapshot.*":                              disk.Invalid,
	"InvalidSnapshotId.*":                            disk.Invalid,
	"OperationDenied.SnapshotNotAllowed":             disk.Invalid,
	"InvalidOperation.CreateFromSnapshotUnsupported": disk.Invalid,
	"InvalidBurstingEnabled.*":                       disk.Invalid,
	"BurstingEnabledForMultiAttachDiskUnsupported":   disk.Invalid,
	"DiskNotPortable":                                disk.Invalid,
	"DiskTypeViolation":                              disk.Invalid,

	// What the request names.
	"InvalidDiskId.NotFound":     disk.NotFound,
	"InvalidSnapshot.NotFound":   disk.NotFound,
	"InvalidSnapshotId.NotFound": disk.NotFound,
	"InvalidInstanceId.NotFound": disk.NotFound,

	// Something else holds the disk.
	"IncorrectDiskStatus":  disk.InUse,
	"DiskStillAttached":    disk.InUse,
	"DiskCreatingSnapshot": disk.InUse,

	// Answers that only a mistake of this package or of the endpoint explains.
	"InvalidAction.NotFound":                disk.Unexpected,
	"UnsupportedHTTPMethod":                 disk.Unexpected,
	"InvalidOperation.NotSupportedEndpoint": disk.Unexpected,
	"DryRunOperation":                       disk.Unexpected,
}

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

// kindOfCode looks a code up in the table.
func kindOfCode(code string) disk.Kind {
	row, ok := rowOf(code)
	if !ok {
		return disk.Unexpected
	}
	return codes[row]
}

// rowOf returns the key of the row that a code falls under.
func rowOf(code string) (string, bool) {
	if _, ok := codes[code]; ok {
		return code, true
	}
	for end := len(code); end > 0; end-- {
		if _, ok := codes[code[:end]+"*"]; ok {
			return code[:end] + "*", true
		}
	}
	return "", false
}

// kindOfRefusal says what an answer with an error code means for a call. A code
// that the table doesn't have is Unexpected, for ECS has answered; an answer
// from a server that failed, or from something before ECS, is none.
func kindOfRefusal(a action, status int, code, message string) disk.Kind {
	kind := kindOfCode(code)
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
		e.Err = &refusedError{code: refusal.ErrorCode(), text: s.wire.keys.scrub(refusalText(refusal))}
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
func refusalText(refusal *sdkerrors.ServerError) string {
	message := oneLine(refusal.Message())
	if refusal.ErrorCode() == "" {
		return fmt.Sprintf("HTTP %d without an error code of ECS: %q", refusal.HttpStatus(), message)
	}
	text := refusal.ErrorCode() + ": " + message
	if needed, ok := refusal.AccessDeniedDetail()["AuthAction"].(string); ok && needed != "" {
		text += " (permission needed: " + oneLine(needed) + ")"
	}
	if hint := hintOn(refusal.ErrorCode(), refusal.RespHeaders); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}
