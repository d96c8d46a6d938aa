package creation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// FirstCallKey is the gRPC metadata of a CreateVolume whose caller can prove
// that no disk of the name exists or will come to exist from an earlier call, by
// anybody. Then none is looked for, and a refusal is final at once.
const FirstCallKey = "topodisk-first-call"

// Called tells the Record of a name of a call: who makes it, and whether it
// comes with that proof. A sidecar keeps one connection, and ends when another
// leads, so the connection tells the processes of callers apart.
func (t *Table) Called(ctx context.Context, name string) {
	var caller any
	if from, ok := peer.FromContext(ctx); ok {
		caller = from.Addr // every connection has a value of its own
	}
	t.begin(name, caller, IsFirstCall(ctx), time.Now())
}

// IsFirstCall says whether a CreateVolume comes with that proof.
func IsFirstCall(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(FirstCallKey)
	return len(values) == 1 && values[0] == "true"
}

// Maker makes one thing of a CSI name, once: a disk, a snapshot or a group of
// snapshots.
type Maker[T any] struct {
	Records *Table
	Name    string // by which the Record and the client token go
	// Find looks for what an earlier call has made. None is no error. With proof it must be certain that one would be shown.
	Find func(ctx context.Context, proof bool) (made T, found bool, err error)
	// Prepare gets what the first create needs; nil: nothing.
	Prepare func(ctx context.Context) error
	// Make sends a create. Refused without an error says that the next one differs.
	Make func(ctx context.Context, token disk.Token) (made T, answer Answer, err error)
}

// Obtain finds the thing, or makes it.
func (m Maker[T]) Obtain(ctx context.Context) (T, error) {
	var none T
	var seen sight
	var denied, cause error // why nothing could be seen; why the token is used
	making := false
	defer func() {
		if making { // it has panicked
			m.answered(Unclear)
		}
	}()
	for {
		record := m.Records.Of(m.Name, time.Now())
		switch record.next(time.Now(), seen) {
		case look:
			made, found, err := m.Look(ctx)
			if found || err != nil && !isListDenied(err) {
				return made, err
			}
			seen, denied = noneShown, err
			if err != nil {
				seen = hidden
			}
		case create:
			if m.Prepare != nil {
				if err := m.Prepare(ctx); err != nil {
					return none, err
				}
				m.Prepare = nil // it may have taken long
				continue
			}
			making = true
			made, answer, err := m.Make(ctx, record.token(m.Name))
			making = false
			m.answered(answer)
			tokenUsed := answer == Used || answer == Unseen
			if answer == Made || err != nil && !tokenUsed {
				return made, err
			}
			cause = err
			if tokenUsed {
				seen = unread
			}
		case wait:
			if denied != nil {
				return none, denied
			}
			return none, notInSight(record.Provable(), cause)
		}
	}
}

// answered reports the answer to a create.
func (m Maker[T]) answered(a Answer) {
	m.Records.Update(m.Name, time.Now(), func(r *Record) { r.answered(time.Now(), a) })
}

// Look looks for the thing, and reports what that has shown.
func (m Maker[T]) Look(ctx context.Context) (T, bool, error) {
	left := time.Now()
	record := m.Records.Of(m.Name, left)
	made, found, err := m.Find(ctx, record.proves(left))
	if err == nil {
		m.Records.Update(m.Name, time.Now(), func(r *Record) { r.looked(left, found) })
	}
	return made, found, err
}

// notInSight is the answer while what was made under a used token may show yet.
func notInSight(provable time.Time, cause error) error {
	err := disk.Errorf(disk.Pending, "it was made before, and ECS doesn't show it; if it doesn't within %s, a new one is made", Remaining(provable))
	if cause != nil {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// Remaining is the time until a moment, for an error message.
func Remaining(until time.Time) time.Duration { return time.Until(until).Round(time.Second) }

// NotRead is the error of a search for what an earlier call may have made.
// Whatever its reason, the outcome of that call is not known.
func NotRead(err error) error {
	if disk.KindOf(err) == disk.Denied {
		return &disk.Error{Kind: disk.Pending, Err: fmt.Errorf("it may have been made before, and looking for it needs a permission that the credentials lack: %w", err)}
	}
	return &disk.Error{Kind: disk.UnknownOutcome, Err: fmt.Errorf("it may have been made before, and looking for it failed: %w", err)}
}

// isListDenied says whether a search failed because the account may see nothing.
func isListDenied(err error) bool {
	var e *disk.Error
	return errors.As(err, &e) && disk.KindOf(e.Err) == disk.Denied
}
