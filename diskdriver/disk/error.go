package disk

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind says what went wrong, in terms that a caller can act on. Every ECS
// error code has one (diskdriver/ecs/transport/codes.go), and every Kind has one gRPC
// code (diskdriver/status.go).
type Kind int

const (
	// Unexpected is an answer of ECS that fits no other Kind.
	Unexpected Kind = iota
	// Invalid is a request that no retry can save.
	Invalid
	// OutOfRange is a size that no allowed category takes.
	OutOfRange
	// Denied is a lack of permission.
	Denied
	// Unauthenticated is a credential that ECS does not accept.
	Unauthenticated
	// NotFound is a disk, instance or snapshot that does not exist.
	NotFound
	// Mismatch is an existing disk of the same name that is not the one asked for.
	Mismatch
	// OutOfStock is a disk that is not to be had in this zone, now or ever.
	OutOfStock
	// Unfit is a setting that a category or level doesn't take, in any zone:
	// another one may.
	Unfit
	// NodeFull is an instance that takes no more disks.
	NodeFull
	// Quota is a limit of the account that no other zone would lift.
	Quota
	// InUse is a disk that something else holds.
	InUse
	// Pending is an operation that is under way; the same call later ends it.
	Pending
	// Throttled is a call that ECS refused for the rate of calls.
	Throttled
	// Unreachable is a call that never reached ECS.
	Unreachable
	// UnknownOutcome is a call that may or may not have taken effect. It is
	// never to be treated as a failure: a disk may exist.
	UnknownOutcome
	// Blocked is an operation that the state of a disk or a rule of ECS
	// doesn't allow now; time or somebody's action lifts it.
	Blocked
	// BadToken is a place in a list that no longer is one, or never was: the
	// list has to be asked for from its beginning.
	BadToken
)

var kindNames = [...]string{
	"unexpected", "invalid", "out of range", "denied", "unauthenticated", "not found", "mismatch",
	"out of stock", "unfit", "node full", "quota", "in use", "pending", "throttled", "unreachable", "unknown outcome", "blocked", "bad token",
}

// String returns the Kind's name in words.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return kindNames[k]
}

// Error is what went wrong with one operation on one disk.
type Error struct {
	Op        string     // the operation, in ECS's terms: CreateDisk
	Disk      ID         // the disk, if there is one
	Instance  InstanceID // the instance, if there is one
	Kind      Kind
	RequestID string   // ECS's request ID, for a support ticket
	Zones     []string // OutOfStock: the zones that had no disk
	MoreFrom  GiB      // OutOfStock: the size from which more disk types are possible than were tried; 0: none is
	Err       error    // the cause, free of secrets
}

// Errorf makes an Error with no more than a Kind and a text.
func Errorf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// Error returns the operation, its objects, the cause and the request ID.
func (e *Error) Error() string {
	text := e.Kind.String()
	if e.Err != nil {
		text = e.Err.Error()
	}
	subject := slices.DeleteFunc([]string{e.Op, string(e.Disk), string(e.Instance)}, func(word string) bool { return word == "" })
	if len(subject) > 0 {
		text = strings.Join(subject, " ") + ": " + text
	}
	if e.RequestID != "" {
		text += " (request ID " + e.RequestID + ")"
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Involves says whether an Error in err's tree has the Kind: what ECS refused may stand behind what follows from that.
func Involves(err error, kind Kind) bool { return errors.Is(err, ofKind(kind)) }

// ofKind stands for all Errors of a Kind.
type ofKind Kind

func (k ofKind) Error() string { return Kind(k).String() }

// Is implements errors.Is for ofKind.
func (e *Error) Is(target error) bool { return target == ofKind(e.Kind) }

// KindOf returns the Kind of the outermost Error in err's chain, and
// Unexpected if there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Unexpected
}
