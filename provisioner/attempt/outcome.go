package attempt

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Outcome says what the driver's answer means for the claim.
type Outcome int

const (
	// Finished says that no volume exists or comes to exist from this request.
	Finished Outcome = iota
	// Background says that a volume may exist or come to exist: the request must be repeated until an answer is final.
	Background
	// Unchanged says that the call was not sent: the outcome of earlier calls holds.
	Unchanged
	// Reschedule is Finished, and says that the selected node can't have the volume: the scheduler is to select another one.
	Reschedule
)

var outcomeNames = [...]string{"finished", "background", "unchanged", "reschedule"}

// String returns the Outcome's name as it stands in metrics.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return fmt.Sprintf("outcome %d", int(o))
	}
	return outcomeNames[o]
}

// OutcomeOf says what the error of a CreateVolume call means. A final code says that
// no volume exists or comes to exist, not from earlier calls either. Reschedule is only
// for claims with a selected node, while topology is in use: for lack of stock, and for
// the codes that the operator has added.
func OutcomeOf(err error, notAsked, mayReschedule bool, added []codes.Code) Outcome {
	if notAsked {
		return Unchanged
	}
	s, ok := status.FromError(err)
	if !ok {
		return Background // the call failed before gRPC; an earlier one may still run
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted, codes.Unknown:
		// CSI: Aborted says that an operation on the volume is pending. Unknown
		// is the answer of an interceptor or a proxy, not of the driver's handler.
		return Background
	}
	if mayReschedule && (s.Code() == codes.ResourceExhausted || slices.Contains(added, s.Code())) {
		return Reschedule
	}
	return Finished
}

func isPending(err error) bool       { return status.Code(err) == codes.Aborted }
func isInvalid(err error) bool       { return status.Code(err) == codes.InvalidArgument }
func isAnotherVolume(err error) bool { return status.Code(err) == codes.AlreadyExists }
