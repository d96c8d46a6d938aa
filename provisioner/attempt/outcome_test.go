package attempt

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestOutcomeOf holds what the error of a call means against a table of all codes.
func TestOutcomeOf(t *testing.T) {
	tests := map[codes.Code]struct {
		pinned, movable, added Outcome // no node may be selected again, one may, and the operator has added the code
	}{
		codes.Canceled:           {Background, Background, Background},
		codes.Unknown:            {Background, Background, Background},
		codes.InvalidArgument:    {Finished, Finished, Reschedule},
		codes.DeadlineExceeded:   {Background, Background, Background},
		codes.NotFound:           {Finished, Finished, Reschedule},
		codes.AlreadyExists:      {Finished, Finished, Reschedule},
		codes.PermissionDenied:   {Finished, Finished, Reschedule},
		codes.ResourceExhausted:  {Finished, Reschedule, Reschedule},
		codes.FailedPrecondition: {Finished, Finished, Reschedule},
		codes.Aborted:            {Background, Background, Background},
		codes.OutOfRange:         {Finished, Finished, Reschedule},
		codes.Unimplemented:      {Finished, Finished, Reschedule},
		codes.Internal:           {Finished, Finished, Reschedule},
		codes.Unavailable:        {Background, Background, Background},
		codes.DataLoss:           {Finished, Finished, Reschedule},
		codes.Unauthenticated:    {Finished, Finished, Reschedule},
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		t.Run(code.String(), func(t *testing.T) {
			test, ok := tests[code]
			if !ok {
				t.Fatal("the table has no row for the code")
			}
			bare := status.Error(code, "no")
			for _, err := range []error{bare, fmt.Errorf("in zone-a: %w", bare)} {
				for _, c := range []struct {
					name                    string
					notAsked, mayReschedule bool
					added                   []codes.Code
					want                    Outcome
				}{
					{name: "no other node may be selected", want: test.pinned},
					{name: "no other node may be selected, the code is added", added: []codes.Code{code}, want: test.pinned},
					{name: "another node may be selected", mayReschedule: true, want: test.movable},
					{name: "another code is added", mayReschedule: true, added: []codes.Code{code + 1}, want: test.movable},
					{name: "the code is added", mayReschedule: true, added: []codes.Code{codes.OK, code}, want: test.added},
					{name: "the driver was not asked", notAsked: true, want: Unchanged},
					{name: "the driver was not asked, the code is added", notAsked: true, mayReschedule: true, added: []codes.Code{code}, want: Unchanged},
				} {
					if got := OutcomeOf(err, c.notAsked, c.mayReschedule, c.added); got != c.want {
						t.Errorf("%v, %s: got %v, want %v", err, c.name, got, c.want)
					}
				}
			}
		})
	}
}

// An error that is no gRPC status says nothing of what the driver has done.
func TestOutcomeOfOtherErrors(t *testing.T) {
	for _, err := range []error{errors.New("connection reset"), context.DeadlineExceeded, context.Canceled, fmt.Errorf("no socket: %w", context.Canceled)} {
		if got := OutcomeOf(err, false, true, []codes.Code{codes.Unknown}); got != Background {
			t.Errorf("%v: got %v, want %v", err, got, Background)
		}
		if got := OutcomeOf(err, true, true, nil); got != Unchanged {
			t.Errorf("%v, the driver was not asked: got %v, want %v", err, got, Unchanged)
		}
	}
}

// The names are values of a label of metrics.
func TestOutcomeNames(t *testing.T) {
	for outcome, want := range map[Outcome]string{
		Finished: "finished", Background: "background", Unchanged: "unchanged", Reschedule: "reschedule", Reschedule + 1: "outcome 4", -1: "outcome -1",
	} {
		if got := outcome.String(); got != want {
			t.Errorf("%d is %q, want %q", int(outcome), got, want)
		}
	}
}
