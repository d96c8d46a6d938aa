package diskdriver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// firstCallKey is the gRPC metadata of a CreateVolume whose caller can prove
// that no disk of the name exists or will come to exist from an earlier call, by
// anybody. Then none is looked for, and a refusal is final at once.
const firstCallKey = "topodisk-first-call"

// isFirstCall says whether a call comes with that proof.
func isFirstCall(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(firstCallKey)
	return len(values) == 1 && values[0] == "true"
}

// creator makes one thing of a CSI name, once: a disk, a snapshot or a group of
// snapshots. Package creation decides the steps; creator executes them.
type creator[T any] struct {
	records *creation.Table
	name    string // by which the Record and the client token go
	// find looks for what an earlier call has made. None is no error.
	find func(ctx context.Context) (made T, found bool, err error)
	// prepare gets what the first create needs; nil: nothing.
	prepare func(ctx context.Context) error
	// make sends a create. Refused without an error says that the next one differs.
	make func(ctx context.Context, token disk.Token) (made T, answer creation.Answer, err error)
}

// obtain finds the thing, or makes it.
func (c creator[T]) obtain(ctx context.Context) (T, error) {
	var none T
	var looked bool         // no create was sent since
	var unread, cause error // why nothing could be seen; why the token is used
	for {
		record := c.records.Of(c.name, time.Now())
		switch record.Next(time.Now(), looked) {
		case creation.Look:
			made, found, err := c.look(ctx)
			if found || err != nil && !(isListDenied(err) && record.TokenTells(time.Now())) {
				return made, err
			}
			looked, unread = true, err
		case creation.Make:
			if c.prepare != nil {
				if err := c.prepare(ctx); err != nil {
					return none, err
				}
				c.prepare = nil // it may have taken long
				continue
			}
			made, answer, err := c.send(ctx, record.Token(c.name))
			if answer == creation.Made || err != nil && answer != creation.Used {
				return made, err
			}
			looked, cause = answer == creation.Refused, err
		case creation.Wait:
			if unread != nil {
				return none, unread
			}
			return none, notInSight(record.Provable(), cause)
		}
	}
}

// look looks for the thing, and reports what that has shown.
func (c creator[T]) look(ctx context.Context) (T, bool, error) {
	left := time.Now()
	made, found, err := c.find(ctx)
	if err == nil {
		c.records.Update(c.name, time.Now(), func(r *creation.Record) { r.Looked(left, found) })
	}
	return made, found, err
}

// send sends a create, and reports its answer.
func (c creator[T]) send(ctx context.Context, token disk.Token) (made T, answer creation.Answer, err error) {
	answer = creation.Unclear // as a panic leaves it
	defer func() {
		c.records.Update(c.name, time.Now(), func(r *creation.Record) { r.Answered(time.Now(), answer) })
	}()
	made, got, err := c.make(ctx, token)
	answer = got
	return made, answer, err
}

// answerOf says what the error of a create means for what it may have made.
// NotFound is that of what ECS says it has made: of what a create is made from it
// means a refusal.
func answerOf(err error) creation.Answer {
	if err == nil {
		return creation.Made
	}
	switch disk.KindOf(err) {
	case disk.Mismatch, disk.NotFound:
		return creation.Used
	case disk.UnknownOutcome, disk.Pending:
		return creation.Unclear
	}
	return creation.Refused // ECS has answered, or was not reached
}

// notInSight is the answer while what was made under a used token may show yet.
func notInSight(provable time.Time, cause error) error {
	err := disk.Errorf(disk.Pending, "it was made before, and ECS doesn't show it; if it doesn't within %s, a new one is made", remaining(provable))
	if cause != nil {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// remaining is the time until a moment, for an error message.
func remaining(until time.Time) time.Duration { return time.Until(until).Round(time.Second) }

// unread is the error of a search for what an earlier call may have made.
// Whatever its reason, the outcome of that call is not known.
func unread(err error) error {
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
