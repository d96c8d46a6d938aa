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

// IsFirstCall says whether a call comes with that proof.
func IsFirstCall(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(FirstCallKey)
	return len(values) == 1 && values[0] == "true"
}

// CallerOf tells the processes of callers apart, by the connection over which a
// call has come: a sidecar keeps one, and ends when another leads.
func CallerOf(ctx context.Context) any {
	if from, ok := peer.FromContext(ctx); ok {
		return from.Addr // every connection has a value of its own
	}
	return nil
}

// Maker makes one thing of a CSI name, once: a disk, a snapshot or a group of
// snapshots. Package creation decides the steps; Maker executes them.
type Maker[T any] struct {
	Records *Table
	Name    string // by which the Record and the client token go
	// Find looks for what an earlier call has made. None is no error.
	Find func(ctx context.Context) (made T, found bool, err error)
	// Prepare gets what the first create needs; nil: nothing.
	Prepare func(ctx context.Context) error
	// Make sends a create. Refused without an error says that the next one differs.
	Make func(ctx context.Context, token disk.Token) (made T, answer Answer, err error)
}

// Obtain finds the thing, or makes it.
func (m Maker[T]) Obtain(ctx context.Context) (T, error) {
	var none T
	var looked bool         // no create was sent since
	var unread, cause error // why nothing could be seen; why the token is used
	for {
		record := m.Records.Of(m.Name, time.Now())
		switch record.Next(time.Now(), looked) {
		case Look:
			made, found, err := m.Look(ctx)
			unseen := err != nil && (!isListDenied(err) || !record.TokenTells(time.Now()))
			if found || unseen {
				return made, err
			}
			looked, unread = true, err
		case Make:
			if m.Prepare != nil {
				if err := m.Prepare(ctx); err != nil {
					return none, err
				}
				m.Prepare = nil // it may have taken long
				continue
			}
			made, answer, err := m.send(ctx, record.Token(m.Name))
			tokenUsed := answer == Used || answer == Unseen
			if answer == Made || err != nil && !tokenUsed {
				return made, err
			}
			looked, cause = !tokenUsed, err
		case Wait:
			if unread != nil {
				return none, unread
			}
			return none, notInSight(record.Provable(), cause)
		}
	}
}

// Look looks for the thing, and reports what that has shown.
func (m Maker[T]) Look(ctx context.Context) (T, bool, error) {
	left := time.Now()
	made, found, err := m.Find(ctx)
	if err == nil {
		m.Records.Update(m.Name, time.Now(), func(r *Record) { r.Looked(left, found) })
	}
	return made, found, err
}

// send sends a create, and reports its answer.
func (m Maker[T]) send(ctx context.Context, token disk.Token) (made T, answer Answer, err error) {
	answer = Unclear // as a panic leaves it
	defer func() {
		m.Records.Update(m.Name, time.Now(), func(r *Record) { r.Answered(time.Now(), answer) })
	}()
	made, got, err := m.Make(ctx, token)
	answer = got
	return made, answer, err
}

// AnswerOf says what the error of a create means for what it may have made.
// NotFound is that of what ECS says it has made: of what a create is made from it
// means a refusal.
func AnswerOf(err error) Answer {
	if err == nil {
		return Made
	}
	switch disk.KindOf(err) {
	case disk.Mismatch:
		return Used
	case disk.NotFound:
		return Unseen
	case disk.UnknownOutcome, disk.Pending:
		return Unclear
	}
	return Refused // ECS has answered, or was not reached
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

// Unread is the error of a search for what an earlier call may have made.
// Whatever its reason, the outcome of that call is not known.
func Unread(err error) error {
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
